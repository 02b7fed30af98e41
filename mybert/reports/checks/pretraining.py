"""Checks of pretraining: what the model has learned of masked tokens and next sentences."""

from collections.abc import Iterator

from mybert.reports.checks.training import advises_rate, competing_programs
from mybert.reports.findings import Finding, judged, passed
from mybert.reports.forecast import compare
from mybert.reports.stage_files import StageFiles, is_number

_PLATEAU_RED, _PLATEAU_AMBER = 1.15, 1.5  # times the share of the most frequent token
_FEW_TOKENS, _MORE_TOKENS = 500, 3000
_FEW_PAIRS = 500
_OVERFITTED = 1.1  # times the lowest held-out loss of next sentences
_LEARNED = 3  # times the share of the most frequent token: next sentences are learned by then
_NO_PAIRS = "build the corpus by `mybert corpus --no-nsp`"


def still_on_the_first_plateau(files: StageFiles) -> Iterator[Finding]:
    metrics, constant = files.scores
    accuracy, base = metrics.get("mlm_accuracy"), constant.get("mlm_accuracy")
    if accuracy is None or not base:
        return
    evidence = f"Masked-token accuracy {accuracy:.1%}; always answering the most frequent token gives {base:.1%}."
    level = "red" if accuracy <= _PLATEAU_RED * base else "amber" if accuracy <= _PLATEAU_AMBER * base else "green"
    good, bad = "The model has learned more than the most frequent token", "The loss is still on its first plateau"
    titles = good, f"{bad}: little is learned yet"
    remedies = ["Train for more steps", *([] if advises_rate(files) else ["raise --learning-rate"])]
    remedies += _remedies_for_new_weights(files)
    remedy = " or ".join(filter(None, [", ".join(remedies[:-1]), remedies[-1]])) + "."
    yield judged("plateau", level, titles, evidence, remedy)


def _remedies_for_new_weights(files: StageFiles) -> list[str]:
    """Settings that shorten the plateau of this run. They have no effect on the weights of a checkpoint."""
    settings = files.manifest["settings"]
    if files.stage == "pretrain" and not settings.get("init_from"):
        return [] if settings.get("initial_weights") == "text" else ["use --initial-weights text"]
    if files.stage == "distill" and settings.get("size"):
        range_of_narrow = "use --initializer-range of about 1 / sqrt(hidden size) for narrow models"
        return [range_of_narrow, "start with shorter sequences (--length-schedule)"]
    return []


def next_sentence_at_chance(files: StageFiles) -> Iterator[Finding]:
    metrics, constant = files.scores
    accuracy, base = metrics.get("nsp_accuracy"), constant.get("nsp_accuracy")
    if accuracy is None or base is None:
        return
    low, high = files.results.get("nsp_accuracy_interval_95") or (accuracy, accuracy)
    pairs = metrics.get("nsp_pairs", 0)
    evidence = (
        f"Next-sentence accuracy {accuracy:.1%} (95% interval {low:.1%} to {high:.1%}) on {pairs:,} pairs; the "
        f"best constant prediction gives {base:.1%}."
    )
    if low > base:
        yield passed("next-sentence", "Next-sentence prediction is learned", evidence)
        return
    if pairs < _FEW_PAIRS and accuracy > base:
        title = "There are too few pairs to judge next-sentence prediction"
        yield Finding("next-sentence", "amber", title, evidence, _hold_out_more(files))
        return
    late = metrics.get("mlm_accuracy", 0) > _LEARNED * constant.get("mlm_accuracy", 1)
    level = "red" if late and pairs >= _FEW_PAIRS and accuracy < base + 0.02 else "amber"
    remedy = (
        "Train for more steps: it is learned after masked tokens. If it stays, check that documents have several "
        f"sentences in order, or {_NO_PAIRS}."
    )
    losses = [entry["eval_nsp_loss"] for entry in files.evaluations if is_number(entry.get("eval_nsp_loss"))]
    if len(losses) > 2 and losses[-1] > _OVERFITTED * min(losses):
        evidence += f" Its held-out loss rose from {min(losses):.4g} to {losses[-1]:.4g}: the model overfits pairs."
        remedy = (
            f"Use more text, check that documents have several sentences in order, or {_NO_PAIRS}. More steps do not "
            "help."
        )
    yield Finding("next-sentence", level, "Next-sentence prediction is at chance", evidence, remedy)


def _hold_out_more(files: StageFiles) -> str:
    if files.stage == "adapt":
        return "Use more text, or hold out more of it by a larger --validation-share."
    return "Use more text, or hold out more of it by `mybert corpus` with --validation-share or --split-documents."


def small_evaluation_set(files: StageFiles) -> Iterator[Finding]:
    metrics, _ = files.scores
    if not files.results:
        return
    remedy = _hold_out_more(files)
    if not metrics:
        title = "There is no evaluation set"
        yield Finding("evaluation-set", "amber", title, "No held-out documents were evaluated.", remedy)
        return
    tokens = metrics.get("mlm_tokens", 0)
    evidence = f"The scores are means over {tokens:,} masked tokens of held-out documents."
    level = "red" if tokens < _FEW_TOKENS else "amber" if tokens < _MORE_TOKENS else "green"
    titles = "The evaluation set is large enough", "The evaluation set is tiny"
    yield judged("evaluation-set", level, titles, evidence, remedy)


def off_the_plan(files: StageFiles) -> Iterator[Finding]:
    """Speed and result of a run with a time budget, compared with what was expected of them."""
    measures = {measure.title: measure for measure in compare(files.results)}
    if not measures:
        return
    speed = measures.pop("tokens per second")
    evidence = f"Planned {speed.planned} tokens per second, measured {speed.result}.{competing_programs(files)}"
    remedy = "End other programs that use the processor. A new run measures and plans again."
    titles = "The run was not slower than planned", "The run was slower than planned"
    yield judged("planned-speed", "amber" if speed.is_worse else "green", titles, evidence, remedy)
    scores = [measure for measure in measures.values() if measure.expected]
    if not scores:
        return
    evidence = "For the tokens seen: " + "; ".join(
        f"{score.title} {score.result}, expected {score.expected}" for score in scores
    )
    is_worse = any(score.is_worse for score in scores)
    titles = "The result is as good as expected", "The result is worse than its 95% interval"
    remedy = (
        "Check the learning rate and the text: the expectation is that of English prose. Repeated or very short "
        "texts are learned more slowly."
    )
    yield judged("forecast", "amber" if is_worse else "green", titles, f"{evidence}.", remedy)


CHECKS = (still_on_the_first_plateau, next_sentence_at_chance, small_evaluation_set, off_the_plan)
