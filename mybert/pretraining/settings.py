"""Settings of `mybert pretrain`, with the defaults of the BERT paper."""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from mybert.common.errors import UserError
from mybert.common.quantities import Duration
from mybert.settings import declare
from mybert.settings.declare import EXAMPLES, FOLDER, TEXTS, TRAINABLE, check, check_effect, flag_of, setting
from mybert.settings.shared import SIZES, CasingOptions, RunOptions, TextFileOptions
from mybert.training.options import TrainingOptions


@dataclass(kw_only=True)
class TextOptions(CasingOptions, TextFileOptions):
    """How `--text` is read."""

    language: str = declare.data(
        "en", "Language of --text (ISO 639 code). It decides how sentences are split; only English is lower-cased."
    )


@dataclass
class PretrainSettings(TextOptions, RunOptions):
    """Model, corpus, masking and output; optimisation is in `PretrainingArguments`."""

    command: ClassVar[str] = "pretrain"
    free: ClassVar[tuple[str, ...]] = (
        *(option.name for option in dataclasses.fields(TextOptions)),  # of the corpus, which is compared by content
        *("text", "peak_flops", "keep_checkpoints", "on_nonfinite", "max_steps", "num_train_epochs"),
        *("eval_strategy", "eval_steps", "eval_delay", "eval_on_start"),
        *("load_best_model_at_end", "metric_for_best_model", "greater_is_better"),
    )
    """Settings and training arguments that may change when a run is resumed."""

    output: str = setting(
        help="Folder of the finished model; training checkpoints are in OUTPUT/checkpoint-N.", writes=FOLDER
    )
    corpus: str | None = declare.data(
        None, "Folder of examples written by `mybert corpus`. Give either --corpus or --text.", reads=EXAMPLES
    )
    text: list[str] = declare.data(
        default_factory=list,
        help="Text instead of --corpus: files, folders, patterns or data sets as in `mybert corpus`. First a "
        "vocabulary and examples are built in OUTPUT-tokenizer and OUTPUT-corpus.",
        reads=TEXTS,
    )
    time_budget: Duration | None = declare.training(
        None,
        "Time for the whole command, such as 10m, 1h or 2h30m, summed over all sessions of a resumed run. Size, "
        "lengths, batch, learning rate and schedule are chosen from measurements unless they are given.",
        decides=True,
    )
    size: str | None = declare.model(None, "Size of a new model (default: small).", choices=SIZES)
    init_from: str | None = declare.model(
        None,
        "BERT or MyBERT checkpoint (folder or Hub name) to continue from; build the corpus with its tokenizer, as "
        "--text does.",
        reads=TRAINABLE,
    )
    dropout: float | None = declare.model(
        None,
        "Dropout probability of hidden layers and attention, in [0, 1) (default: 0.1, or the checkpoint's value with "
        "--init-from). Use 0 for runs of about one epoch.",
        within="[0, 1)",
    )
    initializer_range: float | None = declare.model(
        None,
        "Standard deviation of the weight initialisation, above 0 (default: 0.02). With about 1 / sqrt(hidden "
        "size), small models need fewer steps.",
        within="(0, inf)",
    )
    initial_weights: str = declare.model(
        "random",
        "Initialisation of a new model: random, or text, which needs fewer steps: token vectors from co-occurrence "
        "statistics of the text, and heads of the first layer that attend to neighbouring tokens.",
        choices=("random", "text"),
    )
    optimizer: str = declare.training(
        "adamw",
        "adamw: the optimizer of --optim. muon: Muon for the matrices of the encoder and AdamW for the other weights, "
        "with the same learning rate; needs fewer steps than AdamW.",
        choices=("adamw", "muon"),
    )
    mlm_probability: float = declare.training(
        0.15, "Share of the tokens of a sequence that are masked, in (0, 1).", within="(0, 1)"
    )
    start_mlm_probability: float | None = declare.training(
        None,
        "Share of masked tokens at the first step, in (0, 1); changes linearly to --mlm-probability (default: "
        "constant).",
        within="(0, 1)",
    )
    max_predictions_per_seq: int | None = declare.training(
        None, "Maximum number of masked tokens per sequence, at least 1.", least=1
    )
    whole_word_masking: bool = declare.training(False, "Mask all tokens of a word together.")
    masking_seed: int | None = declare.seeds(None, "Seed of the masks (default: --seed).")
    max_tokens_per_batch: int | None = declare.batches(
        None, "Maximum number of real tokens per batch; replaces --per-device-train-batch-size.", least=1
    )
    start_tokens_per_batch: int | None = declare.batches(
        None,
        "Tokens per batch at the first step, at least 1; increases linearly to --max-tokens-per-batch (default: "
        "constant).",
        least=1,
    )
    length_schedule: list[str] = declare.training(
        default_factory=list,
        help="Sequence lengths, each with the share of the run until which it is used, such as 32:0.3 64:0.6 128, or "
        "128:0.9 512 as in the paper. Shorter sequences are random excerpts of the examples.",
    )
    on_nonfinite: str = declare.training(
        "stop", "What to do if a gradient is not finite: stop (the run) or skip (the step).", choices=("stop", "skip")
    )
    peak_flops: float | None = declare.hardware(
        None,
        "Peak floating point operations per second of a device, used for the MFU in the log (default: measured with "
        "matrix products).",
        within="(0, inf)",
    )
    keep_checkpoints: int | None = declare.output(
        None, "Keep only this number of checkpoints when the run has finished, 0 or more (default: all).", least=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size is not None and self.init_from is not None:
            raise UserError("--size and --init-from exclude each other: the checkpoint determines the size")
        if self.size is None and self.init_from is None and self.time_budget is None:
            self.size = "small"
        if (self.corpus is None) == (not self.text):
            raise UserError("give either --corpus (a folder of `mybert corpus`) or --text (files)")
        for option in dataclasses.fields(TextOptions) if self.corpus is not None else ():
            if (value := getattr(self, option.name)) != option.default:
                negation = option.metadata["negation"] if value is False else None
                raise UserError(
                    f"--{negation or flag_of(option.name)[2:]} is an option for --text; with --corpus, give it to "
                    "`mybert tokenizer` and `mybert corpus`"
                )
        is_new = self.init_from is None
        check_effect(self, "initializer_range initial_weights", is_new, "with --init-from; leave one out")
        check_effect(self, "uncased strip_accents", is_new, "with --init-from, whose tokenizer is used; leave one out")
        seed = self.masking_seed
        check(self, "masking_seed", seed is None or 0 <= seed < 2**64, "0 or more and below 2**64")
        self.length_schedule = " ".join(map(str, self.length_schedule)).split()  # one text with all, as in a recipe
        if self.length_schedule:
            parse_lengths(self.length_schedule)
        if self.start_tokens_per_batch is not None and self.max_tokens_per_batch is None and not self.time_budget:
            raise UserError(
                "--start-tokens-per-batch needs --max-tokens-per-batch, the number of tokens at the end of the run"
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

    def masking_rules(self, seed: int) -> dict[str, Any]:
        """Arguments of `Masker.from_tokenizer`; `seed` is used without `masking_seed`."""
        return {
            "mlm_probability": self.mlm_probability,
            "max_predictions": self.max_predictions_per_seq,
            "whole_words": self.whole_word_masking,
            "seed": seed if self.masking_seed is None else self.masking_seed,
        }


def parse_lengths(words: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """Reads `32:0.3 64:0.6 128`: 32 tokens until 30% of the run, 64 until 60%, then 128."""
    try:
        pairs = [word.split(":") for word in words]
        lengths = tuple((int(length), float(*share) if share else 1.0) for length, *share in pairs)
        ends = [0.0, *(end for _, end in lengths)]
        rises = all(before < after for before, after in pairwise(ends))
        if not rises or ends[-1] != 1.0 or min(length for length, _ in lengths) < 8:
            raise ValueError
    except (ValueError, TypeError) as error:
        raise UserError(
            "--length-schedule: expected lengths of 8 tokens or more and rising shares of the run at which they end, "
            f"such as `32:0.3 64:0.6 128`, found {' '.join(map(str, words))!r}"
        ) from error
    return lengths


@dataclass
class PretrainingOptions(TrainingOptions):
    """The fields of `PretrainingArguments` with the defaults of Devlin et al. 2019, appendix A.2.

    The paper trains 1,000,000 steps of 256 sequences; here the user chooses.
    """

    arguments_class: ClassVar[str] = "mybert.pretraining.arguments:PretrainingArguments"
    unsupported: ClassVar[Mapping[str, str]] = {
        "remove_unused_columns": "the dataset returns batches, not columns",
        "label_smoothing_factor": "pretraining has no label smoothing",
        "ignore_data_skip": "a resumed run skips the examples that it has read",
    }

    learning_rate: float = declare.training(1e-4, "Peak learning rate (paper: 1e-4 with AdamW).")
    num_train_epochs: float = declare.training(3.0, "Passes over the examples.")
    warmup_steps: float = declare.training(
        0.01, "Warm-up steps, or their share of all steps if below 1 (paper: 10,000 of 1,000,000)."
    )
    per_device_train_batch_size: int = declare.batches(32, "Sequences per device and forward pass.")
    per_device_eval_batch_size: int = declare.batches(32, "Evaluation sequences per device and forward pass.")
    logging_steps: float = declare.output(20, "Steps between logs; below 1, a share of all steps.")
    eval_strategy: str = declare.evaluation(
        "steps", "When to evaluate on the held-out documents.", choices=("no", "steps", "epoch")
    )
    eval_steps: float | None = declare.evaluation(
        0.1, "Steps between evaluations; below 1, a share of all steps, which is 10 steps at least."
    )
    save_steps: float = declare.output(500, "Steps between checkpoints; below 1, a share of all steps.")
    save_total_limit: int | None = declare.output(2, "Maximum number of checkpoints.")
    remove_unused_columns: bool = setting(False, argparse.SUPPRESS)

    @classmethod
    def check_values(cls, given: Any) -> None:
        super().check_values(given)
        if given.train_sampling_strategy != "random":
            raise UserError(f"train_sampling_strategy {given.train_sampling_strategy} is not supported; leave it out")
