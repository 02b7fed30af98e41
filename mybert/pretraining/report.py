"""results.json, the curves and the closing tables of a finished run."""

from pathlib import Path
from typing import Any

from mybert.artifacts.manifest import RESULTS, versions, write_json
from mybert.common.quantities import duration
from mybert.common.tables import print_table
from mybert.pretraining.evaluation import accuracy_by_group, constant_baselines, nearest_neighbours
from mybert.pretraining.settings import PretrainSettings
from mybert.reports.forecast import COLUMNS, compare
from mybert.training.curves import CURVES, Panel, draw_curves
from mybert.training.metrics import idle_share_of_run
from mybert.training.trainer import RunTrainer

_DRAWS = {"mlm_accuracy": "mlm_tokens", "nsp_accuracy": "nsp_pairs"}
"""Metrics that are shares, and the metric with the number of draws."""
_METRICS = ("mlm_loss", "mlm_accuracy", "perplexity", "mlm_tokens", "nsp_loss", "nsp_accuracy", "nsp_pairs")
_TEACHER_METRICS = ("teacher_mlm_loss", "teacher_mlm_accuracy")
"""Of a distillation."""


def final_metrics(trainer: RunTrainer) -> dict[str, float]:
    """The evaluation metrics of the finished model, from the log if possible; empty without held-out documents."""
    if trainer.eval_dataset is None:
        return {}
    logged = [log for log in trainer.state.log_history if "eval_loss" in log]
    fresh = logged and logged[-1]["step"] == trainer.state.global_step and not trainer.args.load_best_model_at_end
    metrics = logged[-1] if fresh else trainer.evaluate()
    names = dict.fromkeys((*_METRICS, *trainer.objective.loss_parts, *_TEACHER_METRICS))
    return {name: metrics[f"eval_{name}"] for name in names if f"eval_{name}" in metrics}


def tokens_of_evaluation(trainer: RunTrainer) -> dict[str, Any]:
    """Accuracy by frequency and kind of token in the last evaluation, and neighbours of frequent words.

    All processes must call it. Empty without held-out documents.
    """
    if trainer.eval_dataset is None:
        return {}
    counts = trainer.objective.token_counts().cpu().numpy()
    results: dict[str, Any] = {**accuracy_by_group(counts, trainer.processing_class)}
    if not trainer.is_fsdp_enabled:  # otherwise a process has a part of the embeddings
        embeddings = trainer.model.get_input_embeddings().weight
        results["neighbours"] = nearest_neighbours(embeddings, counts[0], trainer.processing_class)
    return results


def write_report(
    trainer: RunTrainer, settings: PretrainSettings, metrics: dict[str, Any], more: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """Writes results.json and the curves into the output folder.

    Args:
        trainer: after training.
        metrics: of `final_metrics`.
        more: further entries, as those of `tokens_of_evaluation`.
        seconds: wall time of training.

    Returns:
        The content of results.json.
    """
    from scipy.stats import binomtest  # here, since its import takes half a second

    baselines = constant_baselines(trainer.eval_dataset, trainer.data_collator.masker) if metrics else {}
    results = {
        "metrics": metrics,
        "constant_baselines": baselines,
        "seed": trainer.args.seed,
        "steps": trainer.state.global_step,
        "epochs": trainer.state.epoch,
        "tokens_seen": trainer.state.num_input_tokens_seen,
        "useful_flops": trainer.state.total_flos,
        "training_seconds": round(seconds, 3),
        "tokens_per_second": round(trainer.state.num_input_tokens_seen / max(seconds, 1e-3)),
        "idle_share": idle_share_of_run(trainer.state.log_history),
        "settings": settings.of_training(),
        "training_arguments": trainer.args.to_dict(),
        "corpus_tokens": int(trainer.objective.lengths.sum()),
        "versions": versions(),
        **more,
    }
    for name, draws in _DRAWS.items():
        if name in metrics:
            hits, number = round(metrics[name] * metrics[draws]), metrics[draws]
            results[f"{name}_interval_95"] = tuple(binomtest(hits, number).proportion_ci(method="wilson"))
    output = Path(settings.output)
    panels = [
        Panel("masked-token loss", "mlm_loss", "eval_mlm_loss"),
        Panel("next-sentence loss", "nsp_loss", "eval_nsp_loss"),
        Panel("masked-token accuracy", None, "eval_mlm_accuracy", baselines.get("mlm_accuracy")),
        Panel("next-sentence accuracy", None, "eval_nsp_accuracy", baselines.get("nsp_accuracy")),
    ]
    draw_curves(trainer.state.log_history, panels, output / CURVES)
    write_json(output / RESULTS, results)
    return results


def print_report(results: dict[str, Any]) -> None:
    """Prints each metric beside the score of the best constant prediction, and the totals of training."""
    metrics, baselines = results["metrics"], results["constant_baselines"]
    rows: list[tuple[Any, ...]] = []
    for name, value in metrics.items():
        title = name.replace("_", " ")
        rows.append((title, value, baselines.get(name)))
        if f"{name}_interval_95" in results:
            low, high = results[f"{name}_interval_95"]
            rows.append((f"{title}, 95% interval", f"{low:.4f} to {high:.4f}", None))
    if rows:
        print_table("Held-out documents", rows, ("metric", "value", "best constant prediction"))
    rows = [
        ("seed", results["seed"]),
        ("steps", results["steps"]),
        ("tokens seen", results["tokens_seen"]),
        ("training time, without evaluations and saving", duration(results["training_seconds"])),
        ("tokens per second", results["tokens_per_second"]),
    ]
    if results["idle_share"] is not None:
        rows.append(("idle share of the processes, by tokens", f"{results['idle_share']:.1%}"))
    print_table("Training", rows)
    if forecast := compare(results):
        print_table("Forecast and result", [tuple(measure) for measure in forecast], COLUMNS)
