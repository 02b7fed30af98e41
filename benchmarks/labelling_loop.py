"""Labels needed with `mybert suggest` and with random rows, simulated on rows whose labels are known.

    python benchmarks/labelling_loop.py MINILM --train train.jsonl --test test.jsonl --count 50 --output curve

The model of each round is that of `mybert finetune` for few labels with a frozen encoder: a logistic regression on
mean vectors. In a draw, all strategies start from the same random rows. Writes accuracies to OUTPUT.json and curves to
OUTPUT.png. Beside suggest: margin sampling (the most uncertain rows), core-set (k-center greedy; Sener and Savarese
2018) and BADGE (k-means++ on gradients of the last layer; Ash et al. 2020).
"""

import argparse
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression

from mybert import Embedder
from mybert.suggestion.choice import facility_location, pool_size


def read(path: Path, embedder: Embedder) -> tuple[np.ndarray, np.ndarray]:
    """(rows, H) vectors of norm 1 and (rows,) labels."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return embedder.texts([row["text"] for row in rows]), np.array([str(row["label"]) for row in rows])


def uncertainty(shares: np.ndarray) -> np.ndarray:
    """1 - the margin of the two most probable labels."""
    ordered = np.sort(shares, axis=1)
    return 1 - (ordered[:, -1] - ordered[:, -2])


def at_random(vectors, shares, labelled, rest, count, draw) -> np.ndarray:
    return draw.permutation(rest)[:count]


def by_suggest(vectors, shares, labelled, rest, count, draw) -> np.ndarray:
    weights = uncertainty(shares[rest])
    pool = np.argsort(-weights, kind="stable")[: pool_size(count)]
    order = facility_location(vectors[rest[pool]], weights[pool].astype(np.float32), vectors[labelled])
    return rest[pool[list(islice(order, count))]]


def by_margin(vectors, shares, labelled, rest, count, draw) -> np.ndarray:
    return rest[np.argsort(-uncertainty(shares[rest]), kind="stable")[:count]]


def by_core_set(vectors, shares, labelled, rest, count, draw) -> np.ndarray:
    nearest, chosen = (vectors[rest] @ vectors[labelled].T).max(1), []
    for _ in range(count):
        chosen.append(int(nearest.argmin()))
        nearest = np.maximum(nearest, vectors[rest] @ vectors[rest[chosen[-1]]])
    return rest[chosen]


def by_badge(vectors, shares, labelled, rest, count, draw) -> np.ndarray:
    """The gradient of a row is the outer product of `errors` and its vector, whose norm is 1."""
    errors = shares[rest].copy()
    errors[np.arange(len(rest)), errors.argmax(1)] -= 1
    squares = (errors**2).sum(1)
    chosen = [int(squares.argmax())]
    distances = np.full(len(rest), np.inf)
    while len(chosen) < count:
        last = chosen[-1]
        products = (errors @ errors[last]) * (vectors[rest] @ vectors[rest[last]])
        distances = np.minimum(distances, np.maximum(squares + squares[last] - 2 * products, 0))
        distances[last] = 0
        chosen.append(int(draw.choice(len(rest), p=distances / distances.sum())))
    return rest[chosen]


STRATEGIES: dict[str, Callable] = {
    "random": at_random,
    "suggest": by_suggest,
    "margin": by_margin,
    "core-set": by_core_set,
    "BADGE": by_badge,
}


def simulate(train: tuple, test: tuple, choose: Callable, seed: int, count: int, rounds: int) -> list[float]:
    """The accuracy after each round; the first has `count` random rows."""
    (vectors, labels), draw = train, np.random.default_rng(seed)
    labelled, accuracies = draw.permutation(len(labels))[:count], []
    for _ in range(rounds):
        model = LogisticRegression(C=30, max_iter=200).fit(vectors[labelled], labels[labelled])
        accuracies.append(float((model.predict(test[0]) == test[1]).mean()))
        rest = np.setdiff1d(np.arange(len(labels)), labelled)
        labelled = np.concatenate(
            [labelled, choose(vectors, model.predict_proba(vectors), labelled, rest, count, draw)]
        )
    return accuracies


def draw_curves(found: dict[str, np.ndarray], count: int, path: Path) -> None:
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axis = figure.subplots()
    for name, scores in found.items():
        labels = count * np.arange(1, scores.shape[1] + 1)
        mean, spread = 100 * scores.mean(0), 100 * scores.std(0, ddof=1) if len(scores) > 1 else 0
        (line,) = axis.plot(labels, mean, label=name, marker=".", linewidth=2 if name in ("random", "suggest") else 1)
        if name in ("random", "suggest"):
            axis.fill_between(labels, mean - spread, mean + spread, color=line.get_color(), alpha=0.15)
    axis.set(xlabel="labels", ylabel="accuracy on the test rows, %")
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--count", type=int, default=50, help="rows of a round")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--output", type=Path, required=True)
    settings = parser.parse_args()
    embedder = Embedder(settings.model, normalize=True)
    train, test = read(settings.train, embedder), read(settings.test, embedder)
    found = {}
    for name, choose in STRATEGIES.items():
        runs = [simulate(train, test, choose, seed, settings.count, settings.rounds) for seed in range(settings.draws)]
        found[name] = np.array(runs)
        print(
            f"{name}: mean of the curve {found[name].mean():.4f}",
            *(f"{x:.3f}" for x in found[name].mean(0)),
            flush=True,
        )
        content = {name: scores.tolist() for name, scores in found.items()}
        settings.output.with_suffix(".json").write_text(json.dumps(content), encoding="utf-8")
        draw_curves(found, settings.count, settings.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
