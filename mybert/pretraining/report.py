"""What a finished run leaves beside its model: results.json, curves and the closing table."""

import dataclasses
from pathlib import Path

from mybert.common.manifest import versions, write_json
from mybert.common.quantities import duration
from mybert.common.tables import print_table
from mybert.pretraining.curves import draw_curves
from mybert.pretraining.meter import idle_share_of_run
from mybert.pretraining.metrics import constant_baselines, wilson_interval
from mybert.pretraining.settings import PretrainSettings
from mybert.pretraining.trainer import MyBertTrainer

RESULTS = "results.json"
CURVES = "training_curves.png"
_SHARES = {"mlm_accuracy": "mlm_tokens", "nsp_accuracy": "nsp_pairs"}  # metric → of how many draws
_METRICS = ("mlm_loss", "mlm_accuracy", "perplexity", "mlm_tokens", "nsp_loss", "nsp_accuracy", "nsp_pairs")


def final_metrics(trainer: MyBertTrainer) -> dict[str, float]:
    """The model's held-out metrics, from the log if its last step was evaluated; empty when nothing is held out."""
    if trainer.eval_dataset is None:
        return {}
    logged = [log for log in trainer.state.log_history if "eval_loss" in log]
    fresh = logged and logged[-1]["step"] == trainer.state.global_step and not trainer.args.load_best_model_at_end
    metrics = logged[-1] if fresh else trainer.evaluate()
    return {name: metrics[f"eval_{name}"] for name in _METRICS if f"eval_{name}" in metrics}


def write_report(trainer: MyBertTrainer, settings: PretrainSettings, metrics: dict, seconds: float) -> dict:
    """Writes results.json and the curves into the output folder.

    Args:
        trainer: after training.
        settings: of the run.
        metrics: of `final_metrics`.
        seconds: wall time of training.

    Returns:
        What results.json holds.
    """
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
        "settings": dataclasses.asdict(settings),
        "training_arguments": trainer.args.to_dict(),
        "versions": versions(),
    }
    for name, drawn in _SHARES.items():
        if name in metrics:
            results[f"{name}_interval_95"] = wilson_interval(metrics[name], metrics[drawn])
    output = Path(settings.output)
    draw_curves(trainer.state.log_history, output / CURVES)
    write_json(output / RESULTS, results)
    return results


def print_report(results: dict) -> None:
    """The closing table: each held-out metric beside what a constant answer would reach."""
    metrics, baselines = results["metrics"], results["constant_baselines"]
    rows = [(name.replace("_", " "), value, baselines.get(name)) for name, value in metrics.items()]
    for name in _SHARES:
        if f"{name}_interval_95" in results:
            low, high = results[f"{name}_interval_95"]
            title = name.replace("_", " ")
            place = next(i for i, row in enumerate(rows) if row[0] == title) + 1
            rows.insert(place, (f"{title}, 95 % interval", f"{low:.4f} to {high:.4f}", None))
    if rows:
        print_table("Held-out documents", rows, ("metric", "value", "best constant answer"))
    if metrics.get("mlm_accuracy", 1) <= baselines.get("mlm_accuracy", 0):
        print(
            "nothing learned yet but which token is the commonest. More steps, another --learning-rate, or shorter "
            "examples to begin with (--phase2-corpus for the longer ones) may help"
        )
    rows = [
        ("seed", results["seed"]),
        ("steps", results["steps"]),
        ("tokens seen", results["tokens_seen"]),
        ("training time", duration(results["training_seconds"])),
        ("tokens per second", results["tokens_per_second"]),
    ]
    if results["idle_share"] is not None:
        rows.append(("processes idle, by their tokens", f"{results['idle_share']:.1%}"))
    print_table("Training", rows)
