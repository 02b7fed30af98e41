"""Labels needed with `mybert suggest` and with random rows, simulated on rows whose labels are known.

    python benchmarks/labelling_loop.py MINILM --train train.jsonl --test test.jsonl --count 50 --output curve

Rows have `text` and `label`, or `tokens` and `ner_tags`. The model of each round is a logistic regression on frozen
mean vectors, or on the hidden states of words. In a draw, all strategies start from the same random rows. Writes
accuracies, or F1 of entities, to OUTPUT.json and curves to OUTPUT.png. Beside suggest: the most uncertain rows (for
texts margin sampling) and, for texts, core-set (k-center greedy; Sener and Savarese 2018) and BADGE (k-means++ on
gradients of the last layer; Ash et al. 2020).
"""

import argparse
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression
from transformers import AutoModel, AutoTokenizer

from modeling_mybert.entities_mybert import entity_spans, read_tags
from mybert import Embedder
from mybert.suggestion.choice import facility_location, pool_size


class Texts:
    """Vectors and labels of texts, and the model that some of them train."""

    def __init__(self, train: list[dict], test: list[dict], model: str):
        embedder = Embedder(model, normalize=True)
        self.vectors, self._test = (embedder.texts([row["text"] for row in rows]) for rows in (train, test))
        self._labels, self._expected = (np.array([str(row["label"]) for row in rows]) for rows in (train, test))

    def after(self, labelled: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Accuracy on the test rows, (rows,) uncertainty, and (rows, labels) probabilities."""
        model = LogisticRegression(C=30, max_iter=200).fit(self.vectors[labelled], self._labels[labelled])
        shares = model.predict_proba(self.vectors)
        ordered = np.sort(shares, axis=1)
        return (
            float((model.predict(self._test) == self._expected).mean()),
            1 - (ordered[:, -1] - ordered[:, -2]),
            shares,
        )


class Words:
    """Hidden states and tags of the words of sentences, and the tagger that some of them train."""

    def __init__(self, train: list[dict], test: list[dict], model: str):
        tokenizer = AutoTokenizer.from_pretrained(model)
        encoder = AutoModel.from_pretrained(model).eval()
        states = [hidden_states(encoder, tokenizer, rows) for rows in (train, test)]
        self._states, self._test_states = (np.concatenate(parts) for parts in states)
        self._tags = np.array([tag for row in train for tag in row["ner_tags"]])
        self._owners = np.repeat(np.arange(len(train)), [len(part) for part in states[0]])
        self._ends = np.cumsum([len(part) for part in states[1]])[:-1]
        self._expected = [row["ner_tags"] for row in test]
        means = np.stack([part.mean(0) for part in states[0]])
        self.vectors = means / np.linalg.norm(means, axis=1, keepdims=True)

    def after(self, labelled: np.ndarray) -> tuple[float, np.ndarray, None]:
        """F1 of the entities of the test rows, and (rows,) uncertainty."""
        inside = np.isin(self._owners, labelled)
        model = LogisticRegression(C=1, max_iter=200).fit(self._states[inside], self._tags[inside])
        certain = model.predict_proba(self._states).max(1)
        means = np.bincount(self._owners, certain) / np.bincount(self._owners)
        found = [tags.tolist() for tags in np.split(model.predict(self._test_states), self._ends)]
        return entity_f1(found, self._expected), 1 - means, None


def hidden_states(encoder, tokenizer, rows: list[dict]) -> list[np.ndarray]:
    """(words, H) for each row: the hidden state of the first token of each word."""
    found = []
    for start in range(0, len(rows), 64):
        words = [row["tokens"] for row in rows[start : start + 64]]
        batch = tokenizer(words, is_split_into_words=True, truncation=True, padding=True, return_tensors="pt")
        with torch.inference_mode():
            states = encoder(**batch).last_hidden_state.numpy()
        for number, own in enumerate(words):
            places = batch.word_ids(number)
            found.append(states[number, [places.index(word) for word in range(len(own))]])
    return found


def entity_f1(found: list[list[str]], expected: list[list[str]]) -> float:
    marks = read_tags({tag: 1 for tags in [*found, *expected] for tag in tags}).marks
    spans = [
        {(row, *span) for row, tags in enumerate(side) for span in entity_spans(tags, marks)}
        for side in (found, expected)
    ]
    return 2 * len(spans[0] & spans[1]) / max(len(spans[0]) + len(spans[1]), 1)


def at_random(vectors, uncertain, shares, labelled, rest, count, draw) -> np.ndarray:
    return draw.permutation(rest)[:count]


def by_suggest(vectors, uncertain, shares, labelled, rest, count, draw) -> np.ndarray:
    weights = uncertain[rest]
    pool = np.argsort(-weights, kind="stable")[: pool_size(count)]
    order = facility_location(vectors[rest[pool]], weights[pool].astype(np.float32), vectors[labelled])
    return rest[pool[list(islice(order, count))]]


def by_margin(vectors, uncertain, shares, labelled, rest, count, draw) -> np.ndarray:
    return rest[np.argsort(-uncertain[rest], kind="stable")[:count]]


def by_core_set(vectors, uncertain, shares, labelled, rest, count, draw) -> np.ndarray:
    nearest, chosen = (vectors[rest] @ vectors[labelled].T).max(1), []
    for _ in range(count):
        chosen.append(int(nearest.argmin()))
        nearest = np.maximum(nearest, vectors[rest] @ vectors[rest[chosen[-1]]])
    return rest[chosen]


def by_badge(vectors, uncertain, shares, labelled, rest, count, draw) -> np.ndarray:
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


def simulate(data: Texts | Words, choose: Callable, seed: int, count: int, rounds: int) -> list[float]:
    """The score after each round; the first has `count` random rows."""
    draw, rows = np.random.default_rng(seed), len(data.vectors)
    labelled, scores = draw.permutation(rows)[:count], []
    while True:
        score, uncertain, shares = data.after(labelled)
        scores.append(score)
        if len(scores) == rounds:
            return scores
        rest = np.setdiff1d(np.arange(rows), labelled)
        chosen = choose(data.vectors, uncertain, shares, labelled, rest, count, draw)
        labelled = np.concatenate([labelled, chosen])


def draw_curves(found: dict[str, np.ndarray], count: int, metric: str, path: Path) -> None:
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axis = figure.subplots()
    for name, scores in found.items():
        labels = count * np.arange(1, scores.shape[1] + 1)
        mean, spread = 100 * scores.mean(0), 100 * scores.std(0, ddof=1) if len(scores) > 1 else 0
        (line,) = axis.plot(labels, mean, label=name, marker=".", linewidth=2 if name in ("random", "suggest") else 1)
        if name in ("random", "suggest"):
            axis.fill_between(labels, mean - spread, mean + spread, color=line.get_color(), alpha=0.15)
    axis.set(xlabel="labels", ylabel=f"{metric} on the test rows, %")
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
    parser.add_argument("--most", type=int, help="rows that are read of each file (default: all)")
    parser.add_argument("--output", type=Path, required=True)
    settings = parser.parse_args()
    train, test = (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()][: settings.most]
        for path in (settings.train, settings.test)
    )
    are_words = "tokens" in train[0]
    data = (Words if are_words else Texts)(train, test, settings.model)
    found: dict[str, np.ndarray] = {}
    for name, choose in STRATEGIES.items():
        if are_words and name in ("core-set", "BADGE"):
            continue
        runs = [simulate(data, choose, seed, settings.count, settings.rounds) for seed in range(settings.draws)]
        found[name] = np.array(runs)
        means = found[name].mean(1)
        spread = means.std(ddof=1) if len(means) > 1 else 0
        print(
            f"{name}: mean of the curve {means.mean():.4f}, deviation {spread:.4f}",
            *(f"{x:.3f}" for x in found[name].mean(0)),
            flush=True,
        )
        content = {name: scores.tolist() for name, scores in found.items()}
        settings.output.with_suffix(".json").write_text(json.dumps(content), encoding="utf-8")
        draw_curves(found, settings.count, "F1" if are_words else "accuracy", settings.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
