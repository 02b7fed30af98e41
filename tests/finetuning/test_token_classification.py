"""token-classification: files in columns, windows, schemes and scores beside seqeval, and a tagger that learns."""

import json
import random
from collections import Counter

import numpy as np
import pytest
import seqeval.metrics
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from seqeval import scheme as schemes

from modeling_mybert import MyBertConfig
from mybert import cli
from mybert.common.errors import UserError
from mybert.finetuning.data.conll import read_columns
from mybert.finetuning.evaluation import entity_scores as entities
from mybert.finetuning.settings import TaskSettings
from mybert.finetuning.tasks.token_classification import TokenClassification, window_words
from tokenization import MyBertTokenizer

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def task(**settings) -> TokenClassification:
    return TokenClassification(TaskSettings(**settings).with_defaults(TokenClassification.defaults), MyBertConfig())


def fitted(rows: list[dict], **settings) -> tuple[TokenClassification, Dataset]:
    made, dataset = task(**settings), Dataset.from_list(rows)
    made.configure(dataset)
    return made, dataset


def test_columns_become_sentences_of_the_first_and_tags_of_the_last(tmp_path):
    path = tmp_path / "train.conll"
    path.write_text("-DOCSTART- -X- O\n\nAda NNP B-PER\nsleeps VBZ O\n\n\nRome NNP B-LOC\n", encoding="utf-8")
    assert read_columns(path).to_list() == [
        {"tokens": ["Ada", "sleeps"], "tags": ["B-PER", "O"]},
        {"tokens": ["Rome"], "tags": ["B-LOC"]},
    ]


def test_words_may_hold_spaces_between_tabs_and_tags_may_be_missing(tmp_path):
    path = tmp_path / "words.tsv"
    path.write_text("New York\tB-LOC\n", encoding="utf-8")
    assert read_columns(path).to_list() == [{"tokens": ["New York"], "tags": ["B-LOC"]}]
    path.write_text("Ada\nsleeps\n", encoding="utf-8")
    assert read_columns(path).to_list() == [{"tokens": ["Ada", "sleeps"]}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"Ada NNP O\n\nsleeps VBZ\n", "line 3: expected 3 columns as in the first line, found 2"),
        (b"Ada\tO\nsleeps\t\n", "line 2: expected 2 columns as in the first line, found 1"),
        (b"Ada O\n\xff O\n", "line 2: not UTF-8"),
    ],
)
def test_a_broken_line_is_named(tmp_path, content, message):
    path = tmp_path / "train.conll"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"train.conll, {message}"):
        read_columns(path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tags": ["O"]}, "2 tokens, but 1 tags"),
        ({"tokens": [], "tags": []}, "the sentence is empty"),
        ({"tokens": ["a", " "]}, "token 2 is missing or empty"),
        ({"tags": ["O", None]}, "token 2 ('b'): the label is missing"),
        ({"tags": ["O", "B-X"]}, "token 2 ('b'): the label 'B-X' is not among the 2 trained on (O, B-PER)"),
    ],
)
def test_a_broken_row_is_named(row, message):
    good = {"tokens": ["a", "b"], "tags": ["B-PER", "O"]}
    made, _ = fitted([good])
    problems = made.check_rows(Dataset.from_list([good, {**good, **row}]), training=False)
    assert problems == [(1, message)]


def test_unknown_tags_are_taken_up_in_training():
    row = {"tokens": ["a"], "tags": ["B-NEW"]}
    assert task().check_rows(Dataset.from_list([row]), training=True) == []


def test_labels_are_sorted_with_o_first():
    made, _ = fitted([{"tokens": ["a", "b", "c"], "tags": ["I-PER", "O", "B-PER"]}])
    assert made.config.id2label == {0: "O", 1: "B-PER", 2: "I-PER"}


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        (["B-PER", "I-PER", "O", "B-PER", "B-PER"], "IOB2"),
        (["I-PER", "I-PER", "B-PER", "O", "I-LOC"], "IOB1"),
        (["B-PER", "I-LOC"], "IOB2"),  # IOB1 has no B- at the beginning, IOB2 no I- there: one of each
        (["S-PER", "O", "B-PER", "E-PER"], "IOBES"),
        (["U-PER", "O", "B-PER", "L-PER"], "BILOU"),
        (["NOUN", "VERB", "O"], None),
        (["O", "O"], None),
    ],
)
def test_the_scheme_is_seen_in_the_tags(tags, scheme):
    assert entities.scheme_of([tags]) == scheme


@pytest.mark.parametrize(("scheme", "begin", "stray"), [("IOB2", "B", "I"), ("IOB1", "I", "B")])
def test_a_stray_tag_costs_its_own_entity_and_no_other(scheme, begin, stray):
    clean = [f"{begin}-PER", "I-PER", "O", f"{begin}-LOC", "O"]
    sentences = [*[clean] * 999, ["O", f"{stray}-LOC", "O"]]
    assert entities.scheme_of(sentences) == scheme
    found = entities.find(sentences, scheme)
    assert found == [{(0, 2, "PER"), (3, 4, "LOC")}] * 999 + [set()]
    kind = {"mode": "strict", "scheme": getattr(schemes, scheme)}
    said = [*sentences[:-1], ["O", f"{begin}-LOC", "O"]]  # right, but the stray tag is no entity: strict mode says so
    scored = entities.score(said, sentences, scheme, np.arange(1000)[None])
    assert scored["precision"] == pytest.approx([1998 / 1999])
    assert scored["precision"] == pytest.approx([seqeval.metrics.precision_score(sentences, said, **kind)])


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2", "IOBES", "BILOU"])
def test_scores_are_those_of_seqeval(scheme):
    draw = random.Random(0)
    prefixes = {"IOBES": "BIES", "BILOU": "BILU"}.get(scheme, "BI")
    names = ["O", *(f"{prefix}-{kind}" for prefix in prefixes for kind in ("PER", "LOC"))]
    true = [draw.choices(names, k=draw.randint(1, 8)) for _ in range(60)]
    said = [[tag if draw.random() < 0.7 else draw.choice(names) for tag in tags] for tags in true]
    samples = np.stack([np.arange(60), np.random.default_rng(0).integers(0, 60, 60)])
    found = entities.score(said, true, scheme, samples)
    for i, sample in enumerate(samples):
        pair = [true[n] for n in sample], [said[n] for n in sample]
        kind = {"mode": "strict", "scheme": getattr(schemes, scheme)}
        for name in ("precision", "recall", "f1"):
            oracle = getattr(seqeval.metrics, f"{name}_score")(*pair, **kind)
            assert found[name][i] == pytest.approx(oracle)
    assert 0 < found["f1"][0] < 1


@given(st.lists(st.integers(0, 1), max_size=80), st.integers(1, 20), st.booleans(), st.data())
def test_each_word_is_read_where_its_first_piece_has_most_context(steps, size, every_piece, data):
    owners, length = np.cumsum(steps, dtype=int).tolist(), len(steps)
    overlap = data.draw(st.integers(0, size - 1))
    windows = list(window_words(owners, size, overlap, every_piece))
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
        assert [start + i for i, w in enumerate(words) if w == word] == (pieces if every_piece else [first])


def test_labels_lie_on_the_first_piece_or_on_all(tiny_checkpoint):
    tokenizer = MyBertTokenizer.from_pretrained(tiny_checkpoint)
    rows = [{"tokens": ["the", "cat", "\u200d"], "tags": ["O", "B-PER", "I-PER"]}]
    made, dataset = fitted(rows)
    feature = made.features(dataset, tokenizer, training=True)[0]
    pieces = ["[CLS]", "the", "c", "##a", "##t", "[UNK]", "[SEP]"]  # a word that the tokenizer drops gets a tag too
    assert tokenizer.convert_ids_to_tokens(feature["input_ids"]) == pieces
    assert feature["labels"] == [-100, 0, 1, -100, -100, 2, -100]
    made, dataset = fitted(rows, label_pieces="all")
    assert made.features(dataset, tokenizer, training=True)[0]["labels"] == [-100, 0, 1, 1, 1, 2, -100]


def test_a_long_sentence_is_windowed_and_loses_no_word(tiny_checkpoint):
    tokenizer = MyBertTokenizer.from_pretrained(tiny_checkpoint)
    draw = random.Random(1)
    rows = [{"tokens": ["the"] * n, "tags": draw.choices(TAGS, k=n)} for n in (50, 3)]
    made, dataset = fitted(rows, max_length=16)
    features = made.features(dataset, tokenizer, training=False)
    assert features["row"][:] == sorted(features["row"]) and max(map(len, features["input_ids"])) == 16
    logits = [np.eye(5)[np.maximum(labels, 0)] * (np.array(labels) >= 0)[:, None] for labels in features["labels"]]
    said = made.decode(logits, features, dataset)
    assert [one["tags"] for one in said] == [row["tags"] for row in rows]
    assert made.errors(said, made.references(dataset)) == [0, 0]
    assert made.score(said, made.references(dataset))["accuracy"] == 1


def test_entities_are_learned_kept_in_the_checkpoint_and_predicted(finetune, tmp_path, capsys, caplog):
    lines = []
    for good in ("good", "fine", "lovely", "great"):
        for noun in ("film", "book", "song", "play"):
            lines += ["the O", f"{good} B-ART", f"{noun} I-ART", "very O", "bad O", ""]
    train = tmp_path / "train.conll"
    train.write_text("\n".join(lines), encoding="utf-8")
    assert finetune("token-classification", "--train", train, "--validation", train, "--num-train-epochs", 6) == 0
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert results["validation"]["metrics"] == {"precision": 1, "recall": 1, "f1": 1, "accuracy": 1}
    assert MyBertConfig.from_pretrained(tmp_path / "out").tag_scheme == "IOB2"
    unlabelled = tmp_path / "rows.jsonl"
    unlabelled.write_text(json.dumps({"tokens": ["the", "fine", "film"]}) + "\n")
    words = (tmp_path / "out", unlabelled, "--output", tmp_path / "said.jsonl", "--device", "cpu")
    assert cli.main(["predict", *map(str, words)]) == 0
    said = json.loads((tmp_path / "said.jsonl").read_text())
    assert said["tags"] == ["O", "B-ART", "I-ART"]
    assert said["entities"] == [{"type": "ART", "start": 1, "end": 3, "text": "fine film"}]
    plain = tmp_path / "rows.txt"
    plain.write_text("the  fine film\n")
    capsys.readouterr()
    assert cli.main(["predict", str(tmp_path / "out"), str(plain), "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out) == said and "ends in a tag" not in caplog.text
    plain.write_text("the O\nfine B-ART\nfilm I-ART\n\n")  # columns, as `finetune` reads any other suffix
    assert cli.main(["predict", str(tmp_path / "out"), str(plain), "--device", "cpu"]) == 0
    assert caplog.text.count("'fine B-ART' ends in a tag, which is read as a word") == 1


def test_parts_of_speech_are_learned_from_all_pieces_and_scored_by_accuracy(finetune, write_rows, tmp_path):
    words = {"the": "DET", "a": "DET", "good": "ADJ", "bad": "ADJ", "film": "NOUN", "cat": "NOUN", "dog": "NOUN"}
    draw = random.Random(0)
    drawn = [draw.choices([*words], k=draw.randint(1, 40)) for _ in range(12)]  # some are longer than the limit
    rows = [{"tokens": tokens, "upos": [words[word] for word in tokens]} for tokens in drawn]
    train = write_rows("train.jsonl", rows)
    more = ("--label-pieces", "all", "--num-train-epochs", 4, "--per-device-train-batch-size", 2)
    assert finetune("token-classification", "--train", train, "--validation", train, *more) == 0
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert results["metric"] == "accuracy"
    assert results["validation"]["metrics"] == {"accuracy": 1}
    assert results["data"]["train"]["balance"] == Counter(tag for row in rows for tag in row["upos"])
    assert MyBertConfig.from_pretrained(tmp_path / "out").tag_scheme is None
    said = [json.loads(line) for line in (tmp_path / "out/validation/predictions.jsonl").read_text().splitlines()]
    assert [one["tags"] for one in said] == [row["upos"] for row in rows]
    assert not any("entities" in one for one in said)


def test_tags_that_no_entity_has_are_said(caplog):
    rows = Dataset.from_list(
        [{"tokens": ["a", "b", "c"], "tags": tags} for tags in (["B-X", "I-X", "O"], ["O", "B-X", "O"])]
    )
    reader = TokenClassification(TaskSettings(), MyBertConfig())
    reader.configure(rows)
    assert not reader.check_rows(rows, training=False) and not caplog.text
    other = Dataset.from_list([{"tokens": ["a", "b", "c"], "tags": ["I-X", "I-X", "O"]}])  # IOB1
    assert not reader.check_rows(other, training=False)
    assert "2 words have a tag of an entity and count as none, since the tags around break IOB2" in caplog.text


def test_blanks_other_than_spaces_and_tabs_are_part_of_a_word(tmp_path):
    (tmp_path / "a.conll").write_text("10\u00a0000  B-N\nfr\u2028x \t O\n\n", encoding="utf-8")
    assert read_columns(tmp_path / "a.conll").to_list() == [
        {"tokens": ["10\u00a0000", "fr\u2028x"], "tags": ["B-N", "O"]}
    ]
