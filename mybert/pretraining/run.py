"""`mybert pretrain`: examples → pretrained checkpoint."""

import copy
import tempfile
from pathlib import Path

import torch
from transformers import PrinterCallback, ProgressCallback, TrainerState, TrainingArguments, set_seed
from transformers.trainer import TRAINER_STATE_NAME, TRAINING_ARGS_NAME
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from modeling_mybert import MyBertForPreTraining
from mybert.common.arguments import prepare_launch, try_optimizer
from mybert.common.devices import advise_half
from mybert.common.disk_space import report_full_disk
from mybert.common.errors import UserError
from mybert.common.log_lines import log_in_lines
from mybert.common.memory_allocator import keep_freed_memory
from mybert.common.output_folders import exclusive_lock
from mybert.common.preemption import Preempted, on_signals
from mybert.pretraining.data.batching import PretrainingCollator
from mybert.pretraining.data.masking import Masker
from mybert.pretraining.inputs import Corpus, build_model, check_second_corpus, trained_length
from mybert.pretraining.outputs import STAGE, Identity, check_output, start_output
from mybert.pretraining.planning.remaining_time import TimeToEnd, measure_peak
from mybert.pretraining.planning.run_plan import Plan, print_plan
from mybert.pretraining.report import final_metrics, print_report, write_report
from mybert.pretraining.settings import PretrainingArguments, PretrainSettings
from mybert.pretraining.trainer import MyBertTrainer


def pretrain(settings: PretrainSettings, arguments: TrainingArguments | None = None) -> Path:
    """Trains a MyBERT on masked tokens and, if the corpus has pairs, on next sentences.

    Args:
        settings: what is trained, on what, and where it is put.
        arguments: how; those of `PretrainingArguments` when not given. Their `output_dir` becomes `settings.output`.

    Returns:
        The folder of the finished model: weights, code and tokenizer as the Auto classes read them, results.json,
        training_curves.png and manifest.json. With `dry_run` nothing is left there.

    Raises:
        UserError: input, settings and output do not fit together: nothing was written then; or the run failed: what
            it had saved before is whole.
        Preempted: SIGTERM or Ctrl-C came; a checkpoint was saved.
    """
    arguments = PretrainingArguments(output_dir=settings.output) if arguments is None else copy.deepcopy(arguments)
    _check_arguments(settings, arguments)
    checkpoint = check_output(settings)
    corpora = [Corpus.load(folder) for folder in (settings.corpus, settings.phase2_corpus) if folder is not None]
    if len(corpora) > 1:
        check_second_corpus(*corpora)
    run = Identity.of(settings, arguments, corpora)
    if checkpoint:
        run.check_same(settings.output)
    set_seed(arguments.seed)
    longest = max(corpus.shape.longest for corpus in corpora)
    model = build_model(settings, corpora[0], longest)
    # where it truncates, once published
    corpora[0].tokenizer.model_max_length = trained_length(settings, model, longest)
    if arguments.ddp_find_unused_parameters is None:  # the pooler, where no pair asks for it
        arguments.ddp_find_unused_parameters = not corpora[0].has_pairs
    output = Path(settings.output)
    if settings.dry_run:
        with tempfile.TemporaryDirectory() as folder:
            arguments.output_dir = folder
            _train(_prepare(settings, arguments, corpora, model), settings, None)
        return output
    arguments.output_dir = str(output)
    trainer = _prepare(settings, arguments, corpora, model)
    with exclusive_lock(output, arguments.process_index), report_full_disk(output):
        start_output(settings, run, checkpoint)
        _train(trainer, settings, checkpoint)
        _finish(trainer, settings, run)
    return output


def main(settings: PretrainSettings, arguments: PretrainingArguments) -> None:
    keep_freed_memory()
    output = pretrain(settings, arguments)
    if arguments.process_index == 0:
        print("dry run: nothing was written" if settings.dry_run else f"the model is in {output}")


def _check_arguments(settings: PretrainSettings, arguments: TrainingArguments) -> None:
    prepare_launch(arguments, settings.output, STAGE)
    if arguments.train_sampling_strategy == "group_by_length" and settings.max_tokens_per_batch is None:
        raise UserError("train_sampling_strategy group_by_length needs --max-tokens-per-batch")
    if arguments.fsdp and arguments.device.type == "cpu":  # accelerate would leave whole copies there, and say nothing
        raise UserError("--fsdp shards over accelerators only; on the CPU leave it out: processes hold whole copies")
    if settings.dry_run:
        arguments.save_strategy, arguments.eval_strategy = SaveStrategy.NO, IntervalStrategy.NO
        arguments.report_to = []


def _prepare(
    settings: PretrainSettings, arguments: TrainingArguments, corpora: list[Corpus], model: MyBertForPreTraining
) -> MyBertTrainer:
    """
    Raises:
        UserError: transformers cannot work with the arguments, or a package that they ask for is not installed.
    """
    try:
        trainer = _trainer(settings, arguments, corpora, model)
        trainer.plans = _plans(trainer, settings, corpora)
        try_optimizer(trainer)
    except (ValueError, TypeError, RuntimeError, ImportError) as error:
        raise UserError(str(error)) from error
    dtype = torch.bfloat16 if arguments.bf16 else torch.float16 if arguments.fp16 else torch.float32
    trainer.peak_flops = settings.peak_flops or measure_peak(arguments.device, dtype)
    return trainer


def _train(trainer: MyBertTrainer, settings: PretrainSettings, checkpoint: str | None) -> None:
    """Says the plan and trains.

    Raises:
        Preempted: SIGTERM or Ctrl-C came before the end; a checkpoint was saved.
    """
    arguments, model, plans = trainer.args, trainer.model, trainer.plans
    trainer.add_callback(TimeToEnd(plans, stop=settings.dry_run))
    for reporter in (PrinterCallback, ProgressCallback) if settings.dry_run else ():
        trainer.remove_callback(reporter)
    log_in_lines(trainer)
    advise_half(arguments, model.config.hidden_size)
    if trainer.is_world_process_zero():
        print_plan(
            plans,
            devices=arguments.world_size,
            sharded=bool(arguments.fsdp),
            checkpointing=arguments.gradient_checkpointing,
            half=arguments.bf16 or arguments.fp16,
            keeps_scores=arguments.device.type == "cpu" or model.config._attn_implementation == "eager",
        )
    if checkpoint:
        state = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME))
        steps = sum(plan.steps for plan in plans)
        done = state.global_step
        if trainer.is_world_process_zero():
            print(f"--resume: {done:,} of {state.max_steps:,} planned steps are done")
            if state.max_steps != steps:
                print(f"the plan is now {steps:,}, and learning rate and phases are its own from here on")
        if done >= steps:  # Trainer would make one step more
            if trainer.is_world_process_zero():
                print(f"the run in {settings.output} is finished: no step is left to train")
            model.load_state_dict(MyBertForPreTraining.from_pretrained(checkpoint).state_dict())
            trainer.state = state
            trainer.meter.start_clock()
            return
    with on_signals(trainer.guard.ask):
        trainer.train(resume_from_checkpoint=checkpoint)
    trainer.guard.settle()  # a last step that was neither saved nor logged
    if trainer.guard.must_stop and trainer.state.global_step < trainer.state.max_steps:
        if trainer.is_world_process_zero():
            done = trainer.state.global_step
            print(f"stopped, and saved, after step {done:,}; `mybert pretrain … --resume` goes on there", flush=True)
        raise Preempted


def _trainer(
    settings: PretrainSettings, arguments: TrainingArguments, corpora: list[Corpus], model: MyBertForPreTraining
) -> MyBertTrainer:
    first, second = corpora[0], corpora[1] if len(corpora) > 1 else None
    if first.validation is None and arguments.eval_strategy != IntervalStrategy.NO:
        if arguments.process_index == 0:
            print(f"{first.folder} has no held-out documents: the run is not evaluated")
        arguments.eval_strategy = IntervalStrategy.NO
    masker = Masker.from_tokenizer(
        first.tokenizer,
        probability=settings.mlm_probability,
        max_predictions=settings.max_predictions_per_seq,
        whole_words=settings.whole_word_masking,
        seed=arguments.seed if settings.masking_seed is None else settings.masking_seed,
    )
    return MyBertTrainer(
        model=model,
        args=arguments,
        data_collator=PretrainingCollator(masker, settings.padding_free, first.tokenizer.pad_token_id),
        train_dataset=first.train,
        eval_dataset=first.validation,
        phase2_dataset=second and second.train,
        phase2_share=settings.phase2_share,
        max_tokens_per_batch=settings.max_tokens_per_batch,
        skip_nonfinite=settings.on_nonfinite == "skip",
        processing_class=first.tokenizer,
    )


def _plans(trainer: MyBertTrainer, settings: PretrainSettings, corpora: list[Corpus]) -> list[Plan]:
    *_, steps = trainer.set_initial_training_values(trainer.args, trainer.get_train_dataloader())
    first = round(steps * (1 - settings.phase2_share)) if len(corpora) > 1 else steps
    forwards = trainer.args.gradient_accumulation_steps * trainer.args.world_size
    return [
        Plan(
            corpus=corpus.shape,
            steps=part,
            sequences=in_batch * forwards,
            device_sequences=in_batch,
            mlm_probability=settings.mlm_probability,
            config=trainer.model.config,
            has_pairs=corpus.has_pairs,
        )
        for corpus, part, in_batch in zip(corpora, (first, steps - first), trainer.sequences_per_batch, strict=False)
    ]


def _finish(trainer: MyBertTrainer, settings: PretrainSettings, run: Identity) -> None:
    """Leaves the model and what is to be said about it in the output folder."""
    seconds = trainer.meter.training_seconds
    trainer.save_model(settings.output)  # before evaluation, which may turn the weights to 16 bits (bf16_full_eval)
    metrics = final_metrics(trainer)
    if trainer.is_world_process_zero():
        (Path(settings.output) / TRAINING_ARGS_NAME).unlink(missing_ok=True)  # a pickle; results.json says it in words
        results = write_report(trainer, settings, metrics, seconds)
        parameters = sum(p.numel() for p in trainer.model.parameters())
        counts = {"parameters": parameters, "steps": results["steps"], "tokens_seen": results["tokens_seen"]}
        run.write(settings, counts=counts, metrics=metrics, complete=True)
        print_report(results)
