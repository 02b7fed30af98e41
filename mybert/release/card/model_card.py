"""Rendering of the model card by `huggingface_hub.ModelCard`, with examples in the language of the model."""

import json
import shlex
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from modeling_mybert import AUTO_MAP
from mybert.release.card.card_data import CardData
from mybert.release.card.markdown_escaping import in_markdown, in_metadata, one_line
from mybert.release.card.sections import (
    HELD_OUT,
    adaptation_rows,
    data_lines,
    merged_models,
    quality_lines,
    result_tables,
    scores_of,
    training_rows,
    vocabulary_lines,
)
from mybert.release.hub.bundle import CARD, Bundle
from mybert.release.hub.handler import PIPELINES
from mybert.release.hub.verify import pipeline_arguments
from mybert.release.settings import PushSettings

_TEMPLATE = Path(__file__).with_name("model_card.md")
EXAMPLES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("examples.yaml").read_text("utf-8"))
"""Inputs of the code and the widget of the card, by language."""
_LABELS_SHOWN = 20
_SEARCH_TAGS = {
    "retrieval": ("sentence-transformers", "feature-extraction"),
    "reranking": ("sentence-transformers", "cross-encoder", "reranker"),
}
_LICENSES = ("LICENSE", "LICENSE.txt", "LICENSE.md")
_SIZES = {
    "num_hidden_layers": "layers",
    "hidden_size": "hidden units",
    "num_attention_heads": "attention heads",
    "vocab_size": "tokens in the vocabulary",
}
_MASKED, _NEXT = ("fill-mask", "Masked language modelling"), ("text-classification", "Next sentence prediction")
_PRETRAINING_METRICS = {"mlm_accuracy": _MASKED, "perplexity": _MASKED, "nsp_accuracy": _NEXT}


def write_card(bundle: Bundle, settings: PushSettings, pin: str, verification: str) -> ModelCard:
    """Renders the card, whose examples load the revision `pin`, and saves it in the bundle."""
    data = CardData.of(bundle.folder)
    results, task = result_tables(data), PIPELINES[data.head]
    has_query = data.reads_pairs or data.search_task is not None
    config, texts = data.config, examples_in(settings.language, settings.example, has_query)
    inputs = request_inputs(data, texts)
    is_int8 = data.config.get("int8_outliers") is not None
    sizes = [f"{in_markdown(config[key])} {words}" for key, words in _SIZES.items() if key in config]
    sizes.append(f"{data.parameters:,} parameters")
    labels = list(map(in_markdown, data.labels[:_LABELS_SHOWN]))
    labels += [f"and {len(data.labels):,} in total"] * (len(data.labels) > _LABELS_SHOWN)
    card = ModelCard.from_template(
        metadata(data, settings),
        template_path=str(_TEMPLATE),
        title=in_markdown(settings.repo_id.split("/")[1]),
        model=data,
        stage=data.manifest.get("stage"),
        trained=data.has_steps,
        task=task,
        auto=next(auto for auto, name in AUTO_MAP.items() if name.endswith(f".{data.head}")),
        trust=", trust_remote_code=True" if is_int8 else "",
        is_int8=is_int8,
        texts=texts,
        code=repr,
        shell=lambda text: shlex.quote(one_line(text)),
        inputs=inputs,
        request=json.dumps({"inputs": inputs}, ensure_ascii=False),
        pipeline_arguments=pipeline_arguments(task, is_int8),
        sizes=sizes,
        labels=labels,
        repository=repr(settings.repo_id),
        revision=repr(pin),
        is_tag=pin != settings.revision,
        data=data_lines(data),
        training=training_rows(data),
        vocabulary=vocabulary_lines(data),
        adaptation=adaptation_rows(data),
        merged=merged_models(data),
        results=results,
        quality=quality_lines(data),
        positions=config.get("max_position_embeddings", 0),
        verification=verification,
        license=settings.license and in_markdown(settings.license),
        license_file=next((name for name in _LICENSES if name in data.files), None),
    )
    card.save(bundle.folder / CARD)
    return card


def metadata(data: CardData, settings: PushSettings) -> ModelCardData:
    """The YAML block; unknown fields are left out."""
    evaluations = _evaluations(data)
    values = {
        "library_name": "sentence-transformers" if data.search_task else "transformers",
        "pipeline_tag": data.hub_task,
        "language": settings.language,
        "license": settings.license,
        "base_model": data.base_model(),
        "datasets": data.datasets() or None,
        "metrics": list(dict.fromkeys(result.metric_type for result in evaluations)) or None,
        "tags": ["mybert", "bert", *_SEARCH_TAGS.get(data.search_task or "", ())],
    }
    shown = None if data.hub_task == "fill-mask" and not data.predicts_masked_tokens else data.hub_task
    return ModelCardData(
        **{name: in_metadata(value) for name, value in values.items()},
        widget=widget(shown, settings.language, in_metadata(data.mask), in_metadata(settings.example)),
        model_name=settings.repo_id.split("/")[1] if evaluations else None,
        eval_results=evaluations or None,
    )


def _evaluations(data: CardData) -> list[EvalResult]:
    """Entries of the `model-index`: one for each metric on held-out documents, test or validation rows.

    A trimmed model has none: its scores were measured on its parent.
    """
    if data.of_parent:
        return []
    if data.manifest.get("stage") in ("pretrain", "adapt", "distill"):
        metrics = data.results.get("metrics") or {}
        return [
            EvalResult(
                task_type=task,
                task_name=title,
                dataset_name="held-out documents of the training text",
                dataset_type="held-out-documents",
                dataset_split="validation",
                metric_type=key.rpartition("_")[2],
                metric_name=key.replace("_", " "),
                metric_value=metrics[key],
            )
            for key, (task, title) in _PRETRAINING_METRICS.items()
            if isinstance(metrics.get(key), (int, float))
        ]
    found, task = [], data.results.get("task")
    for split, entry in scores_of(data).items() if isinstance(task, str) else ():
        name = kind = in_metadata(data.source_of(split))
        facts = {"task_type": in_metadata(task), "dataset_split": split}
        if split == HELD_OUT:
            name, kind = in_metadata(data.held_out_queries), "held-out-queries"
            facts = {"task_type": data.hub_task}
        values = {in_metadata(metric): x for metric, x in entry["metrics"].items() if isinstance(x, (int, float))}
        kinds = {"dataset_name": name, "dataset_type": kind}
        found += [EvalResult(metric_type=metric, metric_value=x, **facts, **kinds) for metric, x in values.items()]
    return found


def examples_in(
    languages: list[str] | None, texts: list[str] | None = None, has_query: bool = False
) -> dict[str, Any]:
    """The inputs in the first language that has some, English otherwise; with these `texts` if they are given.

    Args:
        has_query: the first of several `texts` is a query, the others are passages.
    """
    examples = EXAMPLES[next((language for language in languages or () if language in EXAMPLES), "en")]
    if texts and texts[1:] and has_query:
        return {**examples, "question": texts[0], "texts": texts[1:]}
    return {**examples, "texts": texts} if texts else examples


def widget(
    task: str | None, languages: list[str] | None, mask: str, given: list[str] | None = None
) -> list[dict[str, str]] | None:
    """The examples of the widget on the Hub: those of the pipeline `task`; None for languages without inputs."""
    if languages and not given and not {"multilingual", *EXAMPLES} & {*languages}:
        return None
    examples = examples_in(languages, given, has_query=task == "sentence-similarity")
    texts = [{"text": text} for text in examples["texts"]]
    return {
        "fill-mask": [{"text": examples["mask"].format(mask=mask)}],
        **dict.fromkeys(("text-classification", "token-classification", "feature-extraction"), texts),
        "sentence-similarity": [{"source_sentence": examples["question"], "sentences": examples["texts"]}],
        "question-answering": [{"text": examples["question"], "context": examples["context"]}],
    }.get(task or "")


def request_inputs(data: CardData, examples: dict[str, Any]) -> Any:
    """The `inputs` of a request to `handler.py`, made of `examples`."""
    if data.reads_pairs:
        return [{"text": examples["question"], "text_pair": text} for text in examples["texts"]]
    masked = examples["mask"].format(mask=data.mask)
    return {
        "MyBertForPreTraining": masked,
        "MyBertForMaskedLM": masked,
        "MyBertForNextSentencePrediction": {"text": examples["start"], "text_pair": examples["choices"][0]},
        "MyBertForQuestionAnswering": {"question": examples["question"], "context": examples["context"]},
        "MyBertForMultipleChoice": {"text": examples["start"], "choices": examples["choices"]},
    }.get(data.head, examples["texts"])
