"""What a run with a time budget was expected to reach, beside what it has reached."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mybert.common.quantities import with_unit

_ON_PLAN = (0.7, 1.4)
"""Speed divided by the planned one, beyond which a run is off its plan; the speed of a machine varies by 30%."""
_SLOWER, _WORSE = ": slower", "worse than expected"


class Measure(NamedTuple):
    """One line of the comparison.

    Attributes:
        planned: what the plan expected before the first step.
        expected: what is expected for the tokens that were seen, if that can be computed.
        result: what was measured.
        remark: empty, or how the result differs.
    """

    title: str
    planned: str
    expected: str
    result: str
    remark: str = ""

    @property
    def is_worse(self) -> bool:
        return self.remark.endswith((_SLOWER, _WORSE))


COLUMNS = ("measure", "planned", "expected for the tokens seen", "measured", "remark")


def compare(results: Mapping[str, Any]) -> list[Measure]:
    """Plan and result of the run that wrote these results; empty for a run without a plan."""
    budget = results.get("budget") or {}
    if not budget.get("planned"):
        return []
    planned, speed, metrics = budget["planned"], results["tokens_per_second"], results.get("metrics") or {}
    ratio = speed / max(planned["tokens_per_second"], 1e-9)
    remark = "" if _ON_PLAN[0] <= ratio <= _ON_PLAN[1] else f"{ratio:.2f} times the plan{_SLOWER if ratio < 1 else ''}"
    measures = [
        Measure("tokens per second", f"{planned['tokens_per_second']:,.0f}", "", f"{speed:,}", remark),
        Measure("tokens", with_unit(planned["tokens"], ""), "", with_unit(results["tokens_seen"], "")),
    ]
    before, after = (budget.get(when) or {} for when in ("expected", "expected_for_tokens_seen"))
    for name, title, digits in (("mlm_loss", "masked loss", 2), ("mlm_accuracy", "masked accuracy", 3)):
        if name in metrics and after:
            first, last = (interval(expected, name, digits) for expected in (before, after))
            remark = _remark(after, name, metrics[name])
            measures.append(Measure(title, first, last, f"{metrics[name]:.{digits}f}", remark))
    return measures


def interval(expected: Mapping[str, float], name: str, digits: int) -> str:
    """The 95% interval of a metric. At the highest loss the law knows no more than that the loss is not above it."""
    if expected["mlm_loss"] >= expected["mlm_loss_highest"]:
        return f"{'at most' if name == 'mlm_loss' else 'at least'} {expected[name]:.{digits}f}"
    return f"{expected[name]:.{digits}f} ± {expected[f'{name}_error']:.{digits}f}"


def _remark(expected: Mapping[str, float], name: str, value: float) -> str:
    """Whether a metric is better or worse than its 95% interval; empty if it is inside."""
    gain = (expected[name] - value) * (1 if name == "mlm_loss" else -1)
    if gain < -expected[f"{name}_error"]:
        return _WORSE
    is_bound = expected["mlm_loss"] >= expected["mlm_loss_highest"]
    return "better than expected" if gain > expected[f"{name}_error"] and not is_bound else ""
