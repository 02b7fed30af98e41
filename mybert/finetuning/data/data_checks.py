"""Checks of the rows of all splits, for results.json: leaks between splits, and words that determine a label."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from mybert.common.languages import marks
from mybert.finetuning.data.dataset_loading import Split
from mybert.finetuning.data.run_data import draw_rows
from mybert.finetuning.data.similar_rows import nearly_equal, plain_text
from mybert.finetuning.data.validation import input_texts
from mybert.finetuning.tasks.base import Task

_ROWS, _LABELS = 20_000, 50  # read for words that give labels away
_WORD_TABLE = 20_000
_LIFT = 2


def check_data(splits: Mapping[str, Split], task: Task) -> dict[str, Any]:
    """
    Returns:
        overlaps: for each two parts `of` and `in`: `rows` of the first, and how many of them are in the second:
            `equal`, or `near`: but for case, punctuation, spaces, or a few words (see `similar_rows`).
        giveaway_words: for each label the `word` that tells most about it, its `f1` as a rule, and the numbers of
            rows; the most telling first. Only for one label a row.
    """
    rows = {name: list(input_texts(split.rows, task)) for name, split in splits.items()}
    plain = {name: [tuple(map(plain_text, row)) for row in some] for name, some in rows.items()}
    overlaps = [
        _overlap(other, one, rows, plain)
        for one, other in itertools.combinations(splits, 2)  # train comes first
    ]
    train = splits["train"].rows
    labels = task.references(train)
    found = {"overlaps": overlaps}
    if all(isinstance(label, str) for label in labels):
        found["giveaway_words"] = giveaway_words([" \n ".join(row) for row in rows["train"]], labels)
    return found


def _overlap(of: str, within: str, rows: Mapping[str, list], plain: Mapping[str, list]) -> dict[str, Any]:
    equal_to, near_to = set(rows[within]), {row for row in plain[within] if any(row)}
    equal = [row in equal_to for row in rows[of]]
    similar = zip(plain[of], nearly_equal(plain[of], plain[within]), equal, strict=True)
    near = sum(not same and (row in near_to or close) for row, close, same in similar)
    return {"of": of, "in": within, "rows": len(equal), "equal": sum(equal), "near": near}


def giveaway_words(texts: Sequence[str], labels: Sequence[str]) -> list[dict[str, Any]]:
    """The word with the best F1 as a rule for each label: "a text with this word has this label".

    Only words that are `_LIFT` times as frequent in texts with the label count, since the rule "every text" also has
    an F1 of 0.67 for half of the rows. A label without such a word is left out.
    """
    chosen = draw_rows(len(texts), _ROWS, seed=0)
    names, ids = np.unique([labels[row] for row in chosen], return_inverse=True)
    vectorizer = CountVectorizer(binary=True, token_pattern=rf"\w[\w{marks()}]*", max_features=_WORD_TABLE)
    try:
        words = vectorizer.fit_transform([texts[row] for row in chosen])
    except ValueError:  # no words at all
        return []
    known, total = vectorizer.get_feature_names_out(), np.asarray(words.sum(0)).ravel()
    found = []
    for number in np.argsort(-np.bincount(ids))[:_LABELS].tolist():
        mask = ids == number
        inside, rows = np.asarray(words[mask].sum(0)).ravel(), int(mask.sum())
        outside = (total - inside) / max(len(ids) - rows, 1)
        f1 = np.where(inside / rows >= _LIFT * outside, 2 * inside / (total + rows), 0.0)
        best = int(f1.argmax())
        if not f1[best]:
            continue
        found.append(
            {
                "label": str(names[number]),
                "word": str(known[best]),
                "with_label": int(inside[best]),
                "rows": rows,
                "without": int(total[best] - inside[best]),
                "f1": float(f1[best]),
            }
        )
    return sorted(found, key=lambda word: -word["f1"])
