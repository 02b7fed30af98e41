"""Checks of a training run, from its log: learning rate, warm-up, overfitting, convergence, speed."""

import itertools
import statistics
from collections.abc import Iterator

import numpy as np

from mybert.common.metrics import metric_of
from mybert.common.quantities import counted
from mybert.reports.findings import Finding, judged, level_of
from mybert.reports.stage_files import StageFiles, is_number

_RISE_AMBER, _RISE_RED = 0.02, 0.10  # of the held-out loss above its minimum
_STILL_FALLING = 0.02  # improvement of the held-out loss in the last quarter of the run, at a falling learning rate
_LEARNED = 0.01  # the training loss at the end, relative to the first
_UNSTABLE = 0.05  # the training loss at the end above its lowest smoothed value
_UNDONE = 0.1  # the same, as a share of the whole fall of the loss
_EXPLOSION = 1.3  # the smoothed training loss above the first one
_LARGE_UPDATE = 0.03  # a step's change of a weight matrix, relative to its norm, at the highest learning rate
_NEW_MOVE, _SMALL_MOVE = 0.5, 0.02  # sum of these changes over a run, of a new and of a pretrained model
_SMALL_FALL = 0.1  # of the training loss
_EARLY_JUMP = 1.15
_OPPOSED = 1.1  # gradient noise: successive steps point against each other
_AGREED = 0.3  # gradient noise: successive steps point in one direction
_NOISY = 0.95  # gradient noise: a larger batch would make steps better
_LARGE_START = 0.05  # change of the weights by one of the first steps
_SHORT_WARMUP = 0.03
_SHORT = 60  # seconds, in which the speed varies by chance
_SLOWDOWN = 0.6
_REACHED = {128: 0.3, 256: 0.45, 512: 0.6}
"""Share of the speed of float32 products that a CPU reaches in training, by hidden size, with 2,000 tokens a batch."""
_FAR_BELOW = 0.2  # of that share; short batches, old processors and one busy neighbour stay above
_LOW_MFU = 0.02  # in 16 bits and on GPUs, which narrow layers leave idle
_COMPETING = 1 / 3  # of the log entries
_OPTIMIZER = 0.3  # of the time, above which the optimizer is the reason for a low speed
_IDLE = 0.1
_LEAST_LOSS = 1e-3  # differences between smaller ones mean little


def held_out_loss_rises(files: StageFiles) -> Iterator[Finding]:
    losses = held_out_losses(files)
    if len(losses) < 3:
        return
    steps, values = zip(*losses, strict=True)
    best, last = min(values), values[-1]
    rise, where = _change(best, last), steps[values.index(best)]
    evidence = f"Held-out loss: {best:.4g} at step {where:,}, {last:.4g} at the end ({rise:+.1%})."
    if best == last:
        evidence = f"Held-out loss: lowest at the end, {last:.4g}."
    level = level_of(rise, _RISE_AMBER, _RISE_RED)
    titles = "The held-out loss does not rise", "The model overfits: its held-out loss rises"
    remedy = "Use more data or fewer steps, or raise --dropout."
    if files.results.get("training_arguments", {}).get("load_best_model_at_end"):
        level = level_of(rise, _RISE_AMBER)
        evidence += " The best evaluation was kept."
        remedy = "Train for fewer epochs, use more rows, or raise --dropout and --weight-decay."
    elif files.stage == "finetune":
        remedy = f"{remedy[:-1]}, or keep the best checkpoint by --load-best-model-at-end."
    yield judged("overfitting", level, titles, evidence, remedy)


def held_out_losses(files: StageFiles) -> list[tuple[int, float]]:
    """Step and held-out loss of each evaluation."""
    name = "eval_mlm_loss" if any("eval_mlm_loss" in entry for entry in files.evaluations) else "eval_loss"
    return [(entry["step"], entry[name]) for entry in files.evaluations if is_number(entry.get(name))]


def not_converged(files: StageFiles) -> Iterator[Finding]:
    losses = held_out_losses(files)
    if len(losses) < 3 or files.manifest.get("complete") is False:
        return
    trained, metric = files.logged("loss"), files.results.get("metric", "")
    is_perfect = metric_of(metric).is_share and files.evaluations[-1].get(f"eval_{metric}") == 1
    if is_perfect or (trained and trained[-1] <= _LEARNED * trained[0]):
        return  # more steps gain nothing
    step, last = losses[-1]
    start, before = next((one for one in reversed(losses) if one[0] <= 0.75 * step), losses[0])
    gain, falls_to_the_end = -_change(before, last), last == min(value for _, value in losses)
    evidence = (
        f"The held-out loss changed from {before:.4g} at step {start:,} to {last:.4g} at the end ({-gain:+.1%})."
    )
    level = "amber" if falls_to_the_end and gain > _STILL_FALLING else "green"
    titles = "The held-out loss hardly fell at the end", "The run had not converged when it stopped"
    remedy = (
        f"Train for more than {step:,} steps. A new run with twice as many steps shows how much the loss still falls."
    )
    yield judged("converged", level, titles, evidence, remedy)


def learning_rate(files: StageFiles) -> Iterator[Finding]:
    """At most one advice. A loss that rises outweighs small steps; these outweigh large or opposed single steps."""
    findings = [*_too_high(files), *_too_low(files)]
    advice = [finding for finding in findings if finding.level != "green"]
    if len(advice) == 2:
        high, low = advice
        findings.remove(low if high.level == "red" else high)
    yield from findings


def advises_rate(files: StageFiles) -> bool:
    """Whether `learning_rate` advises another learning rate; then no other check does."""
    return any(finding.level != "green" for finding in learning_rate(files))


def _too_high(files: StageFiles) -> Iterator[Finding]:
    losses, rates = files.logged("loss"), files.logged("learning_rate")
    if len(losses) < 12 or not rates:
        return
    width = max(3, len(losses) // 12)
    smooth = np.convolve(losses, np.full(width, 1 / width), "valid").tolist()  # the means of all runs of this width
    lowest, last = min(smooth), smooth[-1]
    ratio = _at_peak(files, "update_ratio", 10)
    skipped = max((entry.get("steps_skipped", 0) for entry in files.training), default=0)
    evidence = f"Highest learning rate {max(rates):.2g}. Smoothed training loss: lowest {lowest:.4g}, last {last:.4g}."
    if ratio is not None:
        evidence += f" A step changes the weights by {ratio:.2%} at that rate."
    noise = _at_peak(files, "gradient_noise", 2)
    evidence += _noise_text(noise, "In the half of the run with the highest learning rates")
    if skipped:
        evidence += f" {counted(skipped, 'step')} without a finite gradient skipped."
    is_large = ratio is not None and ratio > _LARGE_UPDATE
    rises = last - lowest > max(_UNSTABLE * lowest, _UNDONE * (losses[0] - lowest))
    stays = last > smooth[0] * 0.99 and is_large
    explodes = max(smooth) > _EXPLOSION * losses[0]
    if explodes:
        evidence += f" It rose from {losses[0]:.4g} to {max(smooth):.4g} on the way."
    opposed = noise is not None and noise > _OPPOSED
    level = "red" if rises or stays or explodes else "amber" if skipped or is_large or opposed else "green"
    titles = "The training loss is stable at this learning rate", "The learning rate is too high"
    remedy = f"Train again with --learning-rate {max(rates) / 5:.2g} (a fifth), or with a longer --warmup-steps."
    if noise is not None and noise > _NOISY and not opposed:
        remedy += " A larger batch (--gradient-accumulation-steps) makes its steps less noisy."
    yield judged("learning-rate-high", level, titles, evidence, remedy)


def _too_low(files: StageFiles) -> Iterator[Finding]:
    losses, rates = files.logged("loss"), files.logged("learning_rate")
    ratios, noises = files.logged("update_ratio"), files.logged("gradient_noise")
    if len(losses) < 8 or not ratios or not rates:
        return
    steps = files.training[-1]["step"]
    moved, part = statistics.mean(ratios) * steps, max(2, len(losses) // 8)
    fall = -_change(statistics.mean(losses[:part]), statistics.mean(losses[-part:]))
    is_new = files.stage == "pretrain" and not files.results.get("settings", {}).get("init_from")
    noise = statistics.median(noises) if noises else None
    limit = (_NEW_MOVE if is_new else _SMALL_MOVE) * (2 if noise is not None and noise < _AGREED else 1)
    is_small = moved < limit and (is_new or fall < _SMALL_FALL)
    evidence = (
        f"Highest learning rate {max(rates):.2g}. The changes by all steps add up to {moved:.1%} of the weights' "
        f"size; the training loss {'rose' if fall < 0 else 'fell'} by {abs(fall):.1%}."
    )
    evidence += _noise_text(noise, "Over the run")
    level = "green" if not is_small else "red" if fall < _SMALL_FALL else "amber"
    titles = "The steps are large enough", "The learning rate is too low for this number of steps"
    remedy = f"Train again with --learning-rate {max(rates) * 5:.2g} (five times), or for more steps."
    yield judged("learning-rate-low", level, titles, evidence, remedy)


def warmup_too_short(files: StageFiles) -> Iterator[Finding]:
    losses, rates = files.logged("loss"), files.logged("learning_rate")
    planned = "warmup_steps" in files.results.get("budget", {}).get("choices", {})  # its remedy would be no other
    if planned or len(losses) < 12 or len(rates) != len(losses):
        return
    early = max(4, len(losses) // 4)
    lowest = itertools.accumulate(losses, min)
    jump = max(loss / max(least, 1e-9) for loss, least in zip(losses[:early], lowest, strict=False))
    warmup = files.manifest.get("choices", {}).get("warmup_steps")
    if not is_number(warmup):
        warmup = rates.index(max(rates)) / len(rates)
    elif warmup >= 1:
        warmup /= files.training[-1]["step"]
    evidence = f"The learning rate rises in the first {warmup:.1%} of the steps. "
    evidence += f"In the first quarter the training loss is at most {jump:.2f} times its value before."
    first = [entry.get("update_ratio") for entry in files.training[:early]]
    largest = max((ratio for ratio in first if is_number(ratio)), default=0.0)
    evidence += f" A step there changes the weights by up to {largest:.1%}."
    is_short = (jump > _EARLY_JUMP or largest > _LARGE_START) and warmup < _SHORT_WARMUP
    titles = "The loss falls from the start", "The warm-up is too short for this learning rate"
    lower = "" if advises_rate(files) else ", or a lower --learning-rate"
    remedy = f"Use --warmup-steps 0.1 (a tenth of the steps){lower}."
    yield judged("warm-up", "amber" if is_short else "green", titles, evidence, remedy)


def slow(files: StageFiles) -> Iterator[Finding]:
    speeds, used, idle = map(files.logged, ("tokens_per_second", "mfu", "idle_share"))
    if len(speeds) < 7 or max(files.logged("seconds"), default=0) < _SHORT:
        return
    third = len(speeds) // 3
    first, last = statistics.median(speeds[1 : third + 1]), statistics.median(speeds[-third:])
    evidence = f"Median speed: {first:,.0f} tokens/s in the first third of the run, {last:,.0f} in the last."
    if used:
        evidence += f" {statistics.median(used):.1%} of the machine's speed in matrix products is used (mfu)."
    if idle:
        evidence += f" Processes wait {statistics.median(idle):.1%} of the time."
    competition, problems = competing_programs(files), []
    evidence += competition
    if competition:
        problems.append("end the other programs, or train at another time")
    elif last < _SLOWDOWN * first:
        problems.append("find the program that competes for the machine, or whether it is throttled")
    if used and statistics.median(used) < (least := _least_share(files)):
        evidence += f" Models of this width reach {least / _FAR_BELOW:.0%}." if least != _LOW_MFU else ""
        shares = files.logged("optimizer_share")
        if shares and (share := statistics.median(shares)) > _OPTIMIZER:
            larger = "use larger batches (--max-tokens-per-batch), or --optimizer adamw"
            problems.append(f"the optimizer takes {share:.0%} of the time: {larger}")
        elif not competition:
            problems.append("use larger batches, --bf16 on hardware that has it, or more --dataloader-num-workers")
    if idle and statistics.median(idle) > _IDLE:
        problems.append("fill batches by --max-tokens-per-batch, so that processes have equal work")
    titles = "The speed is even and fits the machine", "The run is far below this machine's speed"
    remedy = f"{'; '.join(problems).capitalize()}."
    yield judged("speed", "amber" if problems else "green", titles, evidence, remedy)


def _least_share(files: StageFiles) -> float:
    """The share of the machine's speed below which a run is far from what its width can reach."""
    arguments, hardware = files.results.get("training_arguments") or {}, str(files.manifest.get("hardware", ""))
    width = files.config.get("hidden_size")
    is_gpu = ", " in hardware
    if is_gpu or arguments.get("bf16") or arguments.get("fp16") or not is_number(width):
        return 0.0 if is_gpu and is_number(width) and width < max(_REACHED) else _LOW_MFU
    return _FAR_BELOW * next((share for size, share in _REACHED.items() if width <= size), max(_REACHED.values()))


def competing_programs(files: StageFiles) -> str:
    """A sentence about programs that used cores of the run in a large part of it; empty if there were none."""
    free, threads = files.logged("free_cores"), files.logged("threads")
    if len(free) <= _COMPETING * len(files.training) or not threads:
        return ""
    part = len(free) / len(files.training)
    when = "Throughout the log" if part > 0.99 else f"In {part:.0%} of the log"
    return (
        f" {when}, other programs left {statistics.median(free):.1f} cores for "
        f"{counted(round(statistics.median(threads)), 'thread')}."
    )


def _change(before: float, after: float) -> float:
    """The change of a loss as a share of its value before, which may be 0."""
    return (after - before) / max(before, _LEAST_LOSS)


def _at_peak(files: StageFiles, name: str, part: int) -> float | None:
    """The median of a measure in that `part` (2 is a half) of the log that has the highest learning rates."""
    named = [(entry.get("learning_rate"), entry.get(name)) for entry in files.training]
    pairs = [(rate, value) for rate, value in named if is_number(rate) and is_number(value)]
    highest = sorted(pairs, reverse=True)[: max(1, len(pairs) // part)]
    return statistics.median(value for _, value in highest) if highest else None


def _noise_text(noise: float | None, part: str) -> str:
    """The gradient noise in a part of the run, as a sentence."""
    if noise is None:
        return ""
    return f" {part}, the share of noise in a gradient is {noise:.0%} (above 100%, successive gradients are opposed)."


CHECKS = (held_out_loss_rises, learning_rate, warmup_too_short, not_converged, slow)
