"""How well `suspects.*` finds flipped labels, beside cleanlab where it is installed.

    python benchmarks/suspects.py MINILM --train train.jsonl --test test.jsonl

Rows have `text` and `label`. Some labels are replaced by random other ones. Predictions are those of a logistic
regression on frozen vectors, out of fold. Prints rows listed, precision and recall, and the accuracy on the test rows
after training on the flipped, the corrected and the clean labels.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from mybert import Embedder
from mybert.evaluation.confidence import find_suspects

try:
    from cleanlab.filter import find_label_issues
except ImportError:
    find_label_issues = None

RULES = ("prune_by_noise_rate", "prune_by_class", "confident_learning", "low_normalized_margin", "low_self_confidence")


def read(path: Path, embedder: Embedder, rows: int | None) -> tuple[np.ndarray, np.ndarray]:
    """(rows, H) vectors and (rows,) labels."""
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()][:rows]
    return embedder.texts([row["text"] for row in found]), np.array([str(row["label"]) for row in found])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--rows", type=int, help="training rows that are read (default: all)")
    parser.add_argument("--share", type=float, default=0.05, help="of flipped labels")
    settings = parser.parse_args()
    embedder = Embedder(settings.model, normalize=True)
    (vectors, true), (test, expected) = (
        read(settings.train, embedder, settings.rows),
        read(settings.test, embedder, None),
    )
    names, clean = np.unique(true, return_inverse=True)
    draw = np.random.default_rng(0)
    flipped = draw.random(len(clean)) < settings.share
    given = clean.copy()
    given[flipped] = (clean[flipped] + draw.integers(1, len(names), flipped.sum())) % len(names)
    model = LogisticRegression(C=10, max_iter=300)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    shares = cross_val_predict(model, vectors, given, cv=folds, method="predict_proba")

    def show(rule: str, rows: np.ndarray) -> None:
        right = flipped[rows].sum()
        print(
            f"{rule}: {len(rows)} rows, precision {right / max(len(rows), 1):.3f}, recall {right / flipped.sum():.3f}"
        )

    print(f"{len(given)} rows, {flipped.sum()} flipped")
    predictions = [
        {"label": names[row.argmax()], "score": row.max(), "scores": dict(zip(names, row.tolist(), strict=True))}
        for row in shares
    ]
    listed = np.array([suspect.row for suspect in find_suspects(predictions, names[given].tolist())])
    show("suspects", listed)
    show("contradicted with 0.9", np.flatnonzero((shares.argmax(1) != given) & (shares.max(1) >= 0.9)))
    for rule in RULES if find_label_issues else ():
        show(f"cleanlab, {rule}", np.flatnonzero(find_label_issues(given, shares, filter_by=rule)))
    corrected = given.copy()
    corrected[listed] = clean[listed]
    for title, labels in (("flipped", given), ("corrected", corrected), ("clean", clean)):
        accuracy = (names[model.fit(vectors, labels).predict(test)] == expected).mean()
        print(f"accuracy after training on {title} labels: {accuracy:.4f}")


if __name__ == "__main__":
    main()
