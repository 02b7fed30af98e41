"""The functions of the page for each head: from the user's input to the output that is shown."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from mybert.common.errors import UserError
from mybert.common.text_windows import encode_pairs
from mybert.demo.examples import CHARACTERS, EXAMPLES, recorded_examples, recorded_samples
from mybert.explanation.explainer import Explainer
from mybert.explanation.similarity import SimilarityPredictor, is_encoder
from mybert.inference.checkpoint import Checkpoint, open_checkpoint
from mybert.inference.checkpoint_tokenizer import trained_tokens
from mybert.inference.predictor import Predictor
from mybert.retrieval.index import Index
from mybert.retrieval.settings import is_index
from mybert.tasks.settings import PredictorSettings

Marked = list[tuple[str, Any]]
"""Parts of a text, each with a label, a number from -1 to 1, None, or TITLE."""
TITLE = True  # the part is the title of the text below it

_TOP = 8  # words for a mask
_FOUND, _MARKED, _WORDS = 5, 0.6, 8  # passages of a search, colour of their words, words of an example
_WORDS_SHOWN = "Words: blue raises {}, orange lowers it"  # one line of a phone


@dataclass(frozen=True)
class Answer:
    """What the page shows of a prediction.

    Attributes:
        result: name → probability, or a text.
        marked: a text in parts.
        rows: of a table of details.
    """

    result: Mapping[str, float] | str = ""
    marked: Marked | None = None
    rows: Sequence[Sequence[Any]] = ()


@dataclass(frozen=True)
class Head:
    """One tab of the page. Heads with one title and equal fields are shown side by side.

    Attributes:
        title: of the tab.
        fields: name of each text field → number of its lines.
        answer: from the texts of the fields to an `Answer`.
        result, marked: titles of these parts of an answer; empty if it lacks them.
        columns: of the table of an answer; empty if it has none.
        examples: texts of the fields.
        source: makes the predictions of files or the vectors of a search.
        columns_of_files: of a file whose rows are answered one by one, one for each field; empty with a `source`.
        labels: of parts of a text; their order decides on their colours.
        action: name of the button.
    """

    title: str
    fields: Mapping[str, int]
    answer: Callable[..., Answer]
    result: str = ""
    marked: str = ""
    columns: Sequence[str] = ()
    examples: Sequence[Sequence[str]] = ()
    source: Predictor | None = None
    columns_of_files: Sequence[str] = ()
    labels: Sequence[str] = ()
    action: str = "Predict"


def heads_of(name: str, device: str = "auto") -> list[Head]:
    """The tabs of an index, or a checkpoint: of its task, or of the heads of a pretrained model and of its encoder."""
    if is_index(name):
        return [_index(Index(name, device=device))]
    settings = PredictorSettings(model=name, device=device)
    if not is_encoder(name):
        predictor = Predictor(settings)
        return [_TASKS[predictor.task.name](predictor, recorded_examples(name, predictor))]
    checkpoint = open_checkpoint(name, device=device, dtype="float32")
    predictor = SimilarityPredictor(settings, checkpoint)
    search = Head("Search", {"Query": 1}, lambda query: Answer(), source=predictor)  # the page builds it from `source`
    return [*_pretrained(checkpoint, recorded_samples(name)), _similarity(predictor), search]


def _index(index: Index) -> Head:
    """A search in an index."""

    def answer(query: str) -> Answer:
        marked: Marked = []
        hits = index.search(query, _FOUND)
        for number, hit in enumerate(hits, 1):
            spans = [(start, end, _MARKED) for start, end in hit.highlights]
            marked += [(f"{number}. {hit.title or hit.id}", TITLE), *parts(hit.text, spans)]
        rows = [(round(hit.score, 4), hit.id, f"{hit.start}-{hit.end}", hit.text[:CHARACTERS]) for hit in hits]
        return Answer(marked=marked or [("nothing found", None)], rows=rows)

    columns, title = ("score", "document", "characters", "passage"), "Passages, with the words of the query"
    examples = [[hit.title or " ".join(hit.text.split()[:_WORDS])] for hit in index.sample(EXAMPLES)]
    return Head(  # "Search" is the tab of an encoder, which searches a file
        *("Search documents", {"Query": 1}, answer), marked=title, columns=columns, examples=examples, action="Search"
    )


# Pretrained models


def _pretrained(checkpoint: Checkpoint, samples: Mapping[str, list[dict[str, str]]]) -> list[Head]:
    heads, kind = [], type(checkpoint.model).__name__.removeprefix("MyBertFor")
    if kind in ("PreTraining", "MaskedLM"):
        mask = checkpoint.tokenizer.mask_token
        words = [[f"{word['before']} {mask} {word['after']}".strip()] for word in samples.get("words", ())]
        examples = words or [[f"The {mask} is in the house."]]
        fill, fields = partial(_fill_masks, checkpoint), {f"Text with {mask}": 3}
        columns = ("mask", "word", "probability")
        titles = "First mask", "Text with the most probable words"
        heads.append(Head("Masked words", fields, fill, *titles, columns, examples, columns_of_files=("text",)))
    if kind in ("PreTraining", "NextSentencePrediction"):
        examples = [[pair["a"], pair["b"]] for pair in samples.get("pairs", ())]
        examples += [["The door was open.", "He went into the house."], ["The door was open.", "Seven is a number."]]
        fields, follows = {"First text": 3, "Second text": 3}, partial(_next_sentence, checkpoint)
        options: dict[str, Any] = {"examples": examples[:EXAMPLES], "columns_of_files": ("text", "text_pair")}
        heads.append(Head("Next sentence", fields, follows, "Second text", **options))
    return heads


@torch.inference_mode()
def _fill_masks(checkpoint: Checkpoint, text: str) -> Answer:
    """The most probable words for each [MASK]."""
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    length = trained_tokens(model.config, tokenizer)
    inputs = tokenizer(text, truncation=True, max_length=length, return_tensors="pt").to(model.device)
    states = model.bert(**inputs).last_hidden_state[inputs["input_ids"] == tokenizer.mask_token_id]
    if not len(states):
        mask = tokenizer.mask_token
        raise UserError(f"write {mask} in place of the words to predict, in the first {length} tokens")
    top = model.cls.predictions(states).float().softmax(-1).topk(min(_TOP, model.config.vocab_size))
    best = zip(map(tokenizer.convert_ids_to_tokens, top.indices.tolist()), top.values.tolist(), strict=True)
    guesses = [dict(zip(words, probabilities, strict=True)) for words, probabilities in best]
    rows = [(mask, word, round(p, 4)) for mask, guess in enumerate(guesses, 1) for word, p in guess.items()]
    return Answer(guesses[0], _filled(text, tokenizer.mask_token, guesses), rows)


def _filled(text: str, mask: str, guesses: Sequence[Mapping[str, float]]) -> Marked:
    """The text with the most probable word in place of each mask, marked with its probability."""
    first, *others = text.split(mask)
    best = [next(iter(guess.items())) for guess in guesses]
    words = [(word, f"{share:.0%}") for word, share in best] + [(mask, None)] * (len(others) - len(best))  # cut off
    marked: Marked = [(first, None)]
    for word, text in zip(words, others, strict=False):
        marked += [word, (text, None)]
    return [part for part in marked if part[0]]


@torch.inference_mode()
def _next_sentence(checkpoint: Checkpoint, first: str, second: str) -> Answer:
    """Whether the second text follows the first one."""
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    length = trained_tokens(model.config, tokenizer)
    inputs = encode_pairs([first], [second], tokenizer, length).convert_to_tensors("pt")
    pooled = model.bert(**inputs.to(model.device)).pooler_output
    follows = model.cls.seq_relationship(pooled).float().softmax(-1)[0, 0].item()
    return Answer({"follows the first": follows, "comes from elsewhere": 1 - follows})


# Encoders


def _similarity(predictor: SimilarityPredictor) -> Head:
    explainer = Explainer(predictor)

    def answer(first: str, second: str) -> Answer:
        prediction: Any = explainer((first, second))
        marked = [part for one in prediction["explanations"] for part in [*coloured(prediction, one), ("\n", None)]]
        rows = [row for one in prediction["explanations"] for row in values(one)]
        return Answer(f"{prediction['similarity']:.3f}", marked, rows)

    fields, columns = {"First text": 2, "Second text": 2}, ("word", "value")
    examples = [["A man plays the guitar.", "Someone is making music."]]
    return Head(
        "Similarity", fields, answer, "Cosine similarity", _WORDS_SHOWN.format("the similarity"), columns, examples
    )


# Tasks


def _classes(predictor: Predictor, examples: list[list[str]]) -> Head:
    explainer, inputs = Explainer(predictor), predictor.task.trained_inputs or ("text",)

    def answer(*texts: str) -> Answer:
        prediction: Any = explainer(texts)
        one = of_all_windows(prediction["explanations"])
        result = prediction["scores"] if "scores" in prediction else f"{prediction['score']:.3f}"
        return Answer(result, coloured(prediction, one), values(one))

    names = {"text": "Text", "text_pair": "Second text"}
    title = "Number" if predictor.task.config.problem_type == "regression" else "Labels"
    fields = {names[role]: 4 for role in inputs}
    marked = _WORDS_SHOWN.format("the first label" if title == "Labels" else "the number")
    return Head(
        "Classify" if title == "Labels" else "Rate",
        fields,
        answer,
        title,
        marked,
        ("word", "value"),
        examples or [["a great film"] * len(fields)],
        predictor,
    )


def _tags(predictor: Predictor, examples: list[list[str]]) -> Head:
    def answer(text: str) -> Answer:
        prediction: Any = predictor(text)
        if "entities" in prediction:
            spans = [(e["start"], e["end"], e["type"], e["score"]) for e in prediction["entities"]]
        else:
            triples = zip(prediction["offsets"], prediction["tags"], prediction["scores"], strict=True)
            spans = [(*place, tag, score) for place, tag, score in triples]
        rows = [(text[start:end], kind, round(score, 4)) for start, end, kind, score in spans]
        unit = "entity" if "entities" in prediction else "word"
        units = {"entity": "entities", "word": "words"}[unit] if len(spans) != 1 else unit
        return Answer(f"{len(spans) or 'no'} {units}", parts(text, [span[:3] for span in spans]), rows)

    examples = examples or [["Ann lives in Rome."]]
    columns = ("text", "label", "probability")
    names = {name.removeprefix("B-") for name in predictor.task.id2label.values() if name[:2] != "I-"}
    labels = sorted(names - {"O"})
    return Head("Tag", {"Text": 4}, answer, "Found", "Labels", columns, examples, predictor, labels=labels)


def _answers(predictor: Predictor, examples: list[list[str]]) -> Head:
    def answer(question: str, context: str) -> Answer:
        prediction: Any = predictor((question, context))
        spans = [(prediction["start"], prediction["end"], "answer")] if prediction["answer"] else []
        rows = [(span["answer"], round(span["score"], 3)) for span in prediction["n_best"]]
        return Answer(prediction["answer"] or "no answer", parts(context, spans), rows)

    examples = examples or [["Who wrote the song?", "The song was written by Ann in Rome."]]
    fields, columns = {"Question": 1, "Context": 8}, ("candidate", "score")
    return Head("Answer", fields, answer, "Answer", "Place in the context", columns, examples, predictor)


def _choices(predictor: Predictor, examples: list[list[str]]) -> Head:
    def answer(context: str, choices: str) -> Answer:
        lines = [line for line in choices.split("\n") if line.strip()]
        prediction: Any = predictor({"context": context, "choices": lines})
        return Answer(dict(zip(lines, prediction["scores"], strict=True)))

    examples = examples or [["The door was open.", "He went in.\nSeven is a number."]]
    fields = {"Context": 3, "Choices, one per line": 4}
    return Head("Choose", fields, answer, "Choices", examples=examples, source=predictor)


_TASKS: dict[str, Callable[[Predictor, list[list[str]]], Head]] = {
    "text-classification": _classes,
    "token-classification": _tags,
    "question-answering": _answers,
    "multiple-choice": _choices,
}


# Parts of answers


def coloured(prediction: Mapping[str, Any], one: Mapping[str, Any]) -> Marked:
    """The texts of an explanation; each word has its value relative to the largest one."""
    largest = max((abs(word["attribution"]) for word in one["words"]), default=1.0) or 1.0
    marked: Marked = []
    for column, words in itertools.groupby(one["words"], key=lambda word: word["column"]):
        spans = [(word["start"], word["end"], round(word["attribution"] / largest, 3)) for word in words]
        marked += [*([("\n", None)] if marked else []), *parts(prediction["texts"][column], spans)]
    return marked


def of_all_windows(explanations: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The words of the first target in all windows of a text; a word that two windows read has its mean value."""
    words: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for one in explanations:
        if one["target"] == explanations[0]["target"]:
            for word in one["words"]:
                words.setdefault((word["column"], word["start"]), []).append(word)
    order = list(dict.fromkeys(column for column, _ in words))
    merged = []
    for key in sorted(words, key=lambda key: (order.index(key[0]), key[1])):
        longest = max(words[key], key=lambda word: word["end"])  # the end of a window may cut a word
        merged.append({**longest, "attribution": sum(w["attribution"] for w in words[key]) / len(words[key])})
    return {"words": merged}


def values(one: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Words and values, the largest first."""
    words = sorted(one["words"], key=lambda word: -abs(word["attribution"]))
    return [(word["text"], round(word["attribution"], 3)) for word in words]


def parts(text: str, spans: Sequence[tuple[int, int, Any]]) -> Marked:
    """A text in parts; the spans are ascending and do not overlap."""
    marked, end = [], 0
    for start, stop, label in spans:
        if start >= end:
            marked += [(text[end:start], None), (text[start:stop], label)]
            end = stop
    return [part for part in [*marked, (text[end:], None)] if part[0]]
