"""Quality and speed of explanations: completeness errors, and deletion curves of the words ranked first.

    python benchmarks/explanations.py MODEL ROWS --rows 200

MODEL is a fine-tuned classifier, ROWS a file with a column `text`. A deletion curve deletes the words with the largest
attributions from each text. It shows the probability of the label that was predicted for the complete text, and the
share of texts whose predicted label changes. With a good explanation, both change faster than with a random order.
"""

import argparse
from collections import Counter

import numpy as np
from saved_tables import markdown
from sides import timed

from mybert.common.machine import hardware
from mybert.explanation.explainer import Explainer
from mybert.explanation.settings import METHODS
from mybert.inference.predictor import Predictor
from mybert.tasks.reading import read_split

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)  # of the words of a text that are deleted
RANDOM_ORDERS = 5


def deleted(words: list[dict], text: str, count: int, order: np.ndarray) -> str:
    """The text without the `count` words that come first in `order`."""
    for number in sorted(order[:count].tolist(), reverse=True):
        text = text[: words[number]["start"]] + text[words[number]["end"] :]
    return text if text.strip() else "."  # an empty text has no prediction


def curve(predictor: Predictor, found: list[dict], orders: list[np.ndarray]) -> list[tuple[float, float]]:
    """For each share: mean probability of the label predicted for the whole text, and share of changed labels."""
    points = []
    for share in SHARES:
        rows = [(row["texts"]["text"], row["explanations"][0]["words"]) for row in found]
        texts = [
            deleted(words, text, round(share * len(words)), order)
            for (text, words), order in zip(rows, orders, strict=True)
        ]
        after = predictor(texts)
        kept = [new["scores"][row["label"]] for new, row in zip(after, found, strict=True)]
        changed = [new["label"] != row["label"] for new, row in zip(after, found, strict=True)]
        points.append((float(np.mean(kept)), float(np.mean(changed))))
    return points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("rows")
    parser.add_argument("--rows", type=int, default=200, dest="count")
    arguments = parser.parse_args()
    predictor = Predictor(arguments.model, device="cpu")
    rows = read_split(arguments.rows, predictor.task, labelled=False).rows
    texts = list(rows.shuffle(seed=0).select(range(min(arguments.count, len(rows))))["text"])
    curves = {}
    for method in METHODS:
        found, seconds, _ = timed(lambda method=method: Explainer(predictor, method=method)(texts))
        explanations = [row["explanations"][0] for row in found]
        values = [np.array([word["attribution"] for word in one["words"]]) for one in explanations]
        curves[method] = curve(predictor, found, [np.argsort(-some, kind="stable") for some in values])
        print(f"{method}: {len(texts)} texts, {sum(map(len, values)):,} words, {len(texts) / seconds:.1f} texts/s")
        if errors := [abs(one["completeness_error"]) for one in explanations if one["steps"]]:
            shares = [error / np.abs(some).sum() for error, some in zip(errors, values, strict=True)]
            steps = [one["steps"] for one in explanations]
            print(f"  completeness error: mean {np.mean(errors):.2g}, largest {np.max(errors):.2g}")
            print(f"  as a share of the values: mean {np.mean(shares):.2g}, largest {np.max(shares):.2g}")
            print(f"  steps: mean {np.mean(steps):.1f}, {dict(sorted(Counter(steps).items()))}")
    generator = np.random.default_rng(0)
    several = [
        curve(predictor, found, [generator.permutation(len(some)) for some in values]) for _ in range(RANDOM_ORDERS)
    ]
    curves["random order"] = np.mean(several, axis=0).tolist()
    cells = [[f"{kept:.3f}, {changed:.1%} changed" for kept, changed in points] for points in curves.values()]
    rows = [(f"{share:.0%}", *cell) for share, *cell in zip(SHARES, *cells, strict=True)]
    print("\n" + markdown(rows, ("words deleted", *curves)))


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
