"""`mybert trim`: smaller vocabularies with equal outputs, for every head."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from json_files import write_files
from tiny_domain import CONFIG, PIECES, make_documents, write_documents

import modeling_mybert
from mybert.adaptation.settings import TrimSettings
from mybert.workflows.trim import _needed_pieces, _trim_tokenizer, trim
from tokenization import MyBertTokenizer

HEADS = (
    "MyBertModel",
    "MyBertForPreTraining",
    "MyBertForMaskedLM",
    "MyBertForNextSentencePrediction",
    "MyBertForSequenceClassification",
    "MyBertForTokenClassification",
    "MyBertForQuestionAnswering",
    "MyBertForMultipleChoice",
)
EXTRA = [*PIECES, "tanker", "##anker", "barrel", "zebra", "##line", "##zz"]


def save(head: str, folder, **settings) -> str:
    pieces = list(dict.fromkeys(EXTRA))
    torch.manual_seed(0)
    config = modeling_mybert.MyBertConfig(**{**CONFIG, "vocab_size": len(pieces)}, pad_token_id=0, **settings)
    getattr(modeling_mybert, head)(config).save_pretrained(folder)
    MyBertTokenizer(pieces, model_max_length=64).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def small(tmp_path):
    """A function from a model and the documents for which it is trimmed to the new folder."""

    def call(model: Path | str, documents: list[str], name: str = "small") -> Path:
        texts = write_documents(tmp_path / f"{name}.jsonl", documents)
        return trim(TrimSettings([texts], model=str(model), output=str(tmp_path / name)))

    return call


def test_a_word_of_more_than_100_characters_needs_no_pieces(tmp_path):
    """Finding those of a line of 20,000 letters would take the rest of the day."""
    tokenizer = MyBertTokenizer(list(dict.fromkeys(EXTRA)))
    assert _needed_pieces(iter(["tanker" * 3000]), tokenizer) == set(tokenizer.all_special_tokens)


@pytest.mark.parametrize("head", HEADS)
def test_outputs_on_the_text_are_equal_with_every_head(head, small, tmp_path):
    documents = make_documents(6)
    model = save(head, tmp_path / "model")
    folder = small(model, documents)
    cls = getattr(modeling_mybert, head)
    old, new = cls.from_pretrained(model).eval(), cls.from_pretrained(folder).eval()
    before, after = MyBertTokenizer.from_pretrained(model), transformers.BertTokenizer.from_pretrained(folder)
    kept = [before.convert_tokens_to_ids(piece) for piece in after.convert_ids_to_tokens(range(len(after)))]
    assert not {"zebra", "##zz", "[unused0]"} & set(after.get_vocab())
    assert {"tanker", "[MASK]", "z", "##z"} <= set(after.get_vocab())
    assert new.config.vocab_size == len(after) < len(before)
    for text in documents:
        inputs, trimmed = (
            tokenizer(text, max_length=64, truncation=True, return_tensors="pt") for tokenizer in (before, after)
        )
        assert before.convert_ids_to_tokens(inputs["input_ids"][0]) == after.convert_ids_to_tokens(
            trimmed["input_ids"][0]
        )
        if head == "MyBertForMultipleChoice":
            inputs, trimmed = ({name: value[None] for name, value in found.items()} for found in (inputs, trimmed))
        with torch.no_grad():
            expected, found = old(**inputs), new(**trimmed)
        for name, value in expected.items():
            if isinstance(value, torch.Tensor):
                if value.shape == found[name].shape:
                    assert torch.equal(value, found[name]), name
                else:  # scores of tokens
                    torch.testing.assert_close(value[..., kept], found[name])


def test_the_manifest_says_what_was_saved(small, tmp_path):
    folder = small(save("MyBertForMaskedLM", tmp_path / "model"), make_documents(3))
    found = json.loads((folder / "manifest.json").read_text())["trimmed"]
    left = len(MyBertTokenizer.from_pretrained(folder))
    rows = found["before"]["tokens"] - left
    assert (found["before"]["tokens"], found["after"]["tokens"]) == (len(set(EXTRA)), left)
    assert found["before"]["parameters"] - found["after"]["parameters"] == rows * (CONFIG["hidden_size"] + 1)
    assert found["before"]["bytes"] - found["after"]["bytes"] == 4 * rows * (CONFIG["hidden_size"] + 1)


def test_the_card_marks_the_scores_of_the_parent(small, tmp_path):
    from mybert.release.card.model_card import write_card
    from mybert.release.hub.bundle import make_bundle
    from mybert.release.settings import PushSettings

    model = save("MyBertForSequenceClassification", tmp_path / "model")
    results = {"task": "text-classification", "validation": {"metrics": {"accuracy": 0.4321}, "rows": 7}}
    (tmp_path / "model" / "results.json").write_text(json.dumps(results))
    small(small(model, [*make_documents(3), "zebra"]), make_documents(3), "smaller")
    for name in ("small", "smaller"):
        settings = PushSettings(str(tmp_path / name), "me/small")
        card = write_card(make_bundle(settings, tmp_path / f"bundle of {name}"), settings, "v1", "Checked.")
        title, table = card.text.split("## Evaluation")[1].split(":", 1)
        assert "measured before the vocabulary was trimmed" in title
        assert "| accuracy | 0.4321 |" in table
        assert card.text.split("- trimmed from ")[1].startswith("a local checkpoint, SHA-256 ")
        assert card.data.eval_results is None  # the metadata has scores of this model only


def test_token_ids_of_the_configuration_follow_their_tokens(small, tmp_path):
    pieces = ["zebra", "##zz", *(piece for piece in dict.fromkeys(EXTRA) if piece not in ("zebra", "##zz"))]
    torch.manual_seed(0)
    config = modeling_mybert.MyBertConfig(
        **{**CONFIG, "vocab_size": len(pieces)}, pad_token_id=pieces.index("[PAD]"), eos_token_id=pieces.index("[SEP]")
    )
    modeling_mybert.MyBertModel(config).save_pretrained(tmp_path / "model")
    MyBertTokenizer(pieces).save_pretrained(tmp_path / "model")
    folder = small(tmp_path / "model", make_documents(3))
    config, tokenizer = modeling_mybert.MyBertConfig.from_pretrained(folder), MyBertTokenizer.from_pretrained(folder)
    assert (config.pad_token_id, config.eos_token_id) == (tokenizer.pad_token_id, tokenizer.sep_token_id) == (0, 3)


def test_a_word_that_the_vocabulary_cannot_spell_stays_unknown():
    """`þß` leaves `##ð`, which the vocabulary lacks. Without `þß` the word would be `þ ##ßð`."""
    tokenizer = MyBertTokenizer([*dict.fromkeys(EXTRA), "þ", "þß", "##ßð"])
    text = "aßð þßð"
    trimmed, _ = _trim_tokenizer(tokenizer, _needed_pieces(iter([text]), tokenizer))
    assert trimmed.tokenize(text) == tokenizer.tokenize(text) == ["a", "##ßð", "[UNK]"]


def test_the_prompts_of_a_sentence_encoder_stay(small, tmp_path):
    model = Path(save("MyBertModel", tmp_path / "model"))
    modules = [{"type": f"sentence_transformers.models.{name}", "path": name} for name in ("Transformer", "Pooling")]
    (model / "modules.json").write_text(json.dumps([modules[0] | {"path": ""}, modules[1]]))
    write_files(model, {"Pooling/config.json": '{"pooling_mode_mean_tokens": true}'})
    (model / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": "zebra "}}))
    folder = small(model, make_documents(3))
    assert {"zebra", "##zz"} & MyBertTokenizer.from_pretrained(folder).get_vocab().keys() == {"zebra"}


@pytest.mark.parametrize("word", ["zebrabarrel", "Zébrabarrel"])
def test_words_of_add_tokens_stay(word, small, tmp_path):
    model = save("MyBertModel", tmp_path / "model")
    tokenizer = MyBertTokenizer.from_pretrained(model)
    tokenizer.add_tokens([word])
    bert = modeling_mybert.MyBertModel.from_pretrained(model)
    bert.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    bert.save_pretrained(model)
    tokenizer.save_pretrained(model)
    (tmp_path / "model" / "vocab.txt").unlink(missing_ok=True)
    folder = small(model, ["the oil", *["in and"] * 16, "in zebrabarrel [SEP] and"])
    trimmed = MyBertTokenizer.from_pretrained(folder)
    assert trimmed.tokenize("in zebrabarrel [SEP]") == ["in", "zebrabarrel", "[SEP]"]
    rows = modeling_mybert.MyBertModel.from_pretrained(folder).get_input_embeddings().weight
    old = bert.get_input_embeddings().weight
    assert torch.equal(rows[trimmed(word).input_ids[1]], old[tokenizer(word).input_ids[1]])


@pytest.mark.parametrize(
    ("task", "row"),
    [
        ("text-classification", {"sentence1": "the tanker", "sentence2": "a barrel", "label": "a"}),
        ("token-classification", {"tokens": ["the", "tanker", "barrel"], "tags": ["O", "O", "O"]}),
        ("question-answering", {"id": "1", "question": "tanker ?", "context": "the barrel", "answers": {}}),
        ("multiple-choice", {"context": "the tanker", "choices": ["barrel", None], "label": 0}),
    ],
)
def test_every_text_of_the_rows_of_a_task_can_still_be_read(task, row, tmp_path):
    model = save("MyBertModel", tmp_path / "model")
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    rows = str(tmp_path / "rows.jsonl")
    folder = trim(TrimSettings(model=model, output=str(tmp_path / "small"), task_data=rows, task=task))
    vocabulary = MyBertTokenizer.from_pretrained(folder).get_vocab()
    assert {"the", "tanker", "barrel"} <= vocabulary.keys()
    assert not {"zebra", "oil"} & vocabulary.keys()
    assert json.loads((folder / "manifest.json").read_text())["inputs"].keys() == {"model", "task_data-0"}
