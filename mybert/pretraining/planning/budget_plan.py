"""Plan a run with a time budget: choose its settings, with reasons, and estimate its result."""

import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SaveStrategy, SchedulerType

from mybert.common.errors import UserError
from mybert.common.quantities import duration, with_unit
from mybert.common.tables import print_table
from mybert.pretraining.clock import ClockProgress
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.planning.candidates import (
    FLOAT,
    HALF,
    Candidate,
    Chooser,
    effective_tokens,
    measuring_seconds,
    most_tokens_of,
    nearest_size,
    types_to_compare,
)
from mybert.pretraining.planning.flops_and_memory import count_parameters
from mybert.pretraining.planning.measurement import StepTimes, measure_steps
from mybert.pretraining.planning.rules import budget_rules, options_by_rule, with_schedule
from mybert.pretraining.planning.scaling_law import in_words, scaling_law
from mybert.pretraining.settings import PretrainSettings
from mybert.training.arguments import set_bf16
from mybert.training.sealed_checkpoints import COPIES_IN_A_CHECKPOINT

PLAN = "budget.json"
"""File of the output folder with the plan, which a resumed run reads back."""
_EVALUATING, _SAVING = 0.03, 0.03
"""Largest shares of the budget for the evaluation at the end, and for checkpoints."""
_REPORT_SECONDS, _BYTES_PER_SECOND = 3.0, 100e6
_LEAST_STEPS, _LEAST_SHARE = 50, 0.3
_MAX_STEPS = 10**7
_LOGS, _SAVE_SECONDS = 50, 300


@dataclass
class BudgetPlan:
    """The plan of a run with a time budget.

    Attributes:
        choices: value of each chosen option, without options given by the user.
        rows: name, value and reason of each line of the printed table.
        speed: expected tokens per second.
        model: arguments of `ScalingLaw.expectation` beside the tokens; empty if the law does not apply.
        expected: its result for `tokens`.
        held_out: number of held-out examples that are evaluated; None for all.
        events: number of equal parts of the run after which it logs, evaluates and saves.
        later: expected seconds of the evaluation, of a checkpoint and of the rest after the last step; the rest on a
            machine without other programs.
        most_seconds: of training, in which the run makes as many passes over the text as are useful.
        unused: seconds by which a run of `most_seconds` ends before its budget.
    """

    choices: dict[str, Any]
    rows: list[tuple[str, str, str]]
    steps: int = 0
    tokens: float = 0.0
    speed: float = 0.0
    model: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, float] = field(default_factory=dict)
    held_out: int | None = None
    events: dict[str, float] = field(default_factory=dict)
    later: dict[str, float] = field(default_factory=dict)
    most_seconds: float = math.inf
    unused: float = 0.0

    def apply(self, settings: PretrainSettings, arguments: TrainingArguments, given: set[str]) -> PretrainSettings:
        """Sets the chosen values; `arguments` are changed in place. A value given to a resumed run stays."""
        for name, value in self.choices.items():
            if name not in given and not hasattr(settings, name):
                setattr(arguments, name, SchedulerType(value) if name == "lr_scheduler_type" else value)
        if arguments.bf16:
            set_bf16(arguments, True)
        arguments.max_steps = _MAX_STEPS  # the clock ends the run
        for event, name, off in (
            ("log", "logging_strategy", IntervalStrategy.NO),
            ("evaluate", "eval_strategy", IntervalStrategy.NO),
            ("save", "save_strategy", SaveStrategy.NO),
        ):
            steps = name.replace("strategy", "steps")
            if not given & {name, steps}:
                setattr(arguments, name, off)
            elif event in self.events and getattr(arguments, name) == "steps" and 0 < getattr(arguments, steps) < 1:
                self.events[event] = 1 / getattr(arguments, steps)  # a share of the time, not of `_MAX_STEPS`
                setattr(arguments, name, off)
            else:
                self.events.pop(event, None)
        return self.chosen(settings, given)

    def chosen(self, settings: PretrainSettings, given: Collection[str]) -> PretrainSettings:
        """The settings with the chosen values of those that were not given."""
        names = {entry.name for entry in dataclasses.fields(settings)} - set(given)
        return dataclasses.replace(settings, **{name: self.choices[name] for name in names & self.choices.keys()})

    def expectation(self, tokens: float, optimizer: str) -> dict[str, float]:
        """The expected result after a number of tokens; empty if the scaling law does not apply."""
        counted = effective_tokens(tokens, optimizer)
        return scaling_law().expectation(tokens=counted, **self.model) if self.model else {}

    def print(self, budget: float) -> None:
        print_table(f"Plan for {duration(budget)}", self.rows, ("setting", "value", "reason"))
        if self.expected:  # none for a checkpoint that is continued, or another masking share
            print(f"expected on held-out documents (95% interval): {in_words(self.expected)}")


def make_plan(
    settings: PretrainSettings, arguments: TrainingArguments, corpus: Corpus, clock: ClockProgress, given: set[str]
) -> BudgetPlan:
    """Measures the speed of this machine and chooses the options that are not given."""
    plan, longest, batch = BudgetPlan({}, []), corpus.shape.longest, settings.max_tokens_per_batch
    if batch is None and "per_device_train_batch_size" in given:
        batch = max(1, round(arguments.per_device_train_batch_size * corpus.shape.mean_length))
    chooser = Chooser(
        with_schedule(settings, given, longest),
        arguments,
        corpus,
        clock,
        _optimizers(settings, arguments, given),
        types_to_compare(arguments, "bf16" in given),
        batch,
    )
    best, *others = chooser.choose()
    _choose_measured(plan, settings, given, best, others)
    options = options_by_rule(settings, given, nearest_size(best.times.costs), best.optimizer, longest)
    _choose_by_rule(plan, settings, arguments, given, options, longest)
    times = measure_steps(
        plan.chosen(settings, given),
        arguments,
        corpus,
        best.batch,
        measuring_seconds(clock.budget, 1),
        types=[best.dtype],
        optimizers=[best.optimizer],
        evaluates=True,
    )
    accumulated = arguments.gradient_accumulation_steps
    plan.speed = times.tokens_per_second(best.dtype, best.optimizer, best.batch, accumulated) * arguments.world_size
    plan.most_seconds = most_tokens_of(corpus.shape.tokens) / plan.speed
    _plan_end(plan, corpus, clock, times)
    plan.unused = max(clock.training_seconds - plan.most_seconds, 0.0)
    clock.most = plan.most_seconds
    plan.tokens = plan.speed * clock.training_seconds
    tokens_per_step = best.batch * accumulated * arguments.world_size
    plan.steps = max(1, round(plan.tokens / tokens_per_step))
    _check_affordable(plan, clock, _LEAST_STEPS * tokens_per_step / plan.speed)
    if settings.init_from is None and settings.mlm_probability == PretrainSettings.mlm_probability:
        encoder, unique = count_parameters(times.costs.config)["encoder"], corpus.shape.tokens
        plan.model = {"parameters": encoder, "unique": unique, "vocab_size": len(corpus.tokenizer)}
        plan.expected = plan.expectation(plan.tokens, best.optimizer)
    _add_totals(plan, corpus, clock)
    return plan


def _optimizers(settings: PretrainSettings, arguments: TrainingArguments, given: set[str]) -> list[str]:
    """The given optimizer; else both, unless another one is given or matrices are divided."""
    if "optimizer" in given:
        return [settings.optimizer]
    return ["adamw"] if "optim" in given or arguments.fsdp or arguments.deepspeed else ["muon", "adamw"]


def _choose_measured(
    plan: BudgetPlan, settings: PretrainSettings, given: set[str], best: Candidate, others: list[Candidate]
) -> None:
    """Adds what was chosen by measured times."""
    if settings.size is not None:
        plan.rows.append(("size", str(best.size), "given"))
    elif best.size is not None:
        _choose(plan, "size", best.size, "lowest expected loss in this time")
    by_type = {other.dtype: other.times.gradients[other.dtype] for other in (*others, best)}
    if len(by_type) > 1:
        ratio = max(by_type.values()) / by_type[best.dtype]
        name = next(name for name in by_type if name != best.dtype)
        _choose(plan, "bf16", best.dtype == HALF, f"measured: {ratio:.1f} times as fast as {name}")
    elif "bf16" not in given and best.dtype == FLOAT:
        plan.rows.append(("bf16", "False", "measured: this machine does not compute faster in bfloat16"))
    by_optimizer = {other.optimizer: other for other in others if other.dtype == best.dtype}
    if rival := next((other for name, other in by_optimizer.items() if name != best.optimizer), None):
        why = (
            f"measured: {best.tokens / rival.tokens:.2f} times the tokens of {rival.optimizer} in this time; a token "
        )
        why += f"with adamw lowers the loss as {effective_tokens(1, 'adamw'):g} tokens with muon do"
        _choose(plan, "optimizer", best.optimizer, why)
    elif "optimizer" in given:
        plan.rows.append(("optimizer", settings.optimizer, "given"))
    if settings.max_tokens_per_batch is None:
        chosen = "per_device_train_batch_size" not in given
        why = budget_rules()["batch"]["why"] if chosen else "the given --per-device-train-batch-size"
        _choose(plan, "max_tokens_per_batch", best.batch, why)


def _choose_by_rule(
    plan: BudgetPlan,
    settings: PretrainSettings,
    arguments: TrainingArguments,
    given: set[str],
    options: dict[str, tuple[Any, str]],
    longest: int,
) -> None:
    if "length_schedule" not in {*options, *given}:
        plan.rows.append(("sequence length", str(longest), "the longest example, from the first step to the last"))
    for name, (value, why) in options.items():
        if name in given:
            have = getattr(settings, name, None) if hasattr(settings, name) else getattr(arguments, name)
            plan.rows.append((name.replace("_", " "), _shown(name, have), "given"))
        else:
            _choose(plan, name, value, why)


def _add_totals(plan: BudgetPlan, corpus: Corpus, clock: ClockProgress) -> None:
    """Adds the rows of speed, time and tokens."""
    unique = corpus.shape.tokens
    if plan.unused:
        rule = budget_rules()["passes"]
        why = f"the run ends after {rule['most']} passes over the text: {rule['why']}"
        plan.rows.append(("unused time", duration(plan.unused), why))
    end = f"of {duration(clock.budget)}; evaluation and saving take {duration(clock.reserve)} at the end"
    passes = f"{plan.tokens / unique:.1f} passes over {with_unit(unique, 'tokens')}"
    plan.rows += [
        ("speed", with_unit(plan.speed, "tokens/s"), "measured on this machine"),
        ("training", duration(clock.training_seconds), end),
        ("tokens", with_unit(plan.tokens, "tokens"), passes),
    ]
    if plan.held_out is not None:
        why = f"evaluating more would take over {_EVALUATING:.0%} of the budget"
        plan.rows.append(("held-out examples", f"{plan.held_out:,}", why))


def _choose(plan: BudgetPlan, name: str, value: Any, why: str) -> None:
    plan.choices[name] = value
    plan.rows.append((name.replace("_", " "), _shown(name, value), why))


def _shown(name: str, value: Any) -> str:
    if name == "warmup_steps" and value < 1:
        return f"{100 * value:.3g}% of the steps"
    return " ".join(map(str, value)) if isinstance(value, list) else str(getattr(value, "value", value))


# Time after the last step


def _plan_end(plan: BudgetPlan, corpus: Corpus, clock: ClockProgress, times: StepTimes) -> None:
    """Plans evaluation, checkpoints and the report, and reserves their time."""
    evaluate, whole = 0.0, min(clock.budget, clock.seconds + plan.most_seconds)
    if corpus.validation is not None:
        examples = len(corpus.validation)
        evaluate = examples * corpus.shape.mean_length / times.evaluation
        most = _EVALUATING * whole
        if evaluate > most:
            plan.held_out = max(1, int(examples * most / evaluate))
            evaluate = most
    save = 0.5 + COPIES_IN_A_CHECKPOINT * 4 * times.costs.parameters / _BYTES_PER_SECOND
    evaluations = math.floor(_EVALUATING * whole / max(evaluate, 1e-3))
    checkpoints = math.floor(_SAVING * whole / save)
    plan.events = {"log": _LOGS, "save": max(1, min(checkpoints, max(4, math.ceil(whole / _SAVE_SECONDS))))}
    if corpus.validation is not None:
        plan.events["evaluate"] = max(2, min(evaluations, 10))  # one before the end measures the time of the last
    plan.later = {"evaluate": evaluate, "save": save, "rest": _REPORT_SECONDS + save / COPIES_IN_A_CHECKPOINT}
    clock.measure_slowness()
    clock.reserve = evaluate + save + plan.later["rest"] * clock.slowness


def _check_affordable(plan: BudgetPlan, clock: ClockProgress, needed: float) -> None:
    """Raises if less time is left for training than `needed` for the fewest steps, or too small a share of it."""
    if plan.unused:  # more time would not give more steps
        return
    before = clock.seconds + clock.reserve
    if clock.training_seconds < max(needed, _LEAST_SHARE * clock.budget):
        fits = max(needed + before, before / (1 - _LEAST_SHARE)) * 1.2
        raise UserError(
            f"--time-budget {duration(clock.budget)} is too short: preparation, evaluation and saving take "
            f"{duration(before)}; {duration(max(clock.budget - before, 0))} are left for training, which needs at "
            f"least {_LEAST_SHARE:.0%} of the budget and {_LEAST_STEPS} steps ({duration(needed)}); give "
            f"{math.ceil(fits / 10) * 10}s or more, or a smaller --size. With --text, the next call uses the finished "
            "vocabulary and examples again"
        )
