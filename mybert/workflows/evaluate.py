"""`mybert evaluate`: the heads of `mybert.finetuning` on labelled rows, and the retrievers of `mybert.retrieval`."""

from pathlib import Path

from mybert.tasks.settings import EvaluateSettings


def evaluate(settings: EvaluateSettings) -> Path:
    """Scores a model; see `mybert.evaluation.evaluate` and `mybert.retrieval.evaluation`."""
    if settings.documents:
        from mybert.retrieval.evaluation import evaluate_retrieval

        return evaluate_retrieval(settings)
    from mybert.evaluation.evaluate import evaluate

    return evaluate(settings)
