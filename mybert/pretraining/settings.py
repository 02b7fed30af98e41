"""Settings of `mybert pretrain`, with the defaults of the BERT paper."""

import argparse
import math
from dataclasses import dataclass
from typing import Any

from transformers import TrainingArguments

from modeling_mybert.configuration_mybert import NAMED_SIZES
from mybert.common.errors import UserError
from mybert.common.settings import check, check_choice, check_least, check_resume, setting
from mybert.training.arguments import check_arguments, settle_arguments


@dataclass
class PretrainSettings:
    """Model, corpus, masking and output; optimisation is in `PretrainingArguments`.

    Raises:
        UserError: a value is out of range, or two settings contradict each other.
    """

    corpus: str = setting(help="Folder of examples written by `mybert corpus`.")
    output: str = setting(help="Folder of the finished model; training checkpoints are in its checkpoint-N.")
    size: str | None = setting(None, f"Size of a new model: {', '.join(NAMED_SIZES)} (default: small).")
    init_from: str | None = setting(
        None, "BERT or MyBERT checkpoint (folder or Hub name) to continue from; it must have the corpus' vocabulary."
    )
    dropout: float | None = setting(
        None,
        "Dropout probability of hidden layers and attention, in [0, 1) (default: 0.1, or the checkpoint's value with "
        "--init-from). 0 suits runs of about one epoch.",
    )
    initializer_range: float | None = setting(
        None,
        "Standard deviation of the weight initialisation, above 0 (default: 0.02). About 1 / sqrt(hidden size) helps "
        "narrow models to leave the first plateau sooner.",
    )
    attn_implementation: str | None = setting(
        None,
        "Attention backend: eager, sdpa, flex_attention, varlen_attn, flash_attention_2, … (default: sdpa). Falls "
        "back to sdpa for unsupported features such as dropout.",
    )
    mlm_probability: float = setting(0.15, "Share of the tokens of a sequence that are labelled, in (0, 1).")
    max_predictions_per_seq: int | None = setting(None, "Maximum number of labelled tokens per sequence, at least 1.")
    whole_word_masking: bool = setting(False, "Label all tokens of a word together.")
    masking_seed: int | None = setting(None, "Seed of the masks (default: --seed).")
    max_tokens_per_batch: int | None = setting(
        None,
        "Fill batches with sequences up to this number of real tokens instead of --per-device-train-batch-size "
        "sequences; with --train-sampling-strategy group_by_length, with sequences of similar length.",
    )
    padding_free: bool = setting(True, "Concatenate sequences instead of padding them to the longest.")
    phase2_corpus: str | None = setting(
        None, "Second folder of examples with the same tokenizer, usually of 512 tokens, for the last steps."
    )
    phase2_share: float = setting(0.1, "Share of the steps that read the second corpus, in (0, 1).")
    on_nonfinite: str = setting("stop", "At a gradient that is not finite: stop the run, or skip the step.")
    peak_flops: float | None = setting(
        None,
        "Peak floating point operations per second of a device, for the mfu in the log (default: measured with matrix "
        "products).",
    )
    keep_checkpoints: int | None = setting(
        None, "Keep only this number of checkpoints when the run has finished, 0 or more (default: all)."
    )
    dry_run: bool = setting(False, "Print the plan, measure a few steps, and write nothing.")
    resume: bool = setting(
        False, "Resume from the latest valid checkpoint in --output; start a new run if there is none."
    )
    overwrite: bool = setting(False, "Replace the run in the output folder.")

    def __post_init__(self):
        if self.size is not None and self.init_from is not None:
            raise UserError("--size and --init-from exclude each other: the checkpoint determines the size")
        if self.size is None and self.init_from is None:
            self.size = "small"
        check_choice(self, "size", NAMED_SIZES)
        check(self, "dropout", self.dropout is None or 0 <= self.dropout < 1, "0 or more and below 1")
        check(self, "initializer_range", self.initializer_range is None or self.initializer_range > 0, "above 0")
        if self.initializer_range is not None and self.init_from is not None:
            raise UserError("--initializer-range has no effect with --init-from")
        for name in ("mlm_probability", "phase2_share"):
            check(self, name, 0 < getattr(self, name) < 1, "between 0 and 1")
        check_least(self, "max_predictions_per_seq", 1)
        check_least(self, "max_tokens_per_batch", 1)
        seed = self.masking_seed
        check(self, "masking_seed", seed is None or 0 <= seed < 2**64, "0 or more and below 2**64")
        check_least(self, "keep_checkpoints", 0)
        check_choice(self, "on_nonfinite", ("stop", "skip"))
        check(self, "peak_flops", self.peak_flops is None or 0 < self.peak_flops < math.inf, "above 0")
        if self.phase2_corpus is None and self.phase2_share != type(self).phase2_share:
            raise UserError("--phase2-share has no effect without --phase2-corpus")
        check_resume(self)

    def masking_rules(self, seed: int) -> dict[str, Any]:
        """Arguments of `Masker.from_tokenizer`; `seed` is used without `masking_seed`."""
        return {
            "probability": self.mlm_probability,
            "max_predictions": self.max_predictions_per_seq,
            "whole_words": self.whole_word_masking,
            "seed": seed if self.masking_seed is None else self.masking_seed,
        }


@dataclass
class PretrainingArguments(TrainingArguments):
    """transformers' TrainingArguments with the defaults of Devlin et al. 2019, appendix A.2.

    The paper trains 1,000,000 steps of 256 sequences; here the user chooses.
    """

    learning_rate: float = setting(1e-4, "Peak learning rate of AdamW (paper: 1e-4).")
    weight_decay: float = setting(0.01, "Weight decay of all weights except biases and norms (paper: 0.01).")
    adam_epsilon: float = setting(1e-6, "Adam's epsilon (the paper's code: 1e-6).")
    warmup_steps: float = setting(
        0.01, "Warm-up steps, or their share of all steps if below 1 (paper: 10,000 of 1,000,000)."
    )
    per_device_train_batch_size: int = setting(32, "Sequences per device and forward pass.")
    per_device_eval_batch_size: int = setting(32, "Evaluation sequences per device and forward pass.")
    logging_steps: float = setting(20, "Steps between logs, or their share if below 1.")
    logging_nan_inf_filter: bool = setting(
        False, "Hide losses that are not finite; costs a device synchronisation per step."
    )
    eval_strategy: str = setting(
        "steps", "When to evaluate on the held-out documents.", choices=("no", "steps", "epoch")
    )
    eval_steps: float | None = setting(0.1, "Steps between evaluations, or their share if below 1.")
    save_total_limit: int | None = setting(2, "Maximum number of checkpoints.")
    remove_unused_columns: bool = setting(False, argparse.SUPPRESS)
    num_train_epochs: float = setting(3.0, "Passes over the examples.")
    max_steps: int = setting(-1, "Number of optimizer steps; -1 trains --num-train-epochs.")
    save_steps: float = setting(500, "Steps between checkpoints, or their share if below 1.")
    seed: int = setting(42, "Random seed (0 or more).")
    bf16: bool = setting(False, "Compute in bfloat16; weights stay in float32.")

    def __post_init__(self):
        settle_arguments(self)
        super().__post_init__()
        check_arguments(
            self,
            {
                "remove_unused_columns": "the dataset returns batches, not columns",
                "label_smoothing_factor": "pretraining has no label smoothing",
                "ignore_data_skip": "a resumed run skips the examples that it has read",
            },
        )
        if self.accelerator_config.split_batches or self.accelerator_config.dispatch_batches:
            raise UserError(
                "accelerator_config: each process reads its own batches; leave split_batches and dispatch_batches out"
            )
        if self.train_sampling_strategy not in ("random", "group_by_length"):
            raise UserError(
                f"train_sampling_strategy {self.train_sampling_strategy} is not supported: random, or group_by_length "
                "with --max-tokens-per-batch"
            )
