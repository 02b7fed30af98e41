"""`mybert score`: lines, minimal pairs and masked words."""

import json
import math

import pytest
from json_files import read_lines

import mybert
from mybert import Scorer


@pytest.fixture
def scored(folders, tmp_path):
    """A function from the name and content of a file, and settings, to the result of `mybert score`."""

    def run(name: str, content: str, **settings):
        (tmp_path / name).write_text(content, encoding="utf-8")
        options = {"output": tmp_path / "scores.jsonl", "device": "cpu"}
        return mybert.score(folders["mybert"], tmp_path / name, **options, **settings)

    return run


def test_each_line_has_the_scores_of_its_text_and_the_table_those_of_the_corpus(folders, scored):
    texts = ["The cat sat.", "Dogs ran away quickly!", "東京 is big"]
    rows = [{"text": text, "id": number, "line": "mine"} for number, text in enumerate(texts)]
    result = scored("texts.jsonl", "\n".join(map(json.dumps, rows)))
    expected = Scorer(folders["mybert"], device="cpu").texts(texts)
    found = read_lines(result.path)
    for number, (line, score) in enumerate(zip(found, expected, strict=True)):
        places = line["text_number"], line["line"], line["input_line"], line["id"]
        assert places == (number, number + 1, "mine", number)
        assert line["text"] == texts[number]
        assert line["tokens"] == score.tokens
        assert line["log_probability"] == pytest.approx(score.log_probability, rel=1e-5)
        assert sum(line["token_log_probabilities"]) == pytest.approx(line["log_probability"], abs=1e-4)
        assert line["bits_per_character"] == pytest.approx(
            -line["log_probability"] / math.log(2) / len(texts[number]), rel=1e-4
        )
    total, tokens = sum(line["log_probability"] for line in found), sum(len(line["tokens"]) for line in found)
    assert result.metrics["perplexity"] == pytest.approx(math.exp(-total / tokens), rel=1e-4)
    assert result.metrics["bits_per_character"] == pytest.approx(-total / math.log(2) / sum(map(len, texts)), rel=1e-4)


def test_pairs_are_correct_when_the_first_text_is_more_probable(folders, scored):
    texts = ["The cat sat.", "The cat zebra.", "Dogs ran."]
    scores = Scorer(folders["mybert"], device="cpu").texts(texts, within_word=True)
    expected = {text: score.log_probability for text, score in zip(texts, scores, strict=True)}
    worse, better = sorted(texts[:2], key=expected.get)
    rows = f"kind,good,bad\na,{better},{worse}\nb,{worse},{better}\nc,{texts[2]},{texts[2]}\n"
    result = scored("pairs.csv", rows, pairs="good,bad", masking="within-word")
    found = read_lines(result.path)
    assert [line["correct"] for line in found] == [True, False, False]  # a tie is not correct
    assert [line["kind"] for line in found] == ["a", "b", "c"]
    assert found[0]["good_log_probability"] == pytest.approx(expected[better], rel=1e-4)
    assert found[0]["bad_log_probability"] == pytest.approx(expected[worse], rel=1e-4)
    assert result.metrics["accuracy"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("good", "bad", "kept"),
    [
        ("source", "correct", ("input_source", "input_correct")),
        ("a", "a_log_probability", ("a", "input_a_log_probability")),
    ],
)
def test_texts_of_pairs_keep_their_columns_whatever_their_names(good, bad, kept, scored):
    result = scored("pairs.csv", f"{good},{bad}\nDogs ran.,Dogs running is.\n", pairs=f"{good},{bad}")
    (line,) = read_lines(result.path)
    assert [line[name] for name in kept] == ["Dogs ran.", "Dogs running is."]
    assert line["source"].endswith("pairs.csv")
    assert line["correct"] == (line[f"{good}_log_probability"] > line[f"{bad}_log_probability"])


def test_masked_words_of_a_corpus_give_accuracy_and_bits_per_character(folders, scored, monkeypatch):
    monkeypatch.setattr("mybert.scoring.run._TEXTS_AT_ONCE", 1)  # text numbers go on over batches
    texts = [f"some words of text number {n} are here to be masked by a hash" for n in range(5)]
    result = scored("texts.txt", "\n".join(texts), masking="whole-word")
    expected = Scorer(folders["stock"], device="cpu").masked_words(texts)
    found = read_lines(result.path)
    assert [line["words"] for line in found] == [score.words for score in expected]
    words = sum(len(score.words) for score in expected)
    assert words > 0
    assert result.manifest["counts"]["words"] == words
    assert result.metrics["accuracy"] == sum(int(score.correct.sum()) for score in expected) / words
    nats = -sum(score.log_probability for score in expected)
    characters = sum(score.characters for score in expected)
    assert result.metrics["bits_per_character"] == pytest.approx(nats / math.log(2) / characters, rel=1e-5)


def test_texts_without_tokens_are_skipped_and_counted(scored):
    result = scored("in.jsonl", '{"text": "one"}\n{"text": ""}\n', errors="skip")
    assert [line["text"] for line in read_lines(result.path)] == ["one"]
    assert result.manifest["counts"]["skipped"] == {"empty text": 1}
