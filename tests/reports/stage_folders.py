"""Folders as stages leave them, made of a few numbers."""

import copy
import json
from pathlib import Path

from json_files import write_lines


def losses(first: float, last: float, count: int = 40) -> list[float]:
    """A smooth fall from `first` to `last`."""
    return [last + (first - last) * 0.9**i for i in range(count)]


def training_log(
    values: list[float], *, rate: float = 1e-3, ratio: float = 4e-3, warmup: int = 4, **fields
) -> list[dict]:
    count = len(values)
    rates = [rate * min((i + 1) / warmup, (count - i) / (count - warmup + 1)) for i in range(count)]
    return [
        {"step": 10 * (i + 1), "tokens": 1000 * (i + 1), "seconds": 2.0 * i, "loss": loss, "grad_norm": 1.0}
        | {"learning_rate": rates[i], "update_ratio": ratio * rates[i] / rate, "tokens_per_second": 5000, "mfu": 0.4}
        | {"gradient_noise": 0.8}
        | {name: values[i] if isinstance(values, list) else values for name, values in fields.items()}
        for i, loss in enumerate(values)
    ]


def evaluation_log(**columns: list[float]) -> list[dict]:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    step = 400 // len(rows)
    return [{"step": step * (i + 1), "tokens": 1000 * i, "seconds": 5.0 * i, **row} for i, row in enumerate(rows)]


def manifest(stage: str, **settings) -> dict:
    return {"stage": stage, "created": "2026-11-24T10:00:00+00:00", "complete": True, "settings": settings}


PRETRAINING = {
    "manifest": manifest("pretrain", output="model"),
    "results": {
        "metrics": {"mlm_accuracy": 0.4, "mlm_tokens": 9000, "perplexity": 20.0}
        | {"nsp_accuracy": 0.8, "nsp_pairs": 900},
        "constant_baselines": {"mlm_accuracy": 0.05, "nsp_accuracy": 0.52},
        "nsp_accuracy_interval_95": [0.77, 0.83],
        "steps": 400,
        "tokens_seen": 40_000,
        "training_seconds": 80,
        "tokens_per_second": 5000,
        "settings": {"init_from": None},
        "accuracy_by_kind": [{"name": "number", "tokens": 12, "accuracy": 0.5}],
        "neighbours": {"file": [["folder", 0.7]]},
    },
    "log": [
        *training_log(losses(8.0, 3.0), mlm_loss=losses(7.3, 2.5), nsp_loss=0.5),
        *evaluation_log(eval_mlm_loss=[5.0, 4.0, 3.02, 3.0, 2.99], eval_mlm_accuracy=[0.1, 0.2, 0.3, 0.38, 0.4]),
    ],
    "samples": [
        {
            "step": step,
            "words": [
                {"before": "open the", "word": "file", "after": ".", "probability": p, "guesses": [["file", p]]}
            ],
            "pairs": [{"a": "open it .", "b": "read it .", "is_next": True, "probability": 0.6}],
        }
        for step, p in ((80, 0.1), (400, 0.7))
    ],
}
EVALUATION = {
    "metric": "accuracy",
    "metrics": {"accuracy": 0.9, "f1_macro": 0.89},
    "intervals_95": {"accuracy": [0.87, 0.93]},
    "constant_baselines": {"accuracy": 0.5, "f1_macro": 0.33},
    "simple_baselines": {"bag of words": {"accuracy": 0.8, "f1_macro": 0.79}},
    "labels": {
        name: {"true": 200, "predicted": 200, "right": 180, "precision": 0.9, "recall": 0.9, "f1": 0.9}
        for name in ("good", "bad")
    },
    "rows": 400,
    "rows_cut": 4,
    "rows_per_second": 100.0,
    "rows_left_out": 0,
}
ANALYSIS = {
    "confusion": {"names": ["good", "bad"], "counts": [[180, 20], [20, 180]]},
    "calibration": {
        "expected_calibration_error": 0.02,
        "confidence": 0.91,
        "accuracy": 0.9,
        "bins": [{"from": 0.9, "to": 1.0, "rows": 400, "confidence": 0.91, "accuracy": 0.9}],
    },
    "precision_recall": {
        "good": {
            "precision": [0.5, 0.9, 1.0],
            "recall": [1.0, 0.9, 0.0],
            "threshold": [0.0, 0.5, 1.0],
            "best_threshold": 0.45,
            "best_f1": 0.9,
            "average_precision": 0.95,
        }
    },
    "slices": {
        "truncated": [
            {"value": "no", "rows": 396, "metric": "accuracy", "score": 0.9, "interval": [0.87, 0.93]},
            {"value": "yes", "rows": 4, "metric": "accuracy", "score": 0.75, "interval": [0.25, 1.0]},
        ]
    },
    "suspects": [{"row": 3, "reference": "bad", "prediction": "good", "confidence": 0.99, "text": "a lovely film"}],
}
PREDICTIONS = [
    {"label": label, "score": 0.9, "scores": {"good": 0.9, "bad": 0.1}}
    | {"reference": true, "error": float(label != true)}
    | {"line": number + 1, "input": {"text": f"text number {number}", "label": true}}
    for number, (label, true) in enumerate([("good", "good"), ("bad", "bad"), ("good", "bad")] * 60)
]
NUMBERS = [
    {"score": number / 10, "reference": number / 10 + 0.01, "error": 0.01, "line": number, "input": {"text": "t"}}
    for number in range(1, 60)
]
"""Predictions of a regression; it needs the metric of one: {"results/metric": "pearson"}."""
ENTITIES = [
    {"tokens": ["Ann", "Lee", "met", "Bo", "in", "New", "York", "."], "tags": tags, "scores": [0.9] * 8}
    | {
        "reference": ["B-PER", "I-PER", "O", "B-PER", "O", "B-LOC", "I-LOC", "O"],
        "error": float(wrong),
        "line": number,
    }
    for number, (wrong, tags) in enumerate(
        [
            (0, ["B-PER", "I-PER", "O", "B-PER", "O", "B-LOC", "I-LOC", "O"]),
            (3, ["B-PER", "O", "O", "B-ORG", "O", "O", "I-LOC", "O"]),
        ]
        * 30,
        1,
    )
]
"""Predictions of token classification: {"results/task": "token-classification"}."""
FINETUNING = {
    "manifest": manifest("finetune", output="m"),
    "results": {
        "task": "text-classification",
        "metric": "accuracy",
        "validation": EVALUATION,
        "best": {"steps": 400, "seconds": 80.0, "tokens_seen": 40_000},
        "training_arguments": {"load_best_model_at_end": True},
        "data": {
            "train": {"rows": 2000, "unknown_tokens": 0.001, "median_length": 9}
            | {"balance": {"good": 1000, "bad": 1000}}
        },
        "data_checks": {
            "overlaps": [{"of": "validation", "in": "train", "rows": 400, "equal": 0, "near": 0}],
            "giveaway_words": [
                {"label": "good", "word": "lovely", "with_label": 90, "rows": 1000, "without": 9, "f1": 0.16}
            ],
        },
    },
    "log": [
        *training_log(losses(0.7, 0.2), rate=5e-5, ratio=4e-4),
        *evaluation_log(eval_loss=[0.5, 0.4, 0.36, 0.359], eval_accuracy=[0.7, 0.8, 0.9, 0.9]),
    ],
}
CORPUS = {
    "manifest": manifest("corpus", output="corpus", max_length=128, deduplicate=False, deduplicate_near=None)
    | {
        "counts": {
            "documents_read": 1000,
            "documents": 1000,
            "documents_empty": 0,
            "documents_filtered": {"checks:is_long": 3},
            "documents_duplicate": 2,
            "documents_near_duplicate": 0,
            "documents_of_one_sentence": 10,
            "documents_held_out": 50,
            "sentences": 20_000,
            "tokens": 400_000,
            "tokens_cut": 4000,
            "truncated": 90,
            "examples_training": 4000,
            "examples_validation": 300,
        },
        "statistics": {
            "unknown_rate": 0.0004,
            "training": {"tokens": 380_000, "length_mean": 95.0, "is_next_share": 0.5},
            "validation": {"tokens": 20_000, "length_mean": 95.0, "is_next_share": 0.5},
        },
        "skipped": {},
    },
    "results": {
        "length_counts": {"training": {"20": 100, "128": 3900}, "validation": {"128": 300}},
        "documents_sampled": 500,
        "sentence_counts": {"1": 5, "2 to 3": 495},
        "document_tokens": {"256 to 511": 500},
        "tokens_per_word": 1.3,
        "split_words": 0.2,
        "unknown_words": [["☃", 3]],
        "common_tokens": [["the", 900], ["##s", 300]],
        "common_continuations": [["##s", 300]],
        "examples": [{"a": "one . two .", "b": "three .", "label": 0, "tokens": 9}],
        "shared_spans": {"tokens": 20, "spans": 300, "found": 1, "training_tokens": 380_000},
    },
}
STAGES = {"pretrain": PRETRAINING, "finetune": FINETUNING, "corpus": CORPUS}
RETRIEVAL = {"manifest": {"stage": "evaluate"}, "results": {}}


def set_at(tree: dict, path: str, value) -> None:
    """`set_at(tree, "a/b", 1)` is `tree["a"]["b"] = 1`."""
    *names, last = path.split("/")
    for name in names:
        tree = tree[name]
    tree[last] = value


def write_stage(folder: Path, stage: str, changes: dict | None = None, predictions=PREDICTIONS) -> Path:
    """Writes the folder of a good run, with changes.

    Args:
        stage: one of `STAGES`, or `evaluate`, whose results are then among the changes.
        changes: path in the content of the stage, such as `results/metrics/mlm_accuracy`, and its value; `analysis/…`
            changes analysis.json.
    """
    content = copy.deepcopy({**STAGES.get(stage, RETRIEVAL), "analysis": ANALYSIS})
    for path, value in (changes or {}).items():
        set_at(content, path, value)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("manifest", "results", *(["config"] if "config" in content else [])):
        (folder / f"{name}.json").write_text(json.dumps(content[name]), encoding="utf-8")
    for name in ("log", "samples"):
        write_lines(folder / f"{name}.jsonl", content.get(name, ()))
    if stage == "finetune":
        part = folder / "validation"
        part.mkdir(exist_ok=True)
        (part / "analysis.json").write_text(json.dumps(content["analysis"]), encoding="utf-8")
        write_lines(part / "predictions.jsonl", predictions)
    return folder
