"""Settings of `mybert pretrain`, with the defaults of the BERT paper."""

import argparse
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mybert.common.errors import UserError
from mybert.common.languages import STRIP_HELP
from mybert.common.quantities import Duration
from mybert.common.settings import (
    EXAMPLES,
    FOLDER,
    MODEL,
    SIZES,
    TEXTS,
    TextFileOptions,
    as_list,
    check,
    check_choice,
    check_choices,
    check_resume,
    setting,
)
from mybert.pretraining.schedule import Schedule, parse_lengths
from mybert.training.options import TrainingOptions


@dataclass(kw_only=True)
class TextOptions(TextFileOptions):
    """How `--text` is read."""

    language: str = setting(
        "en",
        "Language of --text (ISO 639 code): decides how sentences are split and whether marks are removed.",
    )
    uncased: bool = setting(
        True,
        "Lower-case the text of --text and strip accents; --cased keeps both, which suits most languages other than "
        "English.",
        negation="cased",
    )
    strip_accents: bool | None = setting(None, STRIP_HELP)


@dataclass
class PretrainSettings(TextOptions):
    """Model, corpus, masking and output; optimisation is in `PretrainingArguments`."""

    command: ClassVar[str] = "pretrain"
    free: ClassVar[tuple[str, ...]] = (
        *(option.name for option in dataclasses.fields(TextOptions)),  # of the corpus, which is compared by content
        *("text", "peak_flops", "keep_checkpoints", "on_nonfinite", "padding_free", "max_steps", "num_train_epochs"),
        *("eval_strategy", "eval_steps", "eval_delay", "eval_on_start"),
        *("load_best_model_at_end", "metric_for_best_model", "greater_is_better"),
    )
    """Settings and training arguments that may change when a run is resumed."""

    output: str = setting(
        help="Folder of the finished model; training checkpoints are in OUTPUT/checkpoint-N.", writes=FOLDER
    )
    corpus: str | None = setting(
        None, "Folder of examples written by `mybert corpus`. Give either --corpus or --text.", reads=EXAMPLES
    )
    text: list[str] = setting(
        default_factory=list,
        help="Text instead of --corpus: files, folders, patterns or data sets as in `mybert corpus`. First a "
        "vocabulary and examples are built in OUTPUT-tokenizer and OUTPUT-corpus.",
        reads=TEXTS,
    )
    time_budget: Duration | None = setting(
        None,
        "Time for the whole command, such as 10m, 1h or 2h30m, summed over all sessions of a resumed run. Size, "
        "lengths, batch, learning rate and schedule are chosen from measurements unless they are given.",
    )
    size: str | None = setting(None, f"Size of a new model: {', '.join(SIZES)} (default: small).")
    init_from: str | None = setting(
        None,
        "BERT or MyBERT checkpoint (folder or Hub name) to continue from; build the corpus with its tokenizer.",
        reads=MODEL,
    )
    dropout: float | None = setting(
        None,
        "Dropout probability of hidden layers and attention, in [0, 1) (default: 0.1, or the checkpoint's value with "
        "--init-from). Use 0 for runs of about one epoch.",
    )
    initializer_range: float | None = setting(
        None,
        "Standard deviation of the weight initialisation, above 0 (default: 0.02). With about 1 / sqrt(hidden "
        "size), small models need fewer steps.",
    )
    initial_weights: str = setting(
        "random",
        "Initialisation of a new model: random, or text, which needs fewer steps: token vectors from co-occurrence "
        "statistics of the text, and heads of the first layer that attend to neighbouring tokens.",
    )
    attn_implementation: str | None = setting(
        None,
        "Attention backend: eager, sdpa, flex_attention, varlen_attn, flash_attention_2, … (default: sdpa). Falls "
        "back to sdpa for unsupported features such as dropout.",
    )
    optimizer: str = setting(
        "adamw",
        "adamw: the optimizer of --optim. muon: Muon for the matrices of the encoder and AdamW for the other weights, "
        "with the same learning rate; needs fewer steps than AdamW.",
    )
    mlm_probability: float = setting(0.15, "Share of the tokens of a sequence that are masked, in (0, 1).")
    start_mlm_probability: float | None = setting(
        None,
        "Share of masked tokens at the first step, in (0, 1); changes linearly to --mlm-probability (default: "
        "constant).",
    )
    max_predictions_per_seq: int | None = setting(
        None, "Maximum number of masked tokens per sequence, at least 1.", least=1
    )
    whole_word_masking: bool = setting(False, "Mask all tokens of a word together.")
    masking_seed: int | None = setting(None, "Seed of the masks (default: --seed).")
    max_tokens_per_batch: int | None = setting(
        None,
        "Maximum number of real tokens per batch; replaces --per-device-train-batch-size. Batches have sequences of "
        "similar length with --train-sampling-strategy group_by_length.",
        least=1,
    )
    start_tokens_per_batch: int | None = setting(
        None,
        "Tokens per batch at the first step, at least 1; increases linearly to --max-tokens-per-batch (default: "
        "constant).",
        least=1,
    )
    length_schedule: list[str] = setting(
        default_factory=list,
        help="Sequence lengths, each with the share of the run until which it is used, such as 32:0.3 64:0.6 128. "
        "Shorter sequences are random excerpts of the examples.",
    )
    padding_free: bool = setting(True, "Concatenate sequences instead of padding them to the longest.")
    phase2_corpus: str | None = setting(
        None,
        "Second folder of examples for the last steps, usually of 512 tokens, built with the same tokenizer.",
        reads=EXAMPLES,
    )
    phase2_share: float = setting(0.1, "Share of the steps that read the second corpus, in (0, 1).")
    on_nonfinite: str = setting("stop", "What to do if a gradient is not finite: stop (the run) or skip (the step).")
    peak_flops: float | None = setting(
        None,
        "Peak floating point operations per second of a device, used for the MFU in the log (default: measured with "
        "matrix products).",
    )
    keep_checkpoints: int | None = setting(
        None, "Keep only this number of checkpoints when the run has finished, 0 or more (default: all).", least=0
    )
    dry_run: bool = setting(False, "Print the plan, measure a few steps, and write nothing.")
    resume: bool = setting(
        False, "Resume from the latest valid checkpoint in --output; start a new run if there is none."
    )
    overwrite: bool = setting(False, "Replace the run in the output folder.")

    def __post_init__(self):
        if self.size is not None and self.init_from is not None:
            raise UserError("--size and --init-from exclude each other: the checkpoint determines the size")
        if self.size is None and self.init_from is None and self.time_budget is None:
            self.size = "small"
        self.text = as_list(self.text)
        if (self.corpus is None) == (not self.text):
            raise UserError("give either --corpus (a folder of `mybert corpus`) or --text (files)")
        for option in dataclasses.fields(TextOptions) if self.corpus is not None else ():
            if getattr(self, option.name) != option.default:
                name = option.metadata["negation"] or option.name.replace("_", "-")
                raise UserError(
                    f"--{name} is an option for --text; with --corpus, give it to `mybert tokenizer` and `mybert "
                    "corpus`"
                )
        if self.time_budget is not None and not isinstance(self.time_budget, Duration):
            self.time_budget = _duration(self.time_budget)
        check_choice(self, "size", SIZES)
        check(self, "dropout", self.dropout is None or 0 <= self.dropout < 1, "0 or more and below 1")
        check(self, "initializer_range", self.initializer_range is None or self.initializer_range > 0, "above 0")
        if self.initializer_range is not None and self.init_from is not None:
            raise UserError("--initializer-range has no effect with --init-from")
        check_choice(self, "initial_weights", ("random", "text"))
        if self.initial_weights != "random" and self.init_from is not None:
            raise UserError("--initial-weights has no effect with --init-from")
        for name in ("mlm_probability", "start_mlm_probability", "phase2_share"):
            check(self, name, getattr(self, name) is None or 0 < getattr(self, name) < 1, "between 0 and 1")
        check_choices(self)
        self._check_schedule()
        seed = self.masking_seed
        check(self, "masking_seed", seed is None or 0 <= seed < 2**64, "0 or more and below 2**64")
        check_choice(self, "on_nonfinite", ("stop", "skip"))
        check_choice(self, "optimizer", ("adamw", "muon"))
        check(self, "peak_flops", self.peak_flops is None or 0 < self.peak_flops < math.inf, "above 0")
        if self.phase2_corpus is None and self.phase2_share != type(self).phase2_share:
            raise UserError("--phase2-share has no effect without --phase2-corpus")
        check_resume(self)

    def _check_schedule(self) -> None:
        if self.length_schedule:
            parse_lengths(self.length_schedule)
        if self.start_tokens_per_batch is not None and self.max_tokens_per_batch is None and not self.time_budget:
            raise UserError(
                "--start-tokens-per-batch needs --max-tokens-per-batch, the number of tokens at the end of the run"
            )
        if self.is_scheduled and self.phase2_corpus is not None:
            raise UserError(
                "--phase2-corpus cannot be used with --time-budget, --length-schedule, --start-tokens-per-batch or "
                "--start-mlm-probability: a schedule reads one corpus"
            )

    def of_training(self) -> dict[str, Any]:
        """The settings by name, without the options of the text: the corpus records its own."""
        of_text = {option.name for option in dataclasses.fields(TextOptions)}
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in of_text}

    @property
    def is_scheduled(self) -> bool:
        """Whether length, batch or masking change during the run, or the clock ends it."""
        return bool(
            self.time_budget or self.length_schedule or self.start_tokens_per_batch or self.start_mlm_probability
        )

    def schedule(self, longest: int, tokens: float) -> Schedule:
        """`longest`: tokens of the longest example; `tokens`: of a batch without `max_tokens_per_batch`."""
        most = self.max_tokens_per_batch or tokens
        lengths = parse_lengths(self.length_schedule) if self.length_schedule else ((longest, 1.0),)
        return Schedule(
            lengths=lengths,
            tokens=(self.start_tokens_per_batch or most, most),
            masked=(self.start_mlm_probability or self.mlm_probability, self.mlm_probability),
        )

    def masking_rules(self, seed: int) -> dict[str, Any]:
        """Arguments of `Masker.from_tokenizer`; `seed` is used without `masking_seed`."""
        return {
            "probability": self.mlm_probability,
            "max_predictions": self.max_predictions_per_seq,
            "whole_words": self.whole_word_masking,
            "seed": seed if self.masking_seed is None else self.masking_seed,
        }


def _duration(text: object) -> Duration:
    try:
        return Duration(text)
    except argparse.ArgumentTypeError as error:
        raise UserError(f"--time-budget: {error}") from error


@dataclass
class PretrainingOptions(TrainingOptions):
    """The fields of `PretrainingArguments` with the defaults of Devlin et al. 2019, appendix A.2.

    The paper trains 1,000,000 steps of 256 sequences; here the user chooses.
    """

    complete: ClassVar[str] = "mybert.pretraining.arguments:PretrainingArguments"
    unsupported: ClassVar[Mapping[str, str]] = {
        "remove_unused_columns": "the dataset returns batches, not columns",
        "label_smoothing_factor": "pretraining has no label smoothing",
        "ignore_data_skip": "a resumed run skips the examples that it has read",
    }

    learning_rate: float = setting(1e-4, "Peak learning rate (paper: 1e-4 with AdamW).")
    num_train_epochs: float = setting(3.0, "Passes over the examples.")
    warmup_steps: float = setting(
        0.01, "Warm-up steps, or their share of all steps if below 1 (paper: 10,000 of 1,000,000)."
    )
    per_device_train_batch_size: int = setting(32, "Sequences per device and forward pass.")
    per_device_eval_batch_size: int = setting(32, "Evaluation sequences per device and forward pass.")
    logging_steps: float = setting(20, "Steps between logs, or their share if below 1.")
    eval_strategy: str = setting(
        "steps", "When to evaluate on the held-out documents.", choices=("no", "steps", "epoch")
    )
    eval_steps: float | None = setting(0.1, "Steps between evaluations, or their share if below 1.")
    save_steps: float = setting(500, "Steps between checkpoints, or their share if below 1.")
    save_total_limit: int | None = setting(2, "Maximum number of checkpoints.")
    remove_unused_columns: bool = setting(False, argparse.SUPPRESS)

    @classmethod
    def check_values(cls, given: Any) -> None:
        super().check_values(given)
        if given.train_sampling_strategy not in ("random", "group_by_length"):
            raise UserError(
                f"train_sampling_strategy {given.train_sampling_strategy} is not supported: random, or "
                "group_by_length with --max-tokens-per-batch"
            )
