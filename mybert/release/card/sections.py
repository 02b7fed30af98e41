"""The lists and tables of the model card."""

from typing import Any

from mybert.common.metrics import metric_title
from mybert.io.sources import PYTHON_DOCS, is_python_docs
from mybert.release.card.card_data import CardData
from mybert.release.card.markdown_escaping import in_markdown
from mybert.release.hub.public_records import NOT_NAMED
from mybert.tasks import SEARCH_TASKS

_SHOWN = 20  # sources
_WORDS_SHOWN = 50
_COUNTS = {
    "documents": ("document", ""),
    "documents_duplicate": ("duplicate document", " removed"),
    "documents_near_duplicate": ("near duplicate", " removed"),
    "sentences": ("sentence", ""),
    "tokens": ("token", " of text"),
    "documents_held_out": ("document", " held out for evaluation"),
}
_ARGUMENTS = {
    "per_device_train_batch_size": "batch size per device",
    "gradient_accumulation_steps": "gradient accumulation steps",
    "learning_rate": "peak learning rate",
    "lr_scheduler_type": "learning rate schedule",
    "warmup_steps": "warm-up (steps, or share of the steps if below 1)",
    "optim": "optimizer",
    "adam_beta1": "Adam beta 1",
    "adam_beta2": "Adam beta 2",
    "adam_epsilon": "Adam epsilon",
    "weight_decay": "weight decay",
    "max_grad_norm": "gradient clipping (norm)",
}

_OF_FEW_LABELS = {
    "optim": "AdamW for contrastive learning of the encoder's layers; the head is a logistic regression",
    "lr_scheduler_type": "one cycle",
    "adam_beta1": None,  # it changes during the cycle
    "adam_epsilon": None,
}


_SEARCH_INPUTS = {
    "train": "queries and passages: ",
    "documents-": "documents: ",
    "queries": "queries: ",
    "judgements": "judgements: ",
}
_SEARCH_BASELINES = {
    "bm25": "BM25",
    "start": "the model that it started from",
    "alone": "the reranker alone",
}


def data_lines(data: CardData) -> list[str]:
    """Sources and counts of the pretraining text; rows of the fine-tuning data; teachers and their data."""
    lines = []
    if data.results.get("task") in SEARCH_TASKS:
        for kind, use in _SEARCH_INPUTS.items():
            lines += _source_lines(data.training, kind, use)
        pairs = data.results.get("pairs") or {}
        if pairs.get("train"):
            lines.append(f"{_counted(pairs['train'], 'training pair')}")
        for kind, count in (pairs.get("mined") or {}).items():
            lines.append(f"mined from the documents: {_counted(count, 'pair')} ({in_markdown(kind)})")
    for name, manifest in {"": data.manifest, **data.chain}.items():
        stage, inputs = manifest.get("stage"), name.split("/")
        use = "for the teacher: " if "teacher" in inputs else ""
        if stage in ("adapt", "corpus"):
            lines += _corpus_lines(manifest, use)
        if stage == "adapt":
            lines += _source_lines(manifest, "task_data-", f"{use}texts of labelled rows: ")
            lines += _source_lines(manifest, "replay-", f"{use}general text, mixed in: ")
        if stage == "finetune" and use:
            lines += _source_lines(manifest, "train", f"{use}labelled rows: ")
        lines += _source_lines(manifest, "teacher", "teacher: ", "local checkpoint")
    for split, facts in (data.results.get("data") or {}).items():
        rows = _counted(facts["rows"], "row") if "rows" in facts else "rows"
        lines.append(f"{in_markdown(split)}: {rows} of {in_markdown(data.source_of(split))}")
    return list(dict.fromkeys(lines))  # merged models have the same text


def _corpus_lines(manifest: dict[str, Any], phase: str) -> list[str]:
    lines = _source_lines(manifest, "input-", phase)
    counts, statistics = dict(manifest.get("counts", {})), manifest.get("statistics", {})
    settings = manifest.get("settings", {})
    deduplicated = settings.get("deduplicate") is not False or settings.get("deduplicate_near") is not None
    if not deduplicated:
        counts.pop("documents_duplicate", None)
    if settings.get("deduplicate_near") is None:
        counts.pop("documents_near_duplicate", None)
    counted = [_counted(counts[key], noun) + rest for key, (noun, rest) in _COUNTS.items() if key in counts]
    if counted:
        lines.append(f"{phase}{', '.join(counted)}{'' if deduplicated else '; duplicates were not removed'}")
    if "training" in statistics:
        examples, tokens = counts.get("examples_training"), statistics["training"].get("tokens")
        times = settings.get("dupe_factor", 1)
        uses = "" if times == 1 else f"; each training document was used {times} times, with different segments"
        lines.append(f"{phase}{_counted(examples, 'training example')} with {_counted(tokens, 'token')}{uses}")
    if "unknown_rate" in statistics:
        lines.append(f"{phase}{statistics['unknown_rate']:.3%} of the tokens are [UNK]")
    return lines


def _source_lines(manifest: dict[str, Any], kind: str, use: str, noun: str = "local source") -> list[str]:
    entries = _inputs(manifest, kind)
    more = [f"{use}{len(entries) - _SHOWN:,} more sources"] if len(entries) > _SHOWN else []
    return [f"{use}{_source(entry, noun)}" for entry in entries[:_SHOWN]] + more


def _counted(number: object, noun: str) -> str:
    return f"{in_markdown(number)} {noun}{'' if number == 1 else 's'}"


def _inputs(manifest: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [entry for key, entry in manifest.get("inputs", {}).items() if key.startswith(kind)]


def _source(entry: dict[str, Any], noun: str = "local source") -> str:
    count = entry.get("sources", 1)
    name = str(entry.get("path", f"a {noun}" if count == 1 else _counted(count, noun)))
    names = {"-": "standard input", PYTHON_DOCS: "the documentation inside Python"}
    if is_python_docs(name) and ":" in name:
        names[name] = f"the documentation inside the package {name.partition(':')[2]}"
    text = in_markdown(names.get(name, name))
    if "bytes" in entry:
        text += f", {in_markdown(entry['bytes'])} bytes"
    return text + (f", SHA-256 {in_markdown(entry['sha256'][:16])}…" if "sha256" in entry else "")


def vocabulary_lines(data: CardData) -> list[str]:
    """Changes of the vocabulary by `mybert adapt` or `mybert trim`."""
    lines = []
    if change := data.results.get("adaptation"):
        words = change["new_words"]
        shown = [f"{word['piece']} ({' '.join(word['pieces'])})" for word in words[:_WORDS_SHOWN]]
        more = f", and {len(words) - _WORDS_SHOWN:,} more" if len(words) > _WORDS_SHOWN else ""
        if words:
            listed = ", ".join(map(in_markdown, shown)) + more
            lines.append(f"{_counted(len(words), 'new word')}, with their former word pieces: {listed}")
        if change.get("new_head"):
            lines.append("the masked-language-model head was new, because the original model had none")
    if change := data.manifest.get("trimmed"):
        before, after = change["before"], change["after"]
        sizes = [f"{in_markdown(part[name])} {name}" for part in (after, before) for name in ("tokens", "parameters")]
        lines += [f"trimmed from {_source(entry, 'local checkpoint')}" for entry in _inputs(data.manifest, "model")]
        lines.append(f"trimmed from {sizes[2]} and {sizes[3]} to {sizes[0]} and {sizes[1]}")
    return lines


def merged_models(data: CardData) -> list[tuple[str, str]]:
    """Each model of an average by `mybert merge`, and its weight."""
    models = _inputs(data.manifest, "model-") if data.manifest.get("stage") == "merge" else []
    shares = data.manifest.get("weights") or [None] * len(models)
    return [(_source(one, "local checkpoint"), _or_dash(share)) for one, share in zip(models, shares, strict=False)]


def adaptation_rows(data: CardData) -> list[tuple[str, str, str]]:
    """Score, value before and value after adaptation on held-out text."""
    held_out = (data.results.get("adaptation") or {}).get("held_out") or {}
    rows = []
    for text, scores in held_out.items():
        after = scores.get("after") or {}
        for name, value in (scores.get("before") or {}).items():
            title = f"{in_markdown(text)} text: {in_markdown(name.replace('_', ' '))}"
            rows.append((title, _or_dash(value), _or_dash(after.get(name))))
    return rows


def _or_dash(value: float | None) -> str:
    return "-" if value is None else in_markdown(value)


def training_rows(data: CardData) -> list[tuple[str, str]]:
    """Hyperparameters, duration, machine and versions; empty if no manifest tells of a training."""
    if not data.training:
        return []
    results, manifest = data.results, data.manifest
    arguments, settings = results.get("training_arguments") or {}, results.get("settings") or {}
    run = _published_run(results, arguments)
    new = None
    if manifest.get("stage") in ("pretrain", "distill"):
        of_text = settings.get("initial_weights") == "text"
        new = "new, initialised from co-occurrences in the text" if of_text else "new, random"
    teacher, layers = settings.get("teacher"), settings.get("layers")
    start = settings.get("init_from") or settings.get("model") or (teacher if layers else None)
    if settings.get("optimizer") == "muon":
        arguments = {**arguments, "optim": "Muon for the encoder's matrices, AdamW for the rest"}
    if results.get("few_labels"):
        arguments = {**arguments, **_OF_FEW_LABELS}
    if settings.get("max_tokens_per_batch"):
        arguments = {**arguments, "per_device_train_batch_size": None}
    versions = manifest.get("versions") or results.get("versions") or {}
    if run.get("steps") == 0:  # a channel of words needs none
        arguments = {}
    begin, end = settings.get("start_mlm_probability"), settings.get("mlm_probability")
    flops = run.get("flops", results.get("useful_flops"))
    values = {
        "initial weights": (data.base_model() if start or not teacher else None) or _checkpoint(start) or new,
        "initializer range": settings.get("initializer_range"),
        "layers kept of the initial weights": layers,
        "teacher": _checkpoint(teacher),
        "distillation losses": " ".join(settings.get("losses") or ()),
        "maximum sequence length": data.trained_length,
        "steps": run.get("steps"),
        "epochs": run.get("epochs"),
        "tokens seen": run.get("tokens_seen") or None,
        "tokens per batch and device": settings.get("max_tokens_per_batch"),
        **{words: run.get(key, arguments.get(key)) for key, words in _ARGUMENTS.items()},
        "dropout": data.config.get("hidden_dropout_prob") if manifest else None,
        "masking probability": end if begin in (None, end) else f"{begin} at the first step, then linearly to {end}",
        "masking": {True: "whole words", False: "tokens", None: None}.get(settings.get("whole_word_masking")),
        "precision": next(filter(arguments.get, ("bf16", "fp16")), "float32" if arguments else None),
        "seed": run.get("seed"),
        "training time (seconds)": run.get("training_seconds"),
        "tokens per second": results.get("tokens_per_second"),
        "floating-point operations": f"{flops:.3g}" if flops else None,
        "hardware": manifest.get("hardware"),
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
        "finished": manifest.get("created"),
    }
    return [(name, in_markdown(value)) for name, value in values.items() if value not in (None, "", {})]


def _checkpoint(name: str | None) -> str | None:
    return "a local checkpoint" if name == NOT_NAMED else name


def _published_run(results: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The facts of a training; of several runs of a fine-tuning, those of the published one."""
    best = results.get("best")
    if not best:
        return results
    names = {"batch_size": "per_device_train_batch_size", "seconds": "training_seconds"}
    run = {names.get(name, name): value for name, value in best.items()}
    return run | {"epochs": None} if (arguments.get("max_steps") or 0) > 0 else run


HELD_OUT = "held out"
"""The scores of held-out queries among those of `scores_of`."""
_CERTAIN = 10  # references of a label below which its F1 says little


def quality_lines(data: CardData) -> list[str]:
    """What a fine-tuned model is good and bad at: its main score beside the baselines, its best and worst labels."""
    metric = data.results.get("metric", "")
    scored = {split: entry for split, entry in scores_of(data).items() if entry["metrics"].get(metric) is not None}
    if not scored:
        return []
    split, entry = next(iter(scored.items()))
    title, low_high = in_markdown(metric_title(metric)), (entry.get("intervals_95") or {}).get(metric)
    rows = _counted(entry["rows"], "row") if "rows" in entry else data.held_out_queries
    where = f"On rows that it was not trained on ({in_markdown(split)}, {rows})"
    if data.is_cross_validated(split):
        where = f"In cross-validation of its training rows ({rows})"
    if split == HELD_OUT:
        where = f"On {rows}"
    line = f"{where}: {title} {in_markdown(entry['metrics'][metric])}"
    if low_high:
        line += f" (95% interval {in_markdown(low_high[0])} to {in_markdown(low_high[1])})"
    others = {"the best constant prediction": entry.get("constant_baselines")} | entry.get("simple_baselines", {})
    known = [f"{in_markdown(name)} has {in_markdown(one[metric])}" for name, one in others.items() if one]
    line = "; ".join([line, *known])
    labels = {n: s["f1"] for n, s in (entry.get("labels") or {}).items() if s["true"] >= _CERTAIN}
    if len(labels) > 1:
        ranked = sorted(labels, key=lambda name: labels[name])
        best, worst = (f"{in_markdown(name)} (F1 {labels[name]:.3f})" for name in (ranked[-1], ranked[0]))
        of_some = f" of those with {_CERTAIN} rows or more" if len(labels) < len(entry["labels"]) else ""
        line += f". Best label{of_some}: {best}; worst: {worst}"
    return [line]


def scores_of(data: CardData) -> dict[str, dict[str, Any]]:
    """The scores of held-out queries, of test and of validation rows, as far as there are any."""
    results, entries = data.results, {}
    if results.get("task") in SEARCH_TASKS and results.get("held_out"):
        titles = dict(_SEARCH_BASELINES)
        if results["task"] == "reranking":
            titles["start"] = f"BM25 with {titles['start']}"
        others = {title: results.get(name) for name, title in titles.items()}
        baselines = {title: scores["metrics"] for title, scores in others.items() if scores}
        entries[HELD_OUT] = {**results["held_out"], "simple_baselines": baselines}
    entries |= {split: results.get(split) or {} for split in ("test", "validation")}
    return {split: entry for split, entry in entries.items() if entry.get("metrics")}


def result_tables(data: CardData) -> list[tuple[str, list[str], list[tuple[str, ...]]]]:
    """Title, names of the baselines, and rows (metric, value, 95% interval, baselines) of each evaluation."""
    results = data.results
    tables = []
    if isinstance(results.get("metrics"), dict):
        intervals = {name: results.get(f"{name}_interval_95") for name in results["metrics"]}
        table = _baselines_and_rows({**results, "intervals_95": intervals})
        tables.append(("Held-out documents of the training text", *table))
    for split, entry in scores_of(data).items():
        count = f", {_counted(entry['rows'], 'row')}" if "rows" in entry else ""
        title = f"{in_markdown(split)} set ({in_markdown(data.source_of(split))}{count})"
        if split == HELD_OUT:
            title = data.held_out_queries[0].upper() + data.held_out_queries[1:]
        tables.append((title, *_baselines_and_rows(entry)))
    parent = ", measured before the vocabulary was trimmed" if data.of_parent else ""
    return [(f"{title}{parent}", names, rows) for title, names, rows in tables if rows]


def _baselines_and_rows(entry: dict[str, Any]) -> tuple[list[str], list[tuple[str, ...]]]:
    every = {"best constant prediction": entry.get("constant_baselines"), **(entry.get("simple_baselines") or {})}
    baselines = {name: scores for name, scores in every.items() if scores}
    rows = []
    for name, value in entry["metrics"].items():
        low, high = (entry.get("intervals_95") or {}).get(name) or (None, None)
        interval = "" if low is None else f"{in_markdown(low)} to {in_markdown(high)}"
        others = (in_markdown(scores[name]) if name in scores else "" for scores in baselines.values())
        rows.append((in_markdown(metric_title(name)), in_markdown(value), interval, *others))
    return list(map(in_markdown, baselines)), rows
