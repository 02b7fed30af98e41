"""Fit the scaling law of held-out loss to finished runs of `mybert pretrain`, and write scaling_law.json.

    python benchmarks/scaling_law.py MODEL [MODEL …] --output mybert/pretraining/planning/scaling_law.json
    python benchmarks/scaling_law.py MODEL [MODEL …] --test HELD_OUT_MODEL [HELD_OUT_MODEL …]

Each MODEL is an output folder of `mybert pretrain` (loss, accuracy and tokens are in results.json, the size is in
config.json), or an output file of benchmarks/recipe_search.py with one run per line. Numbers are fitted if the runs
differ enough in what they describe (sizes, passes over the text, vocabularies); otherwise those of the current law are
kept.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from modeling_mybert import MyBertConfig
from mybert.common.quantities import with_unit
from mybert.common.tables import print_table
from mybert.pretraining.planning.flops_and_memory import count_parameters
from mybert.pretraining.planning.scaling_law import ScalingLaw, scaling_law

_FITTED = ("floor", "size_factor", "size_power", "token_factor", "token_size_power", "token_power")
_REPEATED = ("repeat_limit", "harmless_passes", "rise_factor", "rise_power", "rise_text_power")
_CHOICES = (*_FITTED, *_REPEATED, "split_vocab", "split_power", "vocab_tokens", "vocab_power")
_DATA_SIZES, _REPEATS, _VOCABULARIES = 3, 3, 3
"""Sizes, passes over the text and vocabularies that are needed to fit what describes their effect."""


class Run(NamedTuple):
    name: str
    parameters: int
    tokens: int
    unique: int
    vocab_size: int
    loss: float
    accuracy: float


def read_runs(names: list[str]) -> list[Run]:
    runs = []
    for name in names:
        if Path(name).is_dir():
            runs.append(read_run(name))
        else:
            lines = map(json.loads, Path(name).read_text(encoding="utf-8").splitlines())
            runs += [
                Run(
                    *(line[name] for name in ("name", "encoder", "tokens", "unique", "vocab_size", "loss", "accuracy"))
                )
                for line in lines
            ]
    return runs


def read_run(folder: str) -> Run:
    results = json.loads((Path(folder) / "results.json").read_text(encoding="utf-8"))
    config = MyBertConfig.from_pretrained(folder)
    metrics = results["metrics"]
    return Run(
        folder,
        count_parameters(config)["encoder"],
        results["tokens_seen"],
        results["corpus_tokens"],
        config.vocab_size,
        metrics["mlm_loss"],
        metrics["mlm_accuracy"],
    )


def fit(runs: list[Run], start: ScalingLaw, names: list[str] | None = None) -> ScalingLaw:
    """Least squares of the logarithm of the loss, robust to single runs, from the numbers of `start`.

    Args:
        names: the numbers to fit; None: those that the runs determine.
    """
    names = names or _determined(runs)

    def law(logarithms: np.ndarray) -> ScalingLaw:
        return dataclasses.replace(start, **dict(zip(names, np.exp(logarithms), strict=True)))

    def residuals(logarithms: np.ndarray) -> list[float]:
        found = law(logarithms)
        return [np.log(found.loss(run.parameters, run.tokens, run.unique, run.vocab_size) / run.loss) for run in runs]

    first = np.log([max(getattr(start, name), 1e-3) for name in names])
    found = law(least_squares(residuals, first, loss="soft_l1", f_scale=0.02).x)
    errors = [found.loss(run.parameters, run.tokens, run.unique, run.vocab_size) - run.loss for run in runs]
    freedom = max(len(runs) - len(names), 1)
    scaled = [found.scaled(run.loss, run.vocab_size) for run in runs]
    slope, at_zero = np.polyfit(scaled, [run.accuracy for run in runs], 1)
    return dataclasses.replace(
        found,
        accuracy_slope=-float(slope),
        accuracy_at_zero=float(at_zero),
        loss_error=float(np.sqrt(np.sum(np.square(errors)) / freedom)),
        runs=len(runs),
        source=", ".join(sorted(Path(run.name).name for run in runs)),
    )


def _determined(runs: list[Run]) -> list[str]:
    """The numbers of the law that these runs can determine."""
    sizes = len({run.parameters for run in runs})
    if sizes >= _DATA_SIZES:
        names = [*_FITTED]
    else:
        names = ["token_factor", *(["token_size_power"] if sizes > 1 else []), "token_power"]
    if any(run.tokens > _REPEATS * run.unique for run in runs):
        names.append("repeat_limit")
    if len({run.vocab_size for run in runs}) >= _VOCABULARIES:
        names.append("vocab_power")
    return names


def print_runs(title: str, runs: list[Run], law: ScalingLaw) -> None:
    rows = []
    for run in runs:
        loss = law.loss(run.parameters, run.tokens, run.unique, run.vocab_size)
        error, accuracy = f"{loss / run.loss - 1:+.1%}", law.accuracy(loss, run.vocab_size)
        counts = (with_unit(count, "") for count in (run.parameters, run.tokens, run.unique))
        rows.append((run.name, *counts, run.vocab_size, run.loss, loss, error, run.accuracy, accuracy))
    columns = ("run", "encoder", "tokens", "unique", "vocabulary", "loss", "expected", "error", "accuracy", "expected")
    print_table(title, rows, columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="finished runs that the law is fitted to")
    parser.add_argument("--test", nargs="*", default=[], help="finished runs that the fit does not see")
    which = f"numbers of the law to fit: {', '.join(_CHOICES)} (default: those that the runs determine)"
    parser.add_argument("--fit", nargs="+", metavar="NUMBER", choices=_CHOICES, help=which)
    parser.add_argument("--output", help="file to write")
    parser.add_argument("--least-error", type=float, default=0.0, help="least loss_error, for other texts")
    parser.add_argument("--source", help="description of the runs (default: their names)")
    arguments = parser.parse_args()
    runs = read_runs(arguments.models)
    law = fit(runs, scaling_law(), arguments.fit)
    law = dataclasses.replace(
        law, loss_error=max(law.loss_error, arguments.least_error), source=arguments.source or law.source
    )
    print_runs("fitted", runs, law)
    if arguments.test:
        print_runs("not seen by the fit", read_runs(arguments.test), law)
    if arguments.output:
        Path(arguments.output).write_text(json.dumps(dataclasses.asdict(law), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
