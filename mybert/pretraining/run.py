"""Pretraining on examples: `mybert pretrain`, `adapt` and `distill`."""

import contextlib
import copy
import math
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transformers import TrainingArguments, set_seed
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_utils import IntervalStrategy

from modeling_mybert import MyBertForPreTraining
from mybert.artifacts.manifest import identity
from mybert.common.errors import UserError
from mybert.common.quantities import counted, with_unit
from mybert.pretraining.arguments import STAGE, PretrainingArguments, check_arguments, given_options
from mybert.pretraining.clock import ClockProgress
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.courses import EpochCourse, ScheduledCourse
from mybert.pretraining.data.batching import PretrainingCollator
from mybert.pretraining.data.masking import Masker
from mybert.pretraining.data.scheduled_batches import Schedule
from mybert.pretraining.initialization.from_text import initialize_from_text
from mybert.pretraining.initialization.initial_model import build_model, trained_length
from mybert.pretraining.objective import Pretraining
from mybert.pretraining.planning.flops_and_memory import print_phases
from mybert.pretraining.report import final_metrics, print_report, tokens_of_evaluation, write_report
from mybert.pretraining.settings import PretrainSettings
from mybert.pretraining.time_budget import Budget
from mybert.training.arguments import advise_half, explain_unusable
from mybert.training.options import decisive_arguments
from mybert.training.run_folder import RunFolder
from mybert.training.sealed_checkpoints import checkpoints_in, describe, last_undamaged, set_aside
from mybert.training.stopping import StopOnSignal, on_signals
from mybert.training.trainer import RunTrainer
from tokenization import MyBertTokenizer

_LEAST_EVAL_STEPS = 10
"""Steps between two evaluations at least, if these are a share of all steps."""

Adjust = Callable[[MyBertForPreTraining], Callable[[], object] | None]


def _new_model(
    settings: PretrainSettings, tokenizer: MyBertTokenizer, longest: int
) -> tuple[MyBertForPreTraining, type[Pretraining]]:
    return build_model(settings, tokenizer, longest), Pretraining


@dataclass(frozen=True)
class Variant:
    """What differs between pretraining, adaptation and distillation.

    Attributes:
        build: a function (settings, tokenizer, longest) that returns the model before the first step, and a function
            that makes its objective, with the arguments of `Pretraining`.
        inputs: names of settings with further checkpoints, for the manifest and the fingerprint of the run.
        adjust: changes the model before training, for example freezes weights. It may return a function to be called
            after training.
        command: the command that continues an interrupted run; None for `stage`.
        fixed: names of options that a time budget does not choose.
    """

    stage: str = STAGE
    build: Callable[..., tuple[MyBertForPreTraining, Callable[..., Pretraining]]] = _new_model
    inputs: tuple[str, ...] = ()
    adjust: Adjust | None = None
    command: str | None = None
    fixed: tuple[str, ...] = ()


def pretrain(
    settings: PretrainSettings,
    arguments: TrainingArguments | None = None,
    variant: Variant | None = None,
    started: float | None = None,
) -> Path:
    """Trains a MyBERT on masked tokens and, if the corpus has pairs, on next sentences.

    Args:
        settings: model, corpus and output.
        arguments: how to train (default: `PretrainingArguments`); `settings.output` replaces their `output_dir`.
        variant: another training on a corpus, such as distillation or adaptation.
        started: `time.monotonic()` at the start of a time budget (default: now).

    Returns:
        The folder of the finished model: weights, code and tokenizer for the Auto classes, results.json, log.jsonl,
        samples.jsonl, training_curves.png and manifest.json. With `dry_run` nothing is written.

    Raises:
        UserError: input, settings and output do not fit together, and nothing was written; or the run failed, and
            its checkpoints are intact.
        Preempted: SIGTERM or Ctrl-C stopped the run after a checkpoint was saved.
    """
    arguments = PretrainingArguments(output_dir=settings.output) if arguments is None else copy.deepcopy(arguments)
    variant = variant or Variant()
    check_arguments(settings, arguments, variant.stage)
    folder = checkpoint = None
    damaged: dict[Path, str] = {}
    if not settings.dry_run:
        inputs = [getattr(settings, name) for name in ("corpus", "init_from", *variant.inputs)]
        folder = RunFolder(settings, variant.stage, inputs)
        folder.keep_precision(arguments)
        checkpoint, damaged = _find_checkpoint(folder, arguments.process_index)
    corpus = Corpus.load(str(settings.corpus))
    budget = None
    if settings.time_budget is not None:
        clock = ClockProgress(settings.time_budget, started)
        given = given_options(settings, arguments) | {*variant.fixed}
        budget = Budget.prepare(settings, arguments, corpus, clock, folder, given)
        settings = budget.plan.apply(settings, arguments, given)
        if settings.dry_run:
            return Path(settings.output)
    if folder:
        checkpoints = {name: getattr(settings, name) for name in ("init_from", *variant.inputs)}
        known = {name: identity(path) for name, path in checkpoints.items() if path is not None}
        known |= {"corpus": corpus.identity()}
        folder.check_same(settings, known, arguments, decisive_arguments(arguments))
    stop = StopOnSignal(variant.command or variant.stage)
    if folder is None:
        with tempfile.TemporaryDirectory() as temporary:
            arguments.output_dir = temporary
            trainer, _ = _build_trainer(settings, arguments, corpus, variant, stop, None, is_new=True)
            _train(trainer, settings, stop, None)
        return Path(settings.output)
    arguments.output_dir = settings.output
    trainer, finish = _build_trainer(settings, arguments, corpus, variant, stop, budget, is_new=checkpoint is None)
    with folder.opened(trainer):
        if arguments.process_index == 0:
            if budget:
                budget.keep(folder.path)
            set_aside(damaged, checkpoint)
        _train(trainer, settings, stop, checkpoint)
        if finish:
            finish()
        _finish(trainer, settings, folder, budget)
    return folder.path


def _find_checkpoint(folder: RunFolder, process: int) -> tuple[Path | None, dict[Path, str]]:
    """The checkpoint to resume from, None for the first step; and the damage of newer ones."""
    if not folder.is_resumed:
        return None, {}
    checkpoint, damaged = last_undamaged(folder.path)
    if checkpoint is None and damaged:
        raise UserError(f"--resume: {describe(damaged)}; no other is left: start again with --overwrite")
    if checkpoint is None and folder.was_complete:
        raise UserError(f"--resume: {folder.path} has no checkpoint; start again with --overwrite")
    if checkpoint is None and process == 0:
        print(f"--resume: {folder.path} has no checkpoint yet: starting from the first step")
    return checkpoint, damaged


def _build_trainer(
    settings: PretrainSettings,
    arguments: TrainingArguments,
    corpus: Corpus,
    variant: Variant,
    stop: StopOnSignal,
    budget: Budget | None,
    is_new: bool,
) -> tuple[RunTrainer, Callable[[], object] | None]:
    """The trainer of a run, with its start model, and what `Variant.adjust` returned."""
    set_seed(arguments.seed)
    model, make_objective = variant.build(settings, corpus.tokenizer, corpus.shape.longest)
    if settings.initial_weights == "text" and is_new:
        initialize_from_text(model, corpus, arguments.seed)
    finish = variant.adjust(model) if variant.adjust else None
    # where pipelines truncate
    corpus.tokenizer.model_max_length = trained_length(settings, model, corpus.shape.longest)
    if arguments.ddp_find_unused_parameters is None:  # without pairs the pooler is not used
        arguments.ddp_find_unused_parameters = not corpus.has_pairs
    if corpus.validation is None and arguments.eval_strategy != IntervalStrategy.NO:
        if arguments.process_index == 0:
            print(f"{corpus.folder} has no held-out documents: the run is not evaluated")
        arguments.eval_strategy = IntervalStrategy.NO
    masker = Masker.from_tokenizer(corpus.tokenizer, **settings.masking_rules(arguments.seed))
    course: EpochCourse | ScheduledCourse = EpochCourse(settings.max_tokens_per_batch)
    if settings.is_scheduled:
        tokens = arguments.per_device_train_batch_size * corpus.shape.mean_length
        schedule = Schedule.of(settings, corpus.shape.longest, tokens)
        shorter = [length for length, _ in schedule.lengths if length < corpus.shape.longest]
        if len(shorter) < len(schedule.lengths) - 1 and arguments.process_index == 0:
            print(
                f"--length-schedule {' '.join(settings.length_schedule)}: the longest example has only "
                f"{corpus.shape.longest} tokens; build the corpus with a larger --max-length"
            )
        course = ScheduledCourse(schedule, *((budget.clock, budget.plan) if budget else ()))
    muon = settings.optimizer == "muon"
    objective = make_objective(corpus.train, course=course, muon=muon, peak_flops=settings.peak_flops)
    with explain_unusable():
        trainer = objective.trainer_of(
            arguments,
            budget.held_out(corpus.validation) if budget else corpus.validation,
            model=model,
            data_collator=PretrainingCollator(masker),
            skip_nonfinite=settings.on_nonfinite == "skip",
            processing_class=corpus.tokenizer,
            stop=stop,
            dry_run=settings.dry_run,
            callbacks=[budget] if budget else None,
        )
        trainer.check_setup()
    share = arguments.eval_steps or 1.0
    if arguments.eval_strategy == IntervalStrategy.STEPS and share < 1 and budget is None:
        steps = math.ceil(share * trainer.planned_steps())
        arguments.eval_steps = steps if arguments.load_best_model_at_end else max(steps, _LEAST_EVAL_STEPS)
    return trainer, finish


def _train(trainer: RunTrainer, settings: PretrainSettings, stop: StopOnSignal, checkpoint: Path | None) -> None:
    """Prints the plan and trains; see `RunTrainer.run`."""
    arguments, objective, config = trainer.args, trainer.objective, trainer.model.config
    advise_half(arguments, config.hidden_size)
    if trainer.is_world_process_zero() and settings.time_budget is None:  # a budget has printed its plan
        print_phases(
            objective.course.phases,
            devices=arguments.world_size,
            sharded=bool(arguments.fsdp),
            checkpointing=arguments.gradient_checkpointing,
            half=arguments.bf16 or arguments.fp16,
            keeps_scores=arguments.device.type == "cpu" or config._attn_implementation == "eager",
        )
    with contextlib.nullcontext() if settings.dry_run else on_signals(stop.ask):
        trained = trainer.run(checkpoint)
    if settings.time_budget is not None:
        arguments.max_steps = trainer.state.global_step  # it was only a bound
    if not trained and trainer.is_world_process_zero():
        print(f"the run in {settings.output} is finished: no step is left to train")


def _finish(trainer: RunTrainer, settings: PretrainSettings, folder: RunFolder, budget: Budget | None) -> None:
    """Writes the model, its metrics and the manifest into the output folder."""
    seconds = trainer.metrics.seconds
    trainer.save_model(settings.output)  # before the evaluation, which rounds the weights with bf16_full_eval
    metrics = final_metrics(trainer)
    tokens = tokens_of_evaluation(trainer)
    if trainer.is_world_process_zero():
        (folder.path / TRAINING_ARGS_NAME).unlink(missing_ok=True)  # a pickle; results.json has the same as text
        seen = trainer.state.num_input_tokens_seen
        more = tokens | (budget.results(seen, settings.optimizer) if budget else {})
        results = write_report(trainer, settings, metrics, more, seconds)
        counts = {
            "parameters": sum(p.numel() for p in trainer.model.parameters()),
            "steps": results["steps"],
            "tokens_seen": results["tokens_seen"],
        }
        folder.finish(counts=counts, metrics=metrics)
        print_report(results)
        _drop_checkpoints(folder.path, settings.keep_checkpoints)
        if budget:
            budget.keep(folder.path)


def _drop_checkpoints(output: Path, keep: int | None) -> None:
    """Removes all but the newest `keep` checkpoints, and prints the size of those that stay."""
    checkpoints = checkpoints_in(output)
    if keep is not None:
        dropped = max(len(checkpoints) - keep, 0)
        for path in (*checkpoints[:dropped], *output.glob("damaged-checkpoint-*")):
            shutil.rmtree(path)
        checkpoints = checkpoints[dropped:]
    if checkpoints:
        size = sum(file.stat().st_size for path in checkpoints for file in path.rglob("*") if file.is_file())
        kept = f"{counted(len(checkpoints), 'training checkpoint')} ({with_unit(size, 'B')})"
        print(f"{output} keeps {kept} for --resume; delete them if the run is to go no further")
