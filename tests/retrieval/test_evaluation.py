"""`mybert evaluate --documents`: metrics against trec_eval, and the comparison of systems."""

import json

import numpy as np
import pytest
import pytrec_eval
from json_files import read_lines, write_lines
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from mybert import Index, cli
from mybert.retrieval import evaluation
from mybert.retrieval.ranking import METRICS, combined, interval_of_mean, score_ranking, words_unit

TREC = {"ndcg_cut_10": "ndcg@10", "recall_10": "recall@10", "recall_100": "recall@100", "map": "map"}
DOCUMENTS = {
    f"d{number}": f"{animal} {verb} in the {place}"
    for number, (animal, verb, place) in enumerate(
        (animal, verb, place)
        for animal in ("cats", "dogs", "birds")
        for verb in ("sleep", "run")
        for place in ("house", "park", "rain")
    )
}
QUERIES = {"q1": "a sleeping cat in a house", "q2": "birds in the rain", "q3": "who runs?", "q4": "nothing judged"}
GRADES = {"q1": {"d0": 2, "d1": 1, "d3": 0}, "q2": {"d14": 2, "d17": 1}, "q3": {"d9": 1, "d10": 1, "d4": 1}}


@pytest.mark.parametrize("seed", range(5))
def test_metrics_are_those_of_trec_eval(seed):
    random = np.random.default_rng(seed)
    names = [f"d{number:03}" for number in range(150)]
    grades = {
        f"q{q}": {name: int(random.integers(0, 4)) for name in random.choice(names, random.integers(1, 30), False)}
        | {"d000": 1}
        for q in range(20)
    }
    ranked = {query: random.permutation(names)[: random.integers(1, 150)].tolist() for query in grades}
    run = {query: {name: float(-rank) for rank, name in enumerate(found)} for query, found in ranked.items()}
    measures = {"ndcg_cut_10", "recall_10,100", "map", "recip_rank"}
    expected = pytrec_eval.RelevanceEvaluator(grades, measures).evaluate(run)
    for query, found in ranked.items():
        scores = score_ranking(found, grades[query])
        assert list(scores) == list(METRICS)
        for theirs, ours in TREC.items():
            assert scores[ours] == pytest.approx(expected[query][theirs], abs=1e-6)
        reciprocal = expected[query]["recip_rank"]  # of any depth
        assert scores["mrr@10"] == pytest.approx(reciprocal if reciprocal >= 0.1 else 0, abs=1e-6)


def test_intervals_of_few_queries_are_wider_than_percentiles_and_never_a_point():
    values = np.array([0.0, 0.5, 1.0, 0.7])
    low, high = interval_of_mean(values, 1000, 0)
    random = np.random.default_rng(0)
    percentiles = np.percentile([values[random.integers(4, size=4)].mean() for _ in range(1000)], (2.5, 97.5))
    assert low < percentiles[0] < percentiles[1] < high
    assert interval_of_mean(np.ones(5), 1000, 0)[0] < 0.6  # Wilson's
    assert interval_of_mean(np.zeros(5), 1000, 0, is_bounded=False) is None
    assert interval_of_mean(values, 0, 0) is None


def test_a_hybrid_score_depends_on_neither_scale():
    cosines, by_words = np.array([0.8, 0.5, 0.2, 0.1]), np.array([0.0, 6.0, 12.0, 0.0])
    scores = combined(cosines, by_words, 2.5)
    unit = 6 * 3.0  # six standard deviations of 6 and 12
    assert scores == pytest.approx(cosines / cosines.std() + 2.5 * by_words / unit)
    assert combined(0.1 * cosines, 3 * by_words, 2.5) == pytest.approx(scores)
    assert combined(cosines[:2], by_words[:2], 2.5, spread=0.5, unit=unit) == pytest.approx([1.6, 1 + 2.5 / 3])
    assert combined(cosines, 0 * by_words, 2.5).argmax() == 0
    assert np.isfinite(combined(np.ones(1), np.zeros(1), 2.5)).all()


def test_bm25_counts_more_for_rare_words_but_not_without_limit():
    one_better = np.array([0.0, *[1.0] * 200, 9.0])
    assert words_unit(one_better) == pytest.approx(0.6 * 9)
    assert words_unit(np.array([0.0, 0.0, 5.0])) == pytest.approx(3.0)  # a single text, without deviation
    assert words_unit(np.array([5.0, 5.0])) == pytest.approx(3.0)
    assert words_unit(np.zeros(3)) == 1
    even = np.arange(100.0)
    assert words_unit(even) == pytest.approx(6 * even[1:].std())


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    """The words that name a collection of BEIR's form."""
    folder = tmp_path_factory.mktemp("collection")
    for name, texts in (("corpus", DOCUMENTS), ("queries", QUERIES)):
        write_lines(folder / f"{name}.jsonl", [{"_id": key, "title": "", "text": text} for key, text in texts.items()])
    rows = [f"{query}\t{name}\t{grade}\n" for query, found in GRADES.items() for name, grade in found.items()]
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    names = {"documents": "corpus.jsonl", "queries": "queries.jsonl", "judgements": "qrels.tsv"}
    return [word for flag, name in names.items() for word in (f"--{flag}", str(folder / name))]


def evaluate(model, collection, output, *words) -> int:
    return cli.main(["evaluate", "--model", str(model), *collection, "--output", str(output), *map(str, words)])


def test_four_systems_are_compared_and_reported(minilm_folder, collection, tmp_path, capsys):
    assert evaluate(minilm_folder, collection, tmp_path / "scores") == 0
    results = json.loads((tmp_path / "scores" / "results.json").read_text())
    lines = read_lines(tmp_path / "scores" / "predictions.jsonl")
    assert [line["id"] for line in lines] == ["q1", "q2", "q3"] and results["rows"] == 3
    for system in ("model", "bm25", "start", "hybrid"):
        run = {
            line["id"]: {one["id"]: -float(rank) for rank, one in enumerate(line["found"][system])} for line in lines
        }
        expected = pytrec_eval.RelevanceEvaluator(GRADES, {"ndcg_cut_10", "recall_10"}).evaluate(run)
        for theirs, ours in (("ndcg_cut_10", "ndcg@10"), ("recall_10", "recall@10")):
            mean = np.mean([expected[query][theirs] for query in GRADES])
            assert results[system][ours] == pytest.approx(mean, abs=1e-6)
        low, high = results["intervals_95"][system]["ndcg@10"]
        assert low <= results[system]["ndcg@10"] <= high
    difference = results["model"]["map"] - results["bm25"]["map"]
    assert results["differences"]["bm25"]["map"]["mean"] == pytest.approx(difference)
    report = (tmp_path / "scores" / "report.html").read_text()
    assert "start model, mean pooling" in report and "Where the model is worse" in report
    assert "left out 1 of 4 queries" in capsys.readouterr().out
    assert cli.main(["doctor", str(tmp_path / "scores")]) == 0


def test_a_sure_reranker_decides_the_order(minilm_folder, collection, models, tmp_path, capsys):
    model = AutoModelForSequenceClassification.from_pretrained(models("regression")).eval()
    tokenizer = AutoTokenizer.from_pretrained(models("regression"))
    model.classifier.weight.data *= 1e5
    for one in (model, tokenizer):
        one.save_pretrained(tmp_path / "reranker")
    assert evaluate(minilm_folder, collection, tmp_path / "scores", "--reranker", tmp_path / "reranker") == 0
    printed = capsys.readouterr().out
    assert "hybrid, reranked" in printed and "the reranker changes nDCG@10 of the hybrid by" in printed
    assert "hybrid, reranked" in (tmp_path / "scores" / "report.html").read_text()
    lines = read_lines(tmp_path / "scores" / "predictions.jsonl")
    for line in lines:
        pairs = tokenizer([line["query"]] * len(DOCUMENTS), [*DOCUMENTS.values()], padding=True, return_tensors="pt")
        logits = model(**pairs).logits[:, 0].detach().numpy()
        best = np.array([*DOCUMENTS])[np.argsort(-logits, kind="stable")[:10]]
        assert [one["id"] for one in line["found"]["reranked"]] == best.tolist()
    means = np.mean([line["scores"]["reranked"]["map"] for line in lines])
    results = json.loads((tmp_path / "scores" / "results.json").read_text())
    assert results["reranked"]["map"] == pytest.approx(means)
    change = [line["scores"]["reranked"]["map"] - line["scores"]["hybrid"]["map"] for line in lines]
    assert results["reranked_differences"]["hybrid"]["map"]["mean"] == pytest.approx(np.mean(change))


def test_an_encoder_that_is_its_own_start_encodes_the_documents_once(minilm_folder, collection, tmp_path, monkeypatch):
    encoders = []

    class Counting(evaluation.Encoder):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            encoders.append(self)

    monkeypatch.setattr(evaluation, "Encoder", Counting)
    assert evaluate(minilm_folder, collection, tmp_path / "once") == 0
    assert len(encoders) == 1
    monkeypatch.setattr(Counting, "is_plain", property(lambda self: False, lambda self, value: None), raising=False)
    assert evaluate(minilm_folder, collection, tmp_path / "twice") == 0
    assert len(encoders) == 3
    once, twice = (read_lines(tmp_path / name / "predictions.jsonl") for name in ("once", "twice"))
    assert once == twice


def test_without_intervals_there_is_a_report_too(minilm_folder, collection, tmp_path):
    assert evaluate(minilm_folder, collection, tmp_path / "scores", "--bootstrap", 0) == 0
    assert "The band is" in (tmp_path / "scores" / "report.html").read_text()
    assert cli.main(["doctor", str(tmp_path / "scores")]) == 0


def test_long_documents_are_ranked_by_their_best_passage_as_in_an_index(minilm_folder, tmp_path):
    filler = [f"Line {number} of this report says nothing about animals or weather at all." for number in range(40)]
    endings = list(DOCUMENTS.values())[::5]
    rows = [{"_id": f"d{number}", "text": " ".join([*filler, f"{end}."])} for number, end in enumerate(endings)]
    corpus = write_lines(tmp_path / "corpus.jsonl", rows)
    queries = {f"q{number}": f"where do {end.replace('the ', '')}?" for number, end in enumerate(endings)}
    (tmp_path / "queries.tsv").write_text("".join(f"{key}\t{text}\n" for key, text in queries.items()))
    (tmp_path / "qrels.tsv").write_text("".join(f"q{number}\td{number}\t1\n" for number in range(len(endings))))
    names = {"documents": "corpus.jsonl", "queries": "queries.tsv", "judgements": "qrels.tsv"}
    words = [word for flag, name in names.items() for word in (f"--{flag}", str(tmp_path / name))]
    assert evaluate(minilm_folder, words, tmp_path / "scores") == 0
    assert cli.main(["index", str(minilm_folder), str(corpus), "--output", str(tmp_path / "i")]) == 0
    index, results = Index(tmp_path / "i"), json.loads((tmp_path / "scores" / "results.json").read_text())
    assert index.passages >= 3 * len(rows)  # the texts are longer than the model reads
    for line in read_lines(tmp_path / "scores" / "predictions.jsonl"):
        hits = index.search(line["query"], top_k=len(rows), mode="dense")
        assert [one["id"] for one in line["found"]["model"]] == [hit.id for hit in hits]
    assert results["model"]["mrr@10"] > 0.9
