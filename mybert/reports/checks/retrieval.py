"""Checks of a retriever: whether it is better than the model it started from, and than BM25."""

from collections.abc import Iterator

from mybert.common.metrics import metric_title
from mybert.common.quantities import counted
from mybert.reports.findings import Finding, judged
from mybert.reports.stage_files import StageFiles

_METRIC = "ndcg@10"
_FEW_QUERIES, _FEW_DOCUMENTS = 100, 100
_ROUNDING = 1e-6  # of means of equal scores
_TITLE = metric_title(_METRIC)
_OTHERS = {"bm25": "BM25", "start": "plain mean pooling of its start model"}
_REMEDY = (
    "Train on more pairs of queries and answers (`--train`), or on the documents (`--documents`). Search with what is "
    "best here: `--mode words` is BM25, `hybrid` both rankings together."
)


def better_than_others(files: StageFiles) -> Iterator[Finding]:
    """Of `evaluate`: paired differences from BM25 and from the start model."""
    results = files.results
    for name, words in _OTHERS.items():
        difference = results.get("differences", {}).get(name, {}).get(_METRIC)
        if files.task != "retrieval" or difference is None or not any(difference["interval"] or []):
            continue  # without --bootstrap; or an untrained model, which is its own start model
        low, high = difference["interval"]
        evidence = (
            f"{_TITLE} is {results['model'][_METRIC]:.3f}, that of {words} {results[name][_METRIC]:.3f}; the "
            f"difference is {difference['mean']:+.3f} (95% interval {low:+.3f} to {high:+.3f}). "
            f"Hybrid scores have {results['hybrid'][_METRIC]:.3f}."
        )
        doubt = f"The model is worse than {words}" if high < 0 else f"The model may be no better than {words}"
        titles = (f"The model is better than {words}", doubt)
        yield judged(f"beside-{name}", "green" if low > 0 else "amber", titles, evidence, _REMEDY)


def better_than_before(files: StageFiles) -> Iterator[Finding]:
    """Of `finetune`: the held-out queries before and after training; of a reranker, in the order of BM25 before."""
    reranks = files.task == "reranking"
    names = "bm25" if reranks else "start", "held_out"
    before, trained = (files.results.get(name, {}).get("metrics", {}).get(_METRIC) for name in names)
    if files.task not in ("retrieval", "reranking") or before is None or trained is None:
        return
    queries = files.results.get("pairs", {}).get("held_out_queries", 0)
    was = "that of BM25 alone" if reranks else "before training it was"
    evidence = f"{_TITLE} of {queries:,} held-out queries is {trained:.3f}, {was} {before:.3f}."
    titles = ("Training has made the model better", "Training has not made the model better")
    remedy = "Train on more rows or documents. If that does not help, use the start model."
    if reranks:
        titles = ("The reranker sorts better than BM25", "The reranker sorts no better than BM25")
        remedy = "Train on more rows, or search without a reranker."
    is_better = trained - before > _ROUNDING
    yield judged("beside-start", "green" if is_better else "amber", titles, evidence, remedy)


def few_held_out_queries(files: StageFiles) -> Iterator[Finding]:
    queries = files.results.get("pairs", {}).get("held_out_queries", 0)
    if not 0 < queries < _FEW_QUERIES:
        return
    evidence = f"Held-out queries: {queries}."
    interval = files.results.get("held_out", {}).get("intervals_95", {}).get(_METRIC)
    if interval:
        evidence += f" {_TITLE}: 95% interval {interval[0]:.3f} to {interval[1]:.3f}."
    scored = "--reranker" if files.task == "reranking" else "--model"
    remedy = f"Hold out more (`--validation`, `--validation-share`), or score the model by `mybert evaluate {scored}`."
    yield Finding("held-out-queries", "amber", "There are few held-out queries", evidence, remedy)


def few_documents(files: StageFiles) -> Iterator[Finding]:
    documents, mined = files.results.get("documents", 0), files.results.get("pairs", {}).get("mined")
    if mined and documents < _FEW_DOCUMENTS:
        pairs = counted(sum(mined.values()), "pair")
        evidence = f"{pairs} were mined from {counted(documents, 'document')}."
        remedy = "Give more documents. Divide long ones, such as books, into rows: whole documents are held out."
        yield Finding("documents", "amber", "There are few documents to learn from", evidence, remedy)


CHECKS = (better_than_before, better_than_others, few_held_out_queries, few_documents)
