"""What the demo shows equals what transformers, `Predictor` and a brute-force search give."""

import csv
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from json_files import write_lines
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer, BertForPreTraining

from mybert import Embedder, Index, Predictor, UserError, build_index
from mybert.demo.files import answer_file, read_texts
from mybert.demo.heads import heads_of, of_all_windows, parts
from tokenization import MyBertTokenizer

CONTEXT = "Ann sings in Rome. Bert is in the sea."


def head(models, name: str, title: str):
    return next(found for found in heads_of(str(models(name)), "cpu") if found.title == title)


@pytest.fixture(scope="module")
def bert(models):
    folder = models("filler")
    return BertForPreTraining.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


@torch.no_grad()
def test_words_for_masks_and_next_sentences_are_those_of_transformers_bert(models, bert):
    model, tokenizer = bert
    text = "the [MASK] film is [MASK]"
    ids = tokenizer(text, return_tensors="pt")
    expected = model(**ids).prediction_logits[0].softmax(-1)[ids["input_ids"][0] == tokenizer.mask_token_id]
    answer = head(models, "filler", "Masked words").answer(text)
    best = tokenizer.convert_ids_to_tokens(expected[0].topk(8).indices)
    assert list(answer.result) == best and len(answer.rows) == 16
    assert list(answer.result.values()) == pytest.approx(expected[0].topk(8).values.tolist(), abs=1e-5)
    assert answer.rows[8][:2] == (2, tokenizer.convert_ids_to_tokens(int(expected[1].argmax())))
    filled = [answer.rows[0][1], answer.rows[8][1]]
    assert "".join(part for part, _ in answer.marked) == "the {} film is {}".format(*filled)
    assert [part for part, label in answer.marked if label] == filled
    pair = tokenizer("ann sings", "in rome", return_tensors="pt")
    follows = model(**pair).seq_relationship_logits.softmax(-1)[0, 0].item()
    found = head(models, "filler", "Next sentence").answer("ann sings", "in rome").result
    assert found["follows the first"] == pytest.approx(follows, abs=1e-5) and sum(found.values()) == pytest.approx(1)
    with pytest.raises(UserError, match=r"write \[MASK\]"):
        head(models, "filler", "Masked words").answer("no mask")


@pytest.mark.parametrize("name", ["classifier", "multi", "pairs"])
def test_labels_have_the_probabilities_of_the_predictor_and_words_the_whole_text(models, name):
    texts = ["a great film!", "the dull song"][: 1 + (name == "pairs")]
    found = head(models, name, "Classify")
    assert len(found.fields) == len(texts)
    answer = found.answer(*texts)
    assert answer.result == pytest.approx(Predictor(models(name), device="cpu")(tuple(texts))["scores"])
    assert "".join(part for part, _ in answer.marked) == "\n".join(texts)
    assert max(abs(value) for _, value in answer.marked if value is not None) == 1
    assert [abs(value) for _, value in answer.rows] == sorted((abs(value) for _, value in answer.rows), reverse=True)


def test_entities_and_answers_are_marked_at_the_places_of_the_predictor(models):
    text = "Ann sings in Rome the sea"
    expected = Predictor(models("tagger"), device="cpu")(text)["entities"]
    answer = head(models, "tagger", "Tag").answer(text)
    marked = [(part, label) for part, label in answer.marked if label]
    assert expected and marked == [(entity["text"], entity["type"]) for entity in expected]
    assert answer.result.split()[0] == str(len(expected))
    expected = Predictor(models("reader"), device="cpu")(("Who sings?", CONTEXT))
    answer = head(models, "reader", "Answer").answer("Who sings?", CONTEXT)
    assert answer.result == expected["answer"]
    assert [part for part, label in answer.marked if label] == [expected["answer"]]
    assert "".join(part for part, _ in answer.marked) == CONTEXT


def test_numbers_and_choices_are_those_of_the_predictor(models):
    expected = Predictor(models("regression"), device="cpu")("a great film")["score"]
    assert head(models, "regression", "Rate").answer("a great film").result == f"{expected:.3f}"
    row = {"context": "Ann sings", "choices": ["in Rome", "a dull sea"]}
    expected = Predictor(models("chooser"), device="cpu")(row)["scores"]
    assert (
        list(head(models, "chooser", "Choose").answer("Ann sings", "in Rome\n\na dull sea").result.values())
        == expected
    )


def test_examples_are_the_evaluated_rows_that_the_folder_records(models, tmp_path):
    folder = shutil.copytree(models("tagger"), tmp_path / "tagger")
    (folder / "validation").mkdir()
    rows = [
        {"tags": ["O"], "row": 1, "input": {"tokens": ["Ann", str(number)], "tags": ["O", "O"]}} for number in range(9)
    ]
    write_lines(folder / "validation/predictions.jsonl", rows)
    (found,) = heads_of(str(folder), "cpu")
    assert found.examples == [[f"Ann {number}"] for number in range(5)]


def test_examples_have_one_row_of_each_label_before_others(models, tmp_path):
    folder = shutil.copytree(models("classifier"), tmp_path / "classifier")
    (folder / "validation").mkdir()
    labels = ["good"] * 6 + ["bad", "good", "new"]
    rows = [{"reference": label, "input": {"text": f"text {n}"}} for n, label in enumerate(labels)]
    write_lines(folder / "validation/predictions.jsonl", rows)
    (found,) = heads_of(str(folder), "cpu")
    assert found.examples == [["text 0"], ["text 6"], ["text 8"], ["text 1"], ["text 2"]]


@pytest.mark.parametrize("content", ["{", '{"input": 3}\n', "[1]\n", '{"words": [1], "pairs": {}}\n', ""])
def test_damaged_records_give_no_examples(content, models, tmp_path):
    tagger, filler = (shutil.copytree(models(name), tmp_path / name) for name in ("tagger", "filler"))
    (tagger / "validation").mkdir()
    (tagger / "validation/predictions.jsonl").write_text(content)
    (filler / "samples.jsonl").write_text(content)
    (found,) = heads_of(str(tagger), "cpu")
    assert found.examples == [["Ann lives in Rome."]]
    assert heads_of(str(filler), "cpu")[0].examples == [["The [MASK] is in the house."]]


def test_all_windows_of_a_long_text_are_coloured(models):
    text = " ".join(["the great film in rome", "a dull song by ann"] * 6)
    (found,) = heads_of(str(models("windowed")), "cpu")
    marked = found.answer(text).marked
    assert "".join(part for part, _ in marked) == text
    assert [part for part, value in marked if value is not None] == text.split()
    explanations = [
        {"target": "no", "words": [word("text", 0, 3, 1.0), word("text", 4, 6, 2.0)]},
        {"target": "no", "words": [word("text", 4, 9, 4.0), word("text", 10, 12, 6.0)]},
        {"target": "yes", "words": [word("text", 0, 3, 9.0)]},
    ]
    joined = of_all_windows(explanations)["words"]
    assert [(w["start"], w["end"], w["attribution"]) for w in joined] == [(0, 3, 1.0), (4, 9, 3.0), (10, 12, 6.0)]


def word(column: str, start: int, end: int, value: float) -> dict:
    return {"column": column, "start": start, "end": end, "attribution": value, "text": "x" * (end - start)}


def test_masks_are_read_up_to_the_trained_length(models, tmp_path):
    folder = shutil.copytree(models("filler"), tmp_path / "trained")
    MyBertTokenizer.from_pretrained(folder, model_max_length=8).save_pretrained(folder)
    fill = heads_of(str(folder), "cpu")[0].answer
    answer = fill("[MASK] " + "sea " * 10 + "[MASK]")
    assert len(answer.rows) == 8 and answer.marked[-1] == ("[MASK]", None), "the second one is not read"
    with pytest.raises(UserError, match=r"write \[MASK\].* in the first 8 tokens"):
        fill("sea " * 10 + "[MASK]")


def test_a_file_of_rows_has_the_answers_of_the_head(models, tmp_path):
    rows = [("the [MASK] film is [MASK]", "in rome"), ("no mask", "a sea"), ("=a [MASK]", "the sea")]
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "text_pair"), *rows])
    for title in ("Masked words", "Next sentence"):
        found = head(models, "filler", title)
        answer_file(found, str(tmp_path / "rows.csv"), tmp_path / "out.csv")
        with (tmp_path / "out.csv").open(newline="") as file:
            written = list(csv.DictReader(file))
        assert [row["input.text"] for row in written] == [*(text for text, _ in rows[:2]), "'=a [MASK]"]
        if title == "Masked words":
            words = [row[1] for row in found.answer(rows[0][0]).rows[::8]]
            assert written[0]["prediction"] == " ".join(words) and "write [MASK]" in written[1]["error"]
        else:
            probabilities = found.answer(*rows[1]).result
            assert float(written[1]["probability"]) == pytest.approx(max(probabilities.values()), abs=1e-4)
            assert written[0]["input.text_pair"] == "in rome" and not written[0]["error"]


def test_texts_to_search_come_from_every_format(tmp_path):
    texts = ["a great film", "Ann, in Rome"]
    table = pd.DataFrame({"review": texts, "number": [1, 2]})
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    table.to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.txt").write_text("a great film\n\nAnn, in Rome\n")
    for kind in ("csv", "jsonl", "parquet", "txt"):
        documents, line = read_texts(str(tmp_path / f"a.{kind}"), "review")
        assert [document.text for document in documents] == texts and line.startswith("2 texts")
    with pytest.raises(UserError, match="review"):
        read_texts(str(tmp_path / "a.csv"), "text")
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(UserError, match="holds no text"):
        read_texts(str(tmp_path / "empty.txt"), "text")


def test_a_search_in_a_file_reads_long_texts_and_puts_the_prompts_before_texts(models, tmp_path):
    pytest.importorskip("gradio")
    from mybert.demo.page import build_page

    encoder = SentenceTransformer(str(models("encoder")), device="cpu", prompts={"query": "film ", "passage": "song "})
    encoder.save(str(tmp_path / "encoder"), create_model_card=False)
    texts = ["a great film", "the dull song", "Ann sings in Rome " * 200]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    for name in (str(tmp_path / "encoder"), models("filler")):
        functions = {one.fn.__name__: one.fn for one in build_page([str(name)], "cpu").fns.values() if one.fn}
        state, line = functions["read"](str(tmp_path / "texts.txt"), "text")
        assert line == "3 texts; the beginnings of 1 longer text are read"
        embedder = Embedder(str(name), normalize=True, device="cpu", long_texts="truncate")
        passage, query = ("passage", "query") if embedder.modules.names else (None, None)
        expected = embedder.texts(texts, prompt_name=passage)
        np.testing.assert_allclose(state[1][0].numpy(), expected, atol=1e-5)
        best = max(expected @ embedder.texts(["a sea"], prompt_name=query)[0])
        assert functions["search"](state, "a sea")[0][0] == pytest.approx(best, abs=1e-4)


def test_examples_of_a_pretrained_model_are_held_out_sentences_that_its_folder_records(models, tmp_path):
    folder = shutil.copytree(models("filler"), tmp_path / "filler")
    sample = {
        "step": 4,
        "words": [{"before": "the", "word": "film", "after": "is dull", "probability": 0.5, "guesses": []}],
        "pairs": [{"a": "ann sings", "b": "in rome", "is_next": True, "probability": 0.6}],
    }
    write_lines(folder / "samples.jsonl", [{"step": 2}, sample])
    found = {one.title: one for one in heads_of(str(folder), "cpu")}
    assert found["Masked words"].examples == [["the [MASK] is dull"]]
    assert found["Next sentence"].examples[0] == ["ann sings", "in rome"]


@pytest.mark.slow
def test_two_texts_of_a_quarter_of_a_megabyte_are_answered(models):
    probabilities = head(models, "filler", "Next sentence").answer("the film " * 27_500, "in rome " * 30_000).result
    assert sum(probabilities.values()) == pytest.approx(1)


def test_parts_are_the_whole_text():
    assert parts("ab cd", [(0, 2, 1), (1, 3, 2), (3, 5, 3)]) == [("ab", 1), (" ", None), ("cd", 3)]


def test_an_index_is_searched_and_the_words_of_the_query_are_marked(models, tmp_path):
    (tmp_path / "films.jsonl").write_text(
        '{"id": "a", "text": "The great songs of Ann."}\n{"id": "b", "title": "Rome", "text": "A dull film."}\n'
    )
    index = build_index(models("encoder"), tmp_path / "films.jsonl", output=tmp_path / "index", language="en")
    (found,) = heads_of(str(index.path), "cpu")
    answer = found.answer("a song")
    hits = Index(index.path, device="cpu").search("a song")
    assert [(row[0], row[1]) for row in answer.rows] == [(round(hit.score, 4), hit.id) for hit in hits]
    assert [part for part, value in answer.marked if isinstance(value, float)] == ["songs"]
    assert hits[0].text in "".join(part for part, _ in answer.marked)
    assert (found.examples, found.action) == ([["The great songs of Ann."], ["Rome"]], "Search")


def test_the_queries_of_an_index_come_from_all_over_it(models, tmp_path):
    (tmp_path / "films.jsonl").write_text("".join(f'{{"id": "{n}", "text": "film {n}"}}\n' for n in range(10)))
    index = Index(
        build_index(models("encoder"), tmp_path / "films.jsonl", output=tmp_path / "index", language="en").path
    )
    index.add([{"id": str(n), "text": f"film {n}"} for n in range(10, 14)])
    index.delete([str(n) for n in range(0, 14, 2)])
    assert [hit.text for hit in index.sample(4)] == ["film 1", "film 5", "film 9", "film 13"]
    assert len(index.sample(100)) == 7
    index.delete([str(n) for n in range(1, 14, 2)])
    assert index.sample(4) == []
