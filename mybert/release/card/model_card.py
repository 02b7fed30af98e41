"""The model card: rendered from facts, by `huggingface_hub.ModelCard`, with every string escaped."""

import functools
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from mybert.release.card.card_data import Facts
from mybert.release.card.code_examples import examples
from mybert.release.card.escaping import in_markdown, in_metadata
from mybert.release.card.sections import data_lines, limit_lines, result_tables, training_rows
from mybert.release.hub.bundle import CARD, Bundle
from mybert.release.settings import PushSettings

TEMPLATE = Path(__file__).with_name("model_card.md")
_CURVES = "training_curves.png"


def write_card(bundle: Bundle, settings: PushSettings, pin: str, checked: str) -> ModelCard:
    """Renders the card and puts it into the bundle.

    Args:
        pin: the revision that its examples load.
        checked: a sentence on how the bundle was verified, or that it was not.
    """
    facts = Facts.of(bundle.folder)
    name, head = facts.head
    results = result_tables(facts)
    card = ModelCard.from_template(
        metadata(facts, settings),
        template_path=str(TEMPLATE),
        title=in_markdown(settings.repo_id.split("/")[1]),
        what=_what(facts),
        examples=examples(name, head.auto, settings.repo_id, pin),
        pinned="the tag of this very upload" if pin != settings.revision else "a branch; a commit's hash pins better",
        data=data_lines(facts),
        training=training_rows(facts),
        results=results,
        baselines=any(row[3] for _, rows in results for row in rows),
        curves=_CURVES if _CURVES in facts.files else None,
        limits=limit_lines(facts),
        checked=checked,
        licence=_licence(facts, settings),
    )
    card.save(bundle.folder / CARD)
    return card


def metadata(facts: Facts, settings: PushSettings) -> ModelCardData:
    """The YAML block; unknown fields are left out."""
    _, head = facts.head
    evaluations = _evaluations(facts)
    values = {
        "library_name": "transformers",
        "pipeline_tag": head.pipeline,
        "language": settings.language,
        "license": settings.license,
        "base_model": facts.base_model(),
        "datasets": facts.datasets() or None,
        "metrics": list(dict.fromkeys(result.metric_type for result in evaluations)) or None,
        "tags": ["mybert", "bert", "custom_code"],
    }
    return ModelCardData(
        **{name: in_metadata(value) for name, value in values.items()},
        model_name=settings.repo_id.split("/")[1] if evaluations else None,
        eval_results=evaluations or None,
    )


def _what(facts: Facts) -> str:
    config, (_, head) = facts.shape, facts.head
    sizes = [
        f"{in_markdown(config[key])} {words}"
        for key, words in (
            ("num_hidden_layers", "layers"),
            ("hidden_size", "hidden units"),
            ("num_attention_heads", "attention heads"),
            ("vocab_size", "rows of vocabulary"),
        )
        if key in config
    ]
    return f"A BERT {head.what}: {', '.join(sizes)}, {facts.parameters:,} parameters."


def _evaluations(facts: Facts) -> list[EvalResult]:
    """What the Hub's `model-index` takes: one result for each metric on held-out or evaluated rows."""
    if facts.manifest.get("stage") == "pretrain":
        result = functools.partial(
            EvalResult,
            dataset_name="held-out documents of the training text",
            dataset_type="held-out-documents",
            dataset_split="validation",
        )
        kinds = (
            ("mlm_accuracy", "fill-mask", "Masked tokens", "accuracy"),
            ("perplexity", "fill-mask", "Masked tokens", "perplexity"),
            ("nsp_accuracy", "text-classification", "Next sentences", "accuracy"),
        )
        found = facts.results.get("metrics") or {}
        return [
            result(
                task_type=task,
                task_name=title,
                metric_type=metric,
                metric_name=key.replace("_", " "),
                metric_value=found[key],
            )
            for key, task, title, metric in kinds
            if isinstance(found.get(key), (int, float))
        ]
    task = facts.results.get("task")
    return [
        EvalResult(
            task_type=in_metadata(task),
            dataset_name=in_metadata(facts.evaluated_on(split)),
            dataset_type=in_metadata(facts.evaluated_on(split)),
            dataset_split=split,
            metric_type=in_metadata(metric),
            metric_value=value,
        )
        for split in ("test", "validation")
        for metric, value in (facts.results.get(split) or {}).get("metrics", {}).items()
        if isinstance(task, str) and isinstance(value, (int, float))
    ]


def _licence(facts: Facts, settings: PushSettings) -> str | None:
    file = next((name for name in ("LICENSE", "LICENSE.txt", "LICENSE.md") if name in facts.files), None)
    code = "The Python files are MyBERT's and under Apache-2.0."
    if settings.license:
        return f"The weights are under {in_markdown(settings.license)}" + (
            f"; see {file}. {code}" if file else f". {code}"
        )
    return f"See {file} for the weights. {code}" if file else code
