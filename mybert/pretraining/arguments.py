"""TrainingArguments of pretraining."""

from dataclasses import dataclass

from mybert.common.errors import UserError
from mybert.pretraining.settings import PretrainingOptions
from mybert.training.arguments import DeviceArguments, check_arguments, settle_arguments


@dataclass
class PretrainingArguments(PretrainingOptions, DeviceArguments):
    """transformers' TrainingArguments with the defaults of `PretrainingOptions`."""

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
