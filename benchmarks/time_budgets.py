"""Draws what a time budget of `mybert pretrain` gives: scores of `encoder_quality.py` over the budget.

    python benchmarks/time_budgets.py random=random.json 5m=five.json 1h=hour.json [--output FILE.png]

Each argument is a time budget, or `random` for random weights, and a file that encoder_quality.py has written.
"""

import argparse
import json
import statistics
from pathlib import Path

from matplotlib.figure import Figure

from mybert.common.quantities import Duration

RANDOM = "random"
TITLES = {
    "sst2_1000": "sentiment (SST-2, 1,000 rows): accuracy",
    "conll2003": "names (CoNLL-2003, 4,000 sentences): strict F1",
    "stsb": "similarity of sentences (STS-B, 4,000 pairs): rank correlation",
    "masked word accuracy": "masked words of unseen text: predicted completely",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scores", nargs="+", help="BUDGET=FILE.json")
    parser.add_argument("--output", default="benchmarks/results/time_budgets.png")
    options = parser.parse_args()
    files = dict(argument.split("=", 1) for argument in options.scores)
    draw(
        {budget: json.loads(Path(file).read_text(encoding="utf-8")) for budget, file in files.items()}, options.output
    )


def draw(found: dict[str, dict], path: str) -> None:
    budgets = sorted((Duration(budget), budget) for budget in found if budget != RANDOM)
    start = budgets[0][0] / 2.5  # random weights, on an axis that has no zero
    ticks = [(start, RANDOM), *budgets] if RANDOM in found else budgets
    figure = Figure(figsize=(8, 5), layout="tight")
    axis = figure.subplots()
    for name, title in TITLES.items():
        points = [(x, statistics.mean(as_list(found[budget][name]))) for x, budget in ticks if name in found[budget]]
        axis.plot(*zip(*points, strict=True), marker="o", label=title)
    axis.set_xscale("log")
    axis.set_xticks([x for x, _ in ticks], [f"{RANDOM}\nweights" if name == RANDOM else name for _, name in ticks])
    axis.minorticks_off()
    axis.set(xlabel="time budget of pretraining", ylabel="score", ylim=(0, 1))
    axis.grid(alpha=0.3)
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False, fontsize="large")
    figure.savefig(path, dpi=110)


def as_list(value: float | list[float]) -> list[float]:
    """The scores of a task, one for each seed."""
    return value if isinstance(value, list) else [value]


if __name__ == "__main__":
    main()
