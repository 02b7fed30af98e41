"""How well `suspects.*` finds flipped labels, beside cleanlab where it is installed.

    python benchmarks/suspects.py MINILM --train train.jsonl --test test.jsonl
    python benchmarks/suspects.py MINILM --train conll2003/train.jsonl --rows 2000

Rows have `text` and `label`, or `tokens` and `ner_tags`. Some labels are replaced by random other ones. Of some
entities, the type is changed, or the tags are removed, or the end is moved by a word. Predictions are those of a
logistic regression on frozen vectors, out of fold, or, with `--labelled`, of one that other sentences have trained.
Prints rows listed, precision and recall; of texts also the accuracy on the test rows after training on the flipped,
the corrected and the clean labels.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from labelling_loop import entity_f1, hidden_states
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, StratifiedKFold, cross_val_predict

from modeling_mybert.entities_mybert import entity_spans, read_tags
from mybert import Embedder
from mybert.evaluation.confidence import find_suspects, find_wrong_tags

try:
    from cleanlab.filter import find_label_issues
    from cleanlab.token_classification.rank import get_label_quality_scores
except ImportError:
    find_label_issues = None

RULES = ("prune_by_noise_rate", "prune_by_class", "confident_learning", "low_normalized_margin", "low_self_confidence")


def read(path: Path, embedder: Embedder, rows: int | None) -> tuple[np.ndarray, np.ndarray]:
    """(rows, H) vectors and (rows,) labels."""
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()][:rows]
    return embedder.texts([row["text"] for row in found]), np.array([str(row["label"]) for row in found])


def with_wrong_entities(sentences: list[list[str]], share: float, draw) -> tuple[list[list[str]], np.ndarray]:
    """The tags with some wrong entities, and (sentences,) which have one."""
    marks = read_tags(dict.fromkeys((tag for tags in sentences for tag in tags), 1)).marks
    kinds = sorted({mark.kind for mark in marks.values()})
    changed, wrong = [list(tags) for tags in sentences], np.zeros(len(sentences), dtype=bool)
    for row, tags in enumerate(sentences):
        for start, end, kind in entity_spans(tags, marks):
            if draw.random() >= share:
                continue
            new, wrong[row] = changed[row], True
            how = draw.integers(3)
            if how == 0:
                other = kinds[(kinds.index(kind) + draw.integers(1, len(kinds))) % len(kinds)]
                new[start:end] = [tag[:2] + other for tag in tags[start:end]]
            elif how == 1 or (end - start == 1 and (end == len(tags) or new[end] != "O")):
                new[start:end] = ["O"] * (end - start)
            elif end - start > 1:
                new[end - 1] = "O"
            else:
                new[end] = f"I-{kind}"
    return changed, wrong


def of_tags(settings: argparse.Namespace) -> None:
    """Prints how well each rule finds the sentences with wrong entities."""
    from transformers import AutoModel, AutoTokenizer

    rows = [json.loads(line) for line in settings.train.read_text(encoding="utf-8").splitlines()]
    draw = np.random.default_rng(settings.seed)
    order = draw.permutation(len(rows))
    rows = [rows[place] for place in order[: (settings.rows or len(rows)) + settings.labelled]]
    encoder = AutoModel.from_pretrained(settings.model).eval()
    states = hidden_states(encoder, AutoTokenizer.from_pretrained(settings.model), rows)
    clean = [row["ner_tags"] for row in rows]
    rest, learned = clean[settings.labelled :], clean[: settings.labelled]
    tags, wrong = with_wrong_entities(rest, settings.share, draw)
    names, given = np.unique(np.concatenate(tags), return_inverse=True)
    vectors, sizes = np.concatenate(states[settings.labelled :]), [len(row) for row in tags]
    model = LogisticRegression(C=1, max_iter=100)
    shares = np.full((len(given), len(names)), 1e-9)
    if learned:
        model.fit(np.concatenate(states[: settings.labelled]), np.concatenate(learned))
        shares[:, np.searchsorted(names, model.classes_)] = model.predict_proba(vectors)
    else:
        owners = np.repeat(np.arange(len(tags)), sizes)
        for train, test in GroupKFold(5).split(vectors, groups=owners):
            model.fit(vectors[train], names[given[train]])
            shares[np.ix_(test, np.searchsorted(names, model.classes_))] = model.predict_proba(vectors[test])
    shares /= shares.sum(1, keepdims=True)
    ends = np.cumsum(sizes)[:-1]
    parts, labels = np.split(shares, ends), np.split(given, ends)
    found = [names[part.argmax(1)].tolist() for part in parts]
    print(f"{len(tags)} sentences, {wrong.sum()} with a wrong entity; F1 of the tagger {entity_f1(found, rest):.3f}")
    predictions = [
        {"tokens": row["tokens"], "tags": own, "scores": part.max(1).tolist()}
        for row, own, part in zip(rows[settings.labelled :], found, parts, strict=True)
    ]

    def show(rule: str, listed: list[int]) -> None:
        right = int(wrong[listed].sum()) if listed else 0
        precision, recall = right / max(len(listed), 1), right / wrong.sum()
        print(f"{rule}: {len(listed)} rows, precision {precision:.3f}, recall {recall:.3f}")

    show("suspects", [suspect.row for suspect in find_wrong_tags(predictions, tags, parts, names.tolist())])
    show("confident learning of sentences", [suspect.row for suspect in find_suspects(predictions, tags)])
    if find_label_issues is None:
        return
    owners = np.repeat(np.arange(len(tags)), sizes)
    for rule in RULES:
        show(f"cleanlab, {rule}", np.unique(owners[find_label_issues(given, shares, filter_by=rule)]).tolist())
    for method in ("self_confidence", "normalized_margin"):
        quality, _ = get_label_quality_scores([part.tolist() for part in labels], parts, token_score_method=method)
        show(f"cleanlab, lowest {method} below 0.1", np.flatnonzero(quality < 0.1).tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, help="of texts")
    parser.add_argument("--rows", type=int, help="training rows that are read (default: all)")
    parser.add_argument("--share", type=float, default=0.05, help="of flipped labels")
    parser.add_argument("--labelled", type=int, default=0, help="other sentences, which train the tagger")
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    with settings.train.open(encoding="utf-8") as file:
        if "tokens" in json.loads(file.readline()):
            of_tags(settings)
            return
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
