"""Plan a run with a time budget: choose its settings, with reasons, and estimate its result."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SaveStrategy, SchedulerType

from modeling_mybert import MyBertConfig
from modeling_mybert.configuration_mybert import NAMED_SIZES
from mybert.common.errors import UserError
from mybert.common.quantities import duration, with_unit
from mybert.common.tables import print_table
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.planning.flops_and_memory import count_parameters
from mybert.pretraining.planning.measurement import Speed, measure_speed
from mybert.pretraining.planning.rules import budget_rules
from mybert.pretraining.planning.scaling_law import in_words, scaling_law
from mybert.pretraining.settings import PretrainSettings
from mybert.training.arguments import bfloat16_is_faster, set_bf16
from mybert.training.run_progress import ClockProgress
from mybert.training.sealed_checkpoints import COPIES_IN_A_CHECKPOINT

PLAN = "budget.json"
"""File of the output folder with the plan, which a resumed run reads back."""
_MEASURING, _EVALUATING, _SAVING = 0.02, 0.03, 0.03
"""Largest shares of the budget for one measurement, for the evaluation at the end, and for checkpoints."""
_REPORT_SECONDS, _BYTES_PER_SECOND = 3.0, 100e6
_LEAST_STEPS, _LEAST_SHARE = 50, 0.3
_MAX_STEPS = 10**7
_LOGS, _SAVE_SECONDS = 50, 300
_FOR_NEW_WEIGHTS = ("initializer_range", "initial_weights", "start_mlm_probability", "weight_decay", "adam_epsilon")
"""Options that are not chosen for a run that continues a checkpoint."""


@dataclass
class BudgetPlan:
    """The plan of a run with a time budget.

    Attributes:
        choices: value of each chosen option, without options given by the user.
        rows: name, value and reason of each line of the printed table.
        expected: result of `ScalingLaw.expectation`.
        held_out: number of held-out examples that are evaluated; None for all.
        events: number of equal parts of the run after which it logs, evaluates and saves.
        later: expected seconds of the evaluation, of a checkpoint and of the rest after the last step.
    """

    choices: dict[str, Any]
    rows: list[tuple[str, str, str]]
    steps: int = 0
    tokens: float = 0.0
    expected: dict[str, float] = field(default_factory=dict)
    held_out: int | None = None
    events: dict[str, float] = field(default_factory=dict)
    later: dict[str, float] = field(default_factory=dict)

    def apply(self, settings: PretrainSettings, arguments: TrainingArguments) -> PretrainSettings:
        """Sets the chosen values; `arguments` are changed in place. A value given to a resumed run stays."""
        names, given = {entry.name for entry in dataclasses.fields(settings)}, _given(settings, arguments)
        choices = {name: value for name, value in self.choices.items() if name not in given}
        for name, value in choices.items():
            if name not in names:
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
        chosen = {name: value for name, value in choices.items() if name in names}
        return dataclasses.replace(settings, **chosen)

    def print(self, budget: float) -> None:
        print_table(f"Plan for {duration(budget)}", self.rows, ("setting", "value", "reason"))
        if self.expected:  # none for a checkpoint that is continued, or another masking share
            print(f"expected on held-out documents (95% interval): {in_words(self.expected)}")


def check_budget_settings(settings: PretrainSettings, arguments: TrainingArguments) -> None:
    """Raises a UserError for arguments that contradict a time budget."""
    for name in ("max_steps", "num_train_epochs"):
        if name in _given(settings, arguments):
            raise UserError(
                f"--time-budget and --{name.replace('_', '-')} exclude each other: one ends the run by the clock, one "
                "by steps; leave one of them out"
            )
    schedule = SchedulerType(arguments.lr_scheduler_type).value
    if schedule in ("reduce_lr_on_plateau", "greedy"):
        raise UserError(
            f"--lr-scheduler-type {schedule} cannot be used with --time-budget: it knows no end of the run"
        )
    if arguments.load_best_model_at_end:
        raise UserError("--load-best-model-at-end cannot be used with --time-budget: the last model is the best")


def make_plan(
    settings: PretrainSettings, arguments: TrainingArguments, corpus: Corpus, clock: ClockProgress
) -> BudgetPlan:
    """Measures the speed of this machine and chooses the options that are not given."""
    given = _given(settings, arguments)
    plan = BudgetPlan({}, [])
    if "bf16" not in given and not arguments.fp16 and bfloat16_is_faster(arguments.device):
        _choose(plan, "bf16", True, "this device computes faster in bfloat16")
        arguments.bf16 = True
    size, speed = _choose_size(settings, arguments, corpus, clock)
    _plan_end(plan, settings, corpus, clock, speed)
    seconds = clock.training_seconds
    plan.tokens = speed.tokens * arguments.world_size * seconds
    batches = arguments.gradient_accumulation_steps * arguments.world_size
    name = size or _nearest_size(speed.encoder)
    per_batch = settings.max_tokens_per_batch or _tokens_per_batch(plan.tokens / batches, corpus, name)
    if "per_device_train_batch_size" in given and settings.max_tokens_per_batch is None:
        per_batch = max(1, round(arguments.per_device_train_batch_size * corpus.shape.mean_length))
    per_step = batches * per_batch
    plan.steps = max(1, round(plan.tokens / per_step))
    _check_affordable(plan, clock)
    unique, passes = corpus.shape.tokens, plan.tokens / corpus.shape.tokens
    if size and settings.size is None:
        _choose(plan, "size", size, "lowest expected loss in this time")
    elif size:
        plan.rows.append(("size", size, "given"))
    if settings.max_tokens_per_batch is None:
        chosen = "per_device_train_batch_size" not in given
        why = budget_rules()["batch"]["why"] if chosen else "the given --per-device-train-batch-size"
        _choose(plan, "max_tokens_per_batch", per_batch, why)
    _apply_rules(plan, settings, arguments, name, corpus.shape.longest, passes)
    if settings.init_from is None and settings.mlm_probability == PretrainSettings.mlm_probability:
        plan.expected = scaling_law().expectation(speed.encoder, plan.tokens, unique, len(corpus.tokenizer))
    left = duration(seconds)
    plan.rows += [
        ("speed", f"{with_unit(speed.tokens, 'tokens/s')}", "measured on this machine"),
        (
            "training",
            left,
            f"of {duration(clock.budget)}; evaluation and saving take {duration(clock.reserve)} at the end",
        ),
        ("tokens", with_unit(plan.tokens, "tokens"), f"{passes:.1f} passes over {with_unit(unique, 'tokens')}"),
    ]
    if plan.held_out is not None:
        plan.rows.append(
            (
                "held-out examples",
                f"{plan.held_out:,}",
                f"evaluating more would take over {_EVALUATING:.0%} of the budget",
            )
        )
    return plan


def _tokens_per_batch(tokens: float, corpus: Corpus, size: str) -> int:
    """The size of a batch for a run with `tokens` in all."""
    rule = budget_rules()["batch"]
    return max(min(rule["most"][size], int(tokens / rule["steps"])), rule["least"], corpus.shape.longest)


def _given(settings: PretrainSettings, arguments: TrainingArguments) -> set[str]:
    """Names of the options that the user gave."""
    found: set[str] = set()
    for part in (settings, arguments):
        changed = {entry.name for entry in dataclasses.fields(part) if getattr(part, entry.name) != _default(entry)}
        found |= getattr(part, "given", changed)
    return found


def _default(entry: dataclasses.Field) -> Any:
    return entry.default if entry.default_factory is dataclasses.MISSING else entry.default_factory()


def _uses_muon(settings: PretrainSettings, arguments: TrainingArguments) -> bool:
    """Whether Muon is given, or chosen: no other optimizer is given, and no matrix is divided."""
    given = _given(settings, arguments)
    if "optimizer" in given:
        return settings.optimizer == "muon"
    return not ("optim" in given or arguments.fsdp or arguments.deepspeed)


def _choose(plan: BudgetPlan, name: str, value: Any, why: str) -> None:
    plan.choices[name] = value
    plan.rows.append((name.replace("_", " "), _shown(name, value), why))


def _shown(name: str, value: Any) -> str:
    if name == "warmup_steps" and value < 1:
        return f"{100 * value:.3g}% of the steps"
    return " ".join(map(str, value)) if isinstance(value, list) else str(getattr(value, "value", value))


# Size


def _choose_size(
    settings: PretrainSettings, arguments: TrainingArguments, corpus: Corpus, clock: ClockProgress
) -> tuple[str | None, Speed]:
    """The size with the lowest expected loss, and its measured speed. A size that is given is only measured."""
    limit, uses_muon = _MEASURING * clock.budget, _uses_muon(settings, arguments)
    most = budget_rules()["batch"]["most"]
    if settings.init_from is not None or settings.size is not None:
        tokens = settings.max_tokens_per_batch or most.get(settings.size, max(most.values()))
        return settings.size, measure_speed(settings, arguments, corpus, limit, uses_muon, tokens)
    sizes = budget_rules()["sizes"]
    size, measured = sizes[min(1, len(sizes) - 1)], {}
    for _ in sizes:
        measured[size] = measure_speed(
            dataclasses.replace(settings, size=size),
            arguments,
            corpus,
            limit / (1 + len(measured)),
            uses_muon,
            settings.max_tokens_per_batch or most[size],
        )
        size = min(sizes, key=lambda name: _expected_loss(name, measured, sizes, corpus, clock, settings))
        if size in measured:
            break
    return size, measured.get(size) or measured.popitem()[1]


def _expected_loss(
    size: str, measured: dict, sizes: list[str], corpus: Corpus, clock: ClockProgress, settings: PretrainSettings
) -> float:
    """The expected loss of a size, with the speed of the most similar measured size."""
    nearest = min(measured, key=lambda name: abs(sizes.index(name) - sizes.index(size)))
    config = MyBertConfig.from_size(size, vocab_size=len(corpus.tokenizer))
    costs = corpus.shape.costs(config, settings.mlm_probability, corpus.has_pairs)
    tokens = measured[nearest].flops / costs.flops_per_token * clock.training_seconds
    return scaling_law().loss(count_parameters(config)["encoder"], tokens, corpus.shape.tokens, config.vocab_size)


# Time after the last step


def _plan_end(
    plan: BudgetPlan, settings: PretrainSettings, corpus: Corpus, clock: ClockProgress, speed: Speed
) -> None:
    """Plans evaluation, checkpoints and the report, and reserves their time."""
    evaluate = 0.0
    if corpus.validation is not None:
        examples = len(corpus.validation)
        evaluate = examples * corpus.shape.mean_length / speed.evaluation
        most = _EVALUATING * clock.budget
        if evaluate > most:
            plan.held_out = max(1, int(examples * most / evaluate))
            evaluate = most
    save = 0.5 + COPIES_IN_A_CHECKPOINT * 4 * speed.parameters / _BYTES_PER_SECOND
    evaluations = math.floor(_EVALUATING * clock.budget / max(evaluate, 1e-3))
    checkpoints = math.floor(_SAVING * clock.budget / save)
    plan.events = {"log": _LOGS, "save": max(1, min(checkpoints, max(4, math.ceil(clock.budget / _SAVE_SECONDS))))}
    if corpus.validation is not None:
        plan.events["evaluate"] = max(2, min(evaluations, 10))  # one before the end measures the time of the last
    plan.later = {"evaluate": evaluate, "save": save, "rest": _REPORT_SECONDS + save / COPIES_IN_A_CHECKPOINT}
    clock.measure_slowness()
    clock.reserve = evaluate + save + plan.later["rest"] * clock.slowness


def _check_affordable(plan: BudgetPlan, clock: ClockProgress) -> None:
    needed = clock.training_seconds * _LEAST_STEPS / plan.steps
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


# Rules


def _nearest_size(encoder: int) -> str:
    """The named size with the most similar number of encoder parameters."""
    sizes = {size: count_parameters(MyBertConfig.from_size(size))["encoder"] for size in NAMED_SIZES}
    return min(sizes, key=lambda size: abs(math.log(sizes[size] / encoder)))


def _apply_rules(
    plan: BudgetPlan, settings: PretrainSettings, arguments: TrainingArguments, size: str, longest: int, passes: float
) -> None:
    given, rules, uses_muon = _given(settings, arguments), budget_rules(), _uses_muon(settings, arguments)
    options = {name: (rule["value"], rule["why"]) for name, rule in rules["options"].items()}
    options |= {name: (rule["values"][size], rule["why"]) for name, rule in rules["by_size"].items()}
    if not uses_muon and "optimizer" not in given:
        del options["optimizer"]
    if "mlm_probability" in given:
        del options["start_mlm_probability"]
    adamw_rate = options.pop("adamw_learning_rate")
    if not uses_muon:
        options["learning_rate"] = adamw_rate
        del options["weight_decay"], options["adam_epsilon"]
    if settings.init_from is not None:
        for name in _FOR_NEW_WEIGHTS:
            options.pop(name, None)
        rate, continued = options["learning_rate"][0], rules["continued"]
        options["learning_rate"] = (rate * continued["learning_rate_factor"], continued["why"])
    else:
        lengths = [f"{length}:{end}" for length, end in rules["lengths"]["values"] if length < longest]
        if lengths:
            options["length_schedule"] = ([*lengths, str(longest)], rules["lengths"]["why"])
        many = passes > rules["dropout"]["passes"]
        why = f"{passes:.1f} passes over the text, {'enough' if many else 'too few'} to overfit"
        options["dropout"] = (rules["dropout"]["many" if many else "few"], why)
    if "length_schedule" not in {*options, *given}:
        plan.rows.append(("sequence length", str(longest), "the longest example, from the first step to the last"))
    for name, (value, why) in options.items():
        if name in given:
            have = getattr(settings, name, None) if hasattr(settings, name) else getattr(arguments, name)
            plan.rows.append((name.replace("_", " "), _shown(name, have), "given"))
        else:
            _choose(plan, name, value, why)
