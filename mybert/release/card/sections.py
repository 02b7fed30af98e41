"""The lists and tables of a card."""

from mybert.release.card.card_data import Facts
from mybert.release.card.escaping import in_markdown

_SOURCES_SHOWN = 20
_DATA_COUNTS = (
    ("documents", "documents"),
    ("documents_duplicate", "documents left out since they repeat another"),
    ("sentences", "sentences"),
    ("tokens", "tokens of text"),
    ("documents_held_out", "documents held out for evaluation"),
)
_ARGUMENTS = (
    ("per_device_train_batch_size", "sequences per device and forward pass"),
    ("gradient_accumulation_steps", "forward passes per step"),
    ("learning_rate", "peak learning rate"),
    ("lr_scheduler_type", "schedule"),
    ("warmup_steps", "warm-up (steps, or their share if below 1)"),
    ("optim", "optimizer"),
    ("adam_beta1", "Adam beta 1"),
    ("adam_beta2", "Adam beta 2"),
    ("adam_epsilon", "Adam epsilon"),
    ("weight_decay", "weight decay"),
    ("max_grad_norm", "gradients clipped to norm"),
)


def data_lines(facts: Facts) -> list[str]:
    """Where the text came from and what was counted in it; the rows of a fine-tuned model."""
    lines = []
    for name, manifest in facts.corpora().items():
        lines += _corpus_lines(manifest, "second phase: " if "phase2" in name else "")
    for split, found in (facts.results.get("data") or {}).items():
        rows = f"{in_markdown(found['rows'])} rows" if "rows" in found else "rows"
        lines.append(f"{in_markdown(split)}: {rows} of {in_markdown(facts.evaluated_on(split))}")
    return lines


def _corpus_lines(manifest: dict, phase: str) -> list[str]:
    entries = [entry for key, entry in manifest.get("inputs", {}).items() if key.startswith("input-")]
    lines = [f"{phase}{_source(entry)}" for entry in entries[:_SOURCES_SHOWN]]
    if len(entries) > _SOURCES_SHOWN:
        lines.append(f"and {len(entries) - _SOURCES_SHOWN:,} sources more")
    counts, statistics = manifest.get("counts", {}), manifest.get("statistics", {})
    counted = [f"{in_markdown(counts[key])} {words}" for key, words in _DATA_COUNTS if key in counts]
    if manifest.get("settings", {}).get("deduplicate") is False:
        counted = [line for line in counted if "repeat" not in line] + ["repeated documents were not looked for"]
    if counted:
        lines.append(f"{phase}{', '.join(counted)}")
    if "training" in statistics:
        examples, tokens = counts.get("examples_training"), statistics["training"].get("tokens")
        lines.append(f"{phase}{in_markdown(examples)} training examples of {in_markdown(tokens)} tokens in all")
    if "unknown_rate" in statistics:
        lines.append(f"{phase}{statistics['unknown_rate']:.3%} of the tokens are unknown to the vocabulary")
    return lines


def _source(entry: dict) -> str:
    name = {"-": "standard input", "python-docs": "the documentation inside Python"}.get(entry.get("path"))
    text = in_markdown(name or entry.get("path", "a source without a name"))
    if "bytes" in entry:
        text += f", {in_markdown(entry['bytes'])} bytes"
    return text + (f", SHA-256 {in_markdown(entry['sha256'][:16])}…" if "sha256" in entry else "")


def training_rows(facts: Facts) -> list[tuple[str, str]]:
    """Hyperparameters, amount, time, machine and versions, as far as they were recorded."""
    results, manifest = facts.results, facts.manifest
    arguments, settings = results.get("training_arguments") or {}, results.get("settings") or {}
    best = results.get("best") or {}
    start = facts.base_model() or settings.get("init_from") or settings.get("model")
    values = [
        ("started from", start if start else "new weights" if manifest.get("stage") == "pretrain" else None),
        ("steps", best.get("steps", results.get("steps"))),
        ("epochs", best.get("epochs", results.get("epochs"))),
        ("tokens seen", best.get("tokens_seen", results.get("tokens_seen"))),
        *((words, best.get(key, arguments.get(key))) for key, words in _ARGUMENTS),
        ("dropout", facts.shape.get("hidden_dropout_prob") if manifest else None),
        ("share of tokens to guess", settings.get("mlm_probability")),
        ("masking", _masking(settings)),
        ("precision", _precision(arguments)),
        ("seed", best.get("seed", results.get("seed"))),
        ("seconds of training", results.get("training_seconds")),
        ("seconds of training and its evaluations", best.get("seconds")),
        ("tokens a second", results.get("tokens_per_second")),
        ("floating-point operations", _power(best.get("flops", results.get("useful_flops")))),
        ("hardware", manifest.get("hardware")),
        ("commit of MyBERT", manifest.get("commit")),
        ("versions", _versions(manifest.get("versions") or results.get("versions"))),
        ("finished", manifest.get("created")),
    ]
    return [(name, in_markdown(value)) for name, value in values if value not in (None, "", {})]


def _precision(arguments: dict) -> str | None:
    if not arguments:
        return None
    return next((name for name in ("bf16", "fp16") if arguments.get(name)), "float32")


def _masking(settings: dict) -> str | None:
    return {True: "of whole words", False: "of word pieces"}.get(settings.get("whole_word_masking"))


def _power(value) -> str | None:
    return None if not value else f"{value:.3g}"


def _versions(versions: dict | None) -> str | None:
    return ", ".join(f"{name} {number}" for name, number in versions.items()) if versions else None


def result_tables(facts: Facts) -> list[tuple[str, list[tuple[str, str, str, str]]]]:
    """Title and rows (metric, value, interval, constant answer) of each evaluation."""
    results = facts.results
    tables = []
    if isinstance(results.get("metrics"), dict):
        intervals = {name: results.get(f"{name}_interval_95") for name in results["metrics"]}
        rows = _rows(results["metrics"], intervals, results.get("constant_baselines") or {})
        tables.append(("On held-out documents of the training text, masked anew:", rows))
    for split in ("test", "validation"):
        if found := results.get(split):
            rows = _rows(*(found.get(name) or {} for name in ("metrics", "intervals_95", "constant_baselines")))
            title = f"On {in_markdown(split)} rows ({in_markdown(facts.evaluated_on(split))}"
            tables.append((f"{title}, {in_markdown(found['rows'])} rows):" if "rows" in found else f"{title}):", rows))
    return [(title, rows) for title, rows in tables if rows]


def _rows(metrics: dict, intervals: dict, baselines: dict) -> list[tuple[str, str, str, str]]:
    rows = []
    for name, value in metrics.items():
        low, high = intervals.get(name) or (None, None)
        interval = "" if low is None else f"{in_markdown(low)} to {in_markdown(high)}"
        baseline = in_markdown(baselines[name]) if name in baselines else ""
        rows.append((in_markdown(name.replace("_", " ")), in_markdown(value), interval, baseline))
    return rows


def limit_lines(facts: Facts) -> list[str]:
    """What follows from the facts about where the model will not serve."""
    positions = facts.shape.get("max_position_embeddings")
    lines = []
    if positions is not None:
        lines.append(f"Texts of at most {in_markdown(positions)} tokens; longer ones are refused, not cut.")
    lengths = [manifest.get("settings", {}).get("max_length") for manifest in facts.corpora().values()]
    lengths = [length for length in lengths if isinstance(length, int)]
    if lengths and positions is not None and max(lengths) < positions:
        lines.append(
            f"It was trained on at most {max(lengths):,} tokens at once; positions beyond were never trained."
        )
    head, _ = facts.head
    if head != "MyBertModel":
        lines.append(
            f"{in_markdown(head)} was trained; loaded as another class, heads that it lacks start from random."
        )
    lines.append("It knows the text it was trained on, with that text's subjects, gaps and prejudices.")
    return lines
