"""token-classification: CoNLL files, annotated texts, windows and training."""

import functools
import json
import random

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from json_files import read_lines
from new_tasks import task_of
from trained_runs import read_results

from modeling_mybert import MyBertConfig
from modeling_mybert.entities_mybert import read_tags
from modeling_mybert.words_mybert import WordSplitter
from mybert import cli
from mybert.inference.predictor import Predictor
from mybert.rows.annotations import words_and_tags
from mybert.tasks.entities import joined, tag_differences
from mybert.tasks.reading import read_split
from mybert.tasks.token_classification import TokenClassification
from mybert.tasks.word_tokens import window_words
from tokenization import MyBertTokenizer

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
task = functools.partial(task_of, "token-classification")


def fitted(rows: list[dict], **settings) -> tuple[TokenClassification, Dataset]:
    dataset = Dataset.from_list(rows)
    return task(**settings).fitted(dataset), dataset


@given(st.lists(st.integers(0, 1), max_size=80), st.integers(1, 20), st.booleans(), st.data())
def test_each_word_is_predicted_where_its_first_token_has_most_context(steps, size, all_tokens, data):
    owners, length = np.cumsum(steps, dtype=int).tolist(), len(steps)
    overlap = data.draw(st.integers(0, size - 1))
    windows = list(window_words(owners, size, overlap, all_tokens))
    assert all(end - start == min(size, length) == len(words) for start, end, words in windows)
    for word in set(owners):
        first = owners.index(word)
        showing = [(start, end) for start, end, _ in windows if start <= first < end]

        def poorer_side(bounds, first=first):
            left = first - bounds[0] if bounds[0] else 99
            return min(left, bounds[1] - 1 - first if bounds[1] < length else 99)

        reading = [(start, end, words) for start, end, words in windows if word in words]
        assert len(reading) == 1
        start, end, words = reading[0]
        assert poorer_side((start, end)) == max(map(poorer_side, showing))
        pieces = [p for p in range(start, end) if owners[p] == word]
        assert [start + i for i, w in enumerate(words) if w == word] == (pieces if all_tokens else [first])


def test_the_first_token_or_all_tokens_of_a_word_are_labelled(tiny_checkpoint):
    tokenizer = MyBertTokenizer.from_pretrained(tiny_checkpoint)
    rows = [{"tokens": ["the", "cat", "\u200d"], "tags": ["O", "B-PER", "I-PER"]}]
    made, dataset = fitted(rows)
    feature = made.features(dataset, tokenizer, training=True)[0]
    pieces = ["[CLS]", "the", "c", "##a", "##t", "[UNK]", "[SEP]"]  # a word without tokens has a tag too
    assert tokenizer.convert_ids_to_tokens(feature["input_ids"]) == pieces
    assert feature["labels"] == [-100, 0, 1, -100, -100, 2, -100]
    made, dataset = fitted(rows, label_all_tokens=True)
    assert made.features(dataset, tokenizer, training=True)[0]["labels"] == [-100, 0, 1, 1, 1, 2, -100]


def test_a_long_sentence_is_split_into_windows_without_losing_a_word(tiny_checkpoint):
    tokenizer = MyBertTokenizer.from_pretrained(tiny_checkpoint)
    draw = random.Random(1)
    rows = [{"tokens": ["the"] * n, "tags": draw.choices(TAGS, k=n)} for n in (50, 3)]
    made, dataset = fitted(rows, max_length=16)
    features = made.features(dataset, tokenizer, training=False)
    assert features["row"][:] == sorted(features["row"]) and max(map(len, features["input_ids"])) == 16
    logits = [np.eye(5)[np.maximum(labels, 0)] * (np.array(labels) >= 0)[:, None] for labels in features["labels"]]
    predicted = made.decode(logits, features, dataset)
    assert [one["tags"] for one in predicted] == [row["tags"] for row in rows]
    assert made.errors(predicted, made.references(dataset)) == [0, 0]
    assert made.score(predicted, made.references(dataset))["accuracy"] == 1


TEXT = "Zoë (of 東京) met O'Neil-Smith, in New York's Hall."
SPANS = [(0, 3, "PER"), (8, 10, "LOC"), (16, 28, "PER"), (33, 41, "LOC")]
ANNOTATED = {
    "spaCy": {"text": TEXT, "entities": [list(span) for span in SPANS]},
    "names with capitals": {"Text": TEXT, "Entities": [list(span) for span in SPANS]},
    "spaCy's to_json": {
        "text": TEXT,
        "ents": [{"start": a, "end": b, "label": kind} for a, b, kind in SPANS],
        "tokens": [{"id": 0, "start": 0, "end": 3}],
    },
    "doccano": {"id": 1, "text": TEXT, "label": [list(span) for span in SPANS]},
    "doccano with relations": {
        "text": TEXT,
        "entities": [{"id": 1, "label": kind, "start_offset": a, "end_offset": b} for a, b, kind in SPANS],
        "relations": [],
    },
    "Prodigy": {
        "text": TEXT,
        "_task_hash": 7,
        "tokens": [{"text": "Zoë", "start": 0, "end": 3, "id": 0}],
        "spans": [{"start": a, "end": b, "token_start": 0, "label": kind} for a, b, kind in SPANS],
        "answer": "accept",
    },
    "Label Studio": {
        "id": 1,
        "data": {"text": TEXT, "source": 7},
        "annotations": [
            {
                "was_cancelled": False,
                "result": [
                    *({"type": "labels", "value": {"start": a, "end": b, "labels": [k]}} for a, b, k in SPANS),
                    {"type": "choices", "value": {"choices": ["good"]}},
                ],
            },
            {"was_cancelled": True, "result": []},
        ],
    },
    "Label Studio's small form": {
        "text": TEXT,
        "label": [{"start": a, "end": b, "text": TEXT[a:b], "labels": [kind]} for a, b, kind in SPANS],
    },
}


@pytest.mark.parametrize("tool", ANNOTATED)
@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_texts_with_spans_of_annotation_tools_are_words_and_tags(tmp_path, tool, suffix):
    rows = [ANNOTATED[tool]] * 2
    path = tmp_path / f"rows.{suffix}"
    path.write_text(json.dumps(rows) if suffix == "json" else "".join(json.dumps(row) + "\n" for row in rows))
    found = read_split(str(path), task())
    assert list(found.given()) == rows
    words = ["Zoë", "(", "of", "東", "京", ")", "met", "O", "'", "Neil", "-", "Smith", ",", "in", "New", "York"]
    tags = ["B-PER", "O", "O", "B-LOC", "I-LOC", "O", "O", "B-PER", *["I-PER"] * 4, "O", "O", "B-LOC", "I-LOC"]
    for row in found.rows:
        assert row["tokens"] == [*words, "'", "s", "Hall", "."]
        assert row["tags"] == [*tags, "O", "O", "O", "O"]
        assert [TEXT[a:b] for a, b in row["offsets"]] == row["tokens"]
    assert task().check_rows(found.rows, training=True) == []


def test_spans_that_end_within_a_word_are_widened_and_counted(write_rows, caplog):
    rows = [
        {"text": "Ada lives in Yorkshire.", "spans": [[0, 3, "PER"], [13, 17, "LOC"]]},
        {"text": "in Rome ", "spans": [[2, 8, "LOC"]]},  # spaces at the ends are not part of a word
    ]
    found = read_split(str(write_rows("rows.jsonl", rows)), task()).rows
    assert found["tags"][:] == [["B-PER", "O", "O", "B-LOC", "O"], ["O", "B-LOC"]]
    assert "1 of 3 spans end within a word and were widened, such as row 1: 'York' to 'Yorkshire'" in caplog.text


@pytest.mark.slow
def test_entities_have_characters_in_rows_of_texts_and_words_in_rows_of_tokens(finetuned, tmp_path, caplog):
    rows = [
        {"body": f"the, {word} {noun}! very bad", "marks": [[5, 6 + len(word) + len(noun), "ART"]]}
        for word in ("good", "fine", "lovely", "great")
        for noun in ("film", "book", "song", "play")
    ]
    words = ("--num-train-epochs", 6, "--columns", "text=body", "spans=marks")
    folder = finetuned("token-classification", rows, *words, validation=rows)
    metrics = read_results(folder)["validation"]["metrics"]
    assert metrics == dict.fromkeys(("precision", "recall", "f1", "strict_f1", "accuracy"), 1)
    assert MyBertConfig.from_pretrained(folder).tag_scheme == "IOB2"
    assert [line["input"] for line in read_lines(folder / "validation/predictions.jsonl")] == rows
    text = "  the,\tfine book! very bad"
    predictor = Predictor(folder, device="cpu")
    found = predictor([text, {"body": text}])
    found += predictor([{"tokens": found[0]["tokens"]}])
    other = Predictor(folder, device="cpu", columns=["tokens=w"])
    alone = [other(text), other({"w": found[0]["tokens"]})]
    assert [(one["unit"], one["tags"]) for one in alone] == [(one["unit"], one["tags"]) for one in found[1:]]
    assert [one["unit"] for one in found] == ["characters", "characters", "words"] and "offsets" not in found[2]
    assert found[0] == found[1] and found[0]["tags"] == found[2]["tags"]
    (entity,) = found[0]["entities"]
    assert text[entity["start"] : entity["end"]] == entity["text"] == "fine book"
    (entity,) = found[2]["entities"]
    assert {**entity, "score": 0} == {"type": "ART", "start": 2, "end": 4, "text": "fine book", "score": 0}
    assert entity["score"] == pytest.approx(np.mean(found[2]["scores"][2:4]))
    assert [text[a:b] for a, b in found[0]["offsets"]] == found[0]["tokens"] and "ends in a tag" not in caplog.text
    (tmp_path / "rows.txt").write_text("the O\nfine B-ART\nfilm I-ART\n\n")  # a CoNLL file with the suffix .txt
    assert cli.main(["predict", str(folder), str(tmp_path / "rows.txt"), "--device", "cpu"]) == 0
    assert caplog.text.count("ends in a tag, which is read as a word") == 1


@pytest.mark.parametrize(
    ("true", "predicted", "lines"),
    [
        ("O O O O O O B-LOC O", "O O O O O O B-ORG O", ["… w1 w2 w3 w4 w5 [w6: LOC → predicted ORG] w7"]),
        ("B-LOC I-LOC O O O O O O", "O O O O O O O O", ["[w0 w1: LOC → missed] w2 w3 w4 w5 w6 …"]),
        ("O O O O O O O O", "O O O O O O O B-PER", ["… w2 w3 w4 w5 w6 [w7: spurious PER]"]),
        ("B-X I-X O O O O O O", "O B-X O O O O O O", ['[w0 w1: X → predicted "w1" X] w2 w3 w4 w5 w6 …']),
        ("B-X O O B-X O O O O", "B-Y O O B-X O B-X O O", ["[w0: X → predicted Y]", "[w5: spurious X]"]),
        ("B-X O O O O O O O", "B-X I-Z O O O O O O", ["w0 [w1: spurious Z] w2 w3 w4 w5 w6 …"]),
        ("B-X O O O O O O O", "I-X O O O O O O O", ["[w0: B-X → predicted I-X] w1 w2 w3 w4 w5 …"]),
    ],
)
def test_differences_of_tags_are_shown_as_spans_in_their_context(true, predicted, lines):
    words = [f"w{i}" for i in range(8)]
    marks = read_tags(dict.fromkeys([*true.split(), *predicted.split()], 1)).marks
    found = tag_differences(*joined(words), predicted.split(), true.split(), marks)
    assert len(found) == len(lines) and all(line in one for line, one in zip(lines, found, strict=True))
    tags = tag_differences(*joined(["a", "b"]), ["NOUN", "VERB"], ["NOUN", "ADJ"], None)
    assert tags == ["a [b: ADJ → predicted VERB]"]


def test_errors_of_long_sentences_show_their_wrong_spans(finetuned):
    tokens, tags = ["the"] * 90 + ["good", "film"] + ["the"] * 90, ["O"] * 90 + ["B-ART", "I-ART"] + ["O"] * 90
    rows = [{"tokens": tokens, "tags": tags}]
    folder = finetuned("token-classification", rows, "--learning-rate", "1e-9", "--max-steps", 1, validation=rows)
    text = (folder / "validation/errors.txt").read_text()
    assert "line 1, error" in text and "tokens:" not in text
    assert any("[" in line and "ART" in line and "the the" in line for line in text.splitlines())


@pytest.mark.parametrize(
    ("suffix", "separator"), [("csv", ","), ("csv", ";"), ("csv", "\t"), ("tsv", "\t"), ("tsv", ";")]
)
def test_a_table_with_a_header_is_no_conll_file(tmp_path, suffix, separator):
    new, path = task(), tmp_path / f"rows.{suffix}"
    words = pd.DataFrame({"tokens": [["Ann", "sings"], ["Bo"]], "tags": [["B-PER", "O"], ["B-PER"]]})
    spans = pd.DataFrame(
        {"text": ["Ann sings", "Bo"], "spans": [[[0, 3, "PER"]], [{"start": 0, "end": 2, "label": "PER"}]]}
    )
    texts = spans.assign(spans=['[{"start": 0, "end": 3, "label": "PER", "note": null}]', "[[0, 2, 'PER']]"])
    for frame in (words, spans, texts):
        frame.to_csv(path, sep=separator, index=False)
        rows = read_split(str(path), new).rows
        assert list(rows["tokens"]) == [["Ann", "sings"], ["Bo"]] and list(rows["tags"]) == [["B-PER", "O"], ["B-PER"]]
    spans[["text"]].to_csv(path, sep=separator, index=False)
    assert list(read_split(str(path), new, labelled=False).rows["text"]) == ["Ann sings", "Bo"]
    path.write_text("Ann\tB-PER\nsings\tO\n")
    assert list(read_split(str(path), new).rows["tokens"]) == [["Ann", "sings"]]
    trained, numbered = new.fitted(read_split(str(path), new).rows), spans[["text"]].assign(id=[1, 2])
    numbered.to_csv(path, sep=separator, index=False)  # a column that is no tag
    assert list(read_split(str(path), trained, labelled=False).rows["text"]) == ["Ann sings", "Bo"]
    path.write_text("text\tB-PER\nBo\tO\n")
    assert list(read_split(str(path), trained).rows["tokens"]) == [["text", "Bo"]]


@pytest.mark.parametrize("before", ["", "sep=;\n"])
def test_lines_before_the_header_of_a_table_are_skipped(tmp_path, before):
    path = tmp_path / "rows.csv"
    path.write_text(f"\n{before}text;spans\nAnn sings;[]\n")
    assert list(read_split(str(path), task()).rows["tokens"]) == [["Ann", "sings"]]


def test_an_annotation_whose_own_text_differs_is_a_problem():
    rows = {"text": ["😀😀😀😀 Bob met Ann"], "spans": [[{"start": 10, "end": 13, "text": "Bob", "label": "PER"}]]}
    (problem,) = words_and_tags(Dataset.from_dict(rows), WordSplitter())["problem"]
    assert "'et '" in problem and "'Bob'" in problem
    for start in (5, 9):  # characters, and UTF-16 units
        rows["spans"][0][0] |= {"start": start, "end": start + 3}
        (row,) = words_and_tags(Dataset.from_dict(rows), WordSplitter())
        assert row["problem"] is None and row["tags"][-3:] == ["B-PER", "O", "O"]


def utf16_row(text: str, *words: str, shown: bool) -> dict:
    """A row whose offsets count UTF-16 units; the spans show their text or do not."""
    starts = [len(text[: text.index(word)].encode("utf-16-le")) // 2 for word in words]
    return {
        "text": text,
        "spans": [
            {"start": start, "end": start + len(word), "label": "PER"} | ({"text": word} if shown else {})
            for start, word in zip(starts, words, strict=True)
        ],
    }


def test_offsets_in_utf16_units_are_converted_where_the_annotation_shows_its_text():
    """JavaScript counts an emoji as two."""
    row = utf16_row("😀 Ada met 👩‍👩‍👧 Bo", "Ada", "Bo", shown=True)
    (row,) = words_and_tags(Dataset.from_list([row]), WordSplitter())
    assert row["problem"] is None
    tagged = zip(row["offsets"], row["tags"], strict=True)
    assert [row["text"][start:end] for (start, end), tag in tagged if tag != "O"] == ["Ada", "Bo"]


def test_offsets_without_a_proof_count_characters_and_those_that_no_unit_explains_are_refused():
    spans = [{"start": 1, "end": 4, "label": "PER", "text": "Ada"}]
    rows = [utf16_row("😀abcd", "abcd", shown=False), {"text": "😀 Ada met Bo", "spans": spans}]
    for row, message in zip(
        rows, ("the span 2 to 6 (PER) lies outside the text of 5 characters", "its annotation says 'Ada'"), strict=True
    ):
        (found,) = words_and_tags(Dataset.from_list([row]), WordSplitter())
        assert message in found["problem"]
