"""Tiny models with random weights, one for each head."""

import string
from pathlib import Path

import torch
from transformers import BertConfig

import modeling_mybert
from modeling_mybert import MyBertConfig
from tokenization import SPECIAL_TOKENS, MyBertTokenizer

WORDS = "the great dull film song sea ann bert sings in rome who where is very".split()  # noqa: SIM905
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_WINDOWS = {"finetuned": {"max_length": 12, "stride": 2, "long_texts": "window"}}
_PAIRS = {"finetuned": {"inputs": ["text", "text_pair"]}}
HEADS = {
    "classifier": ("SequenceClassification", {"labels": ["bad", "good", "odd"], "problem": "single_label"}),
    "multi": ("SequenceClassification", {"labels": ["sad", "long"], "problem": "multi_label"}),
    "windowed": (
        "SequenceClassification",
        {"labels": ["no", "yes"], "problem": "single_label", **_WINDOWS},
    ),
    "regression": ("SequenceClassification", {"labels": ["score"], "problem": "regression"}),
    "pairs": ("SequenceClassification", {"labels": ["no", "yes"], "problem": "single_label", **_PAIRS}),
    "tagger": ("TokenClassification", {"labels": ["O", "B-PER", "I-PER", "B-LOC"], "tag_scheme": "IOB2"}),
    "reader": ("QuestionAnswering", {"labels": []}),
    "chooser": ("MultipleChoice", {"labels": []}),
    "encoder": ("", {"labels": []}),
    "filler": ("PreTraining", {"labels": []}),
}

_CONTEXT = "the good film the bad book"
LABELLED = {  # task and six labelled rows of most heads
    "classifier": ("text-classification", [{"text": f"a {w} film", "label": w} for w in ("good", "bad", "dull")] * 2),
    "multi": (
        "text-classification",
        [{"text": f"a {a} {b} film", "label": [a, b]} for a, b in (("good", "fine"), ("bad", "dull"))] * 3,
    ),
    "regression": (
        "text-classification",
        [
            {"text": f"a {w} film", "label": i + 0.5}
            for i, w in enumerate(("bad", "dull", "good", "fine", "great", "very"))
        ],
    ),
    "pairs": (
        "text-classification",
        [{"text": w, "text_pair": n, "label": w} for w in ("good", "bad") for n in ("film", "book", "song")],
    ),
    "tagger": (
        "token-classification",
        [{"tokens": ["the", "unseen", noun], "tags": ["O", "O", "B-X"]} for noun in ("film", "book", "song")] * 2,
    ),
    "reader": (
        "question-answering",
        [
            {
                "question": "very good",
                "context": _CONTEXT,
                "answers": {"text": [w], "answer_start": [_CONTEXT.index(w)]},
            }
            for w in ("film", "book")
        ]
        * 3,
    ),
    "chooser": (
        "multiple-choice",
        [{"context": "the film", "choices": ["is good", "is bad", "very dull"], "label": i} for i in (0, 1)] * 3,
    ),
}


def tiny_config(vocab_size: int = 99, kind: type[BertConfig] = MyBertConfig, **settings):
    """The configuration of a tiny model; `settings` replace sizes or are added."""
    return kind(vocab_size=vocab_size, **SIZES | {"max_position_embeddings": 64} | settings)


class TinyModels:
    """A function from a name in `HEADS` to the folder of its model."""

    def __init__(self, folder: Path):
        characters = string.ascii_lowercase + string.digits
        self.folder = folder
        self.pieces = [*SPECIAL_TOKENS, *string.punctuation, *characters, *(f"##{c}" for c in characters), *WORDS]

    def __call__(self, name: str) -> Path:
        folder = self.folder / name
        if folder.exists():
            return folder
        head, given = HEADS[name]
        tokenizer = MyBertTokenizer(self.pieces)
        config = tiny_config(len(tokenizer), initializer_range=0.3)
        if given["labels"]:
            config.id2label = dict(enumerate(given["labels"]))
            config.label2id = {label: i for i, label in config.id2label.items()}
        problem = given.get("problem")
        config.problem_type = f"{problem}_classification" if problem and problem != "regression" else problem
        if "tag_scheme" in given:
            config.tag_scheme = given["tag_scheme"]
        if "finetuned" in given:
            config.finetuned = {"task": "text-classification", **given["finetuned"]}
        torch.manual_seed(0)
        model = getattr(modeling_mybert, f"MyBertFor{head}" if head else "MyBertModel")(config)
        if name == "tagger":  # finds entities, whatever weights a version of PyTorch or transformers draws
            model.classifier.bias.data = torch.tensor([-2.0, 0.0, -1.0, 0.0])
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder
