"""`mybert score`: lines, minimal pairs and masked words."""

import math

import pytest
from json_files import read_lines, write_lines

import mybert
from mybert import Scorer


def test_each_line_has_the_scores_of_its_text_and_the_table_those_of_the_corpus(folders, tmp_path):
    texts = ["The cat sat.", "Dogs ran away quickly!", "東京 is big"]
    rows = [{"text": text, "id": number, "line": "mine"} for number, text in enumerate(texts)]
    write_lines(tmp_path / "texts.jsonl", rows)
    result = mybert.score(folders["mybert"], tmp_path / "texts.jsonl", output=tmp_path / "scores.jsonl", device="cpu")
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


def test_pairs_are_correct_when_the_first_text_is_more_probable(folders, tmp_path):
    scorer = Scorer(folders["mybert"], device="cpu")
    texts = ["The cat sat.", "The cat zebra.", "Dogs ran.", "Dogs running is."]
    scores = [score.log_probability for score in scorer.texts(texts, within_word=True)]
    order = (0, 1) if scores[0] > scores[1] else (1, 0)
    (tmp_path / "pairs.csv").write_text(
        f"kind,good,bad\na,{texts[order[0]]},{texts[order[1]]}\nb,{texts[order[1]]},{texts[order[0]]}\n"
        f"c,{texts[2]},{texts[2]}\n"
    )
    result = mybert.score(
        folders["mybert"],
        tmp_path / "pairs.csv",
        pairs="good,bad",
        masking="within-word",
        output=tmp_path / "scores.jsonl",
        device="cpu",
    )
    found = read_lines(result.path)
    assert [line["correct"] for line in found] == [True, False, False]  # a tie is not correct
    assert [line["kind"] for line in found] == ["a", "b", "c"]
    assert found[0]["good_log_probability"] == pytest.approx(scores[order[0]], rel=1e-4)
    assert found[0]["bad_log_probability"] == pytest.approx(scores[order[1]], rel=1e-4)
    assert result.metrics["accuracy"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("good", "bad", "kept"),
    [
        ("source", "correct", ("input_source", "input_correct")),
        ("a", "a_log_probability", ("a", "input_a_log_probability")),
    ],
)
def test_texts_of_pairs_keep_their_columns_whatever_their_names(good, bad, kept, folders, tmp_path):
    (tmp_path / "pairs.csv").write_text(f"{good},{bad}\nDogs ran.,Dogs running is.\n")
    names = {"pairs": f"{good},{bad}", "output": tmp_path / "scores.jsonl", "device": "cpu"}
    (line,) = read_lines(mybert.score(folders["mybert"], tmp_path / "pairs.csv", **names).path)
    assert [line[name] for name in kept] == ["Dogs ran.", "Dogs running is."]
    assert line["source"].endswith("pairs.csv")
    assert line["correct"] == (line[f"{good}_log_probability"] > line[f"{bad}_log_probability"])


def test_masked_words_of_a_corpus_give_accuracy_and_bits_per_character(folders, tmp_path, monkeypatch):
    monkeypatch.setattr("mybert.scoring.run._TEXTS_AT_ONCE", 1)  # text numbers go on over batches
    texts = [f"some words of text number {n} are here to be masked by a hash" for n in range(5)]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    result = mybert.score(
        folders["stock"], tmp_path / "texts.txt", masking="whole-word", output=tmp_path / "s.jsonl", device="cpu"
    )
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


def test_texts_without_tokens_are_skipped_and_counted(folders, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "one"}\n{"text": ""}\n')
    result = mybert.score(
        folders["stock"], tmp_path / "in.jsonl", errors="skip", output=tmp_path / "out.jsonl", device="cpu"
    )
    assert [line["text"] for line in read_lines(result.path)] == ["one"]
    assert result.manifest["counts"]["skipped"] == {"empty text": 1}
