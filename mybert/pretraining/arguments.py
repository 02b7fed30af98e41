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
        self.check_values(self)
        super().__post_init__()
        check_arguments(self)
        if self.accelerator_config.split_batches or self.accelerator_config.dispatch_batches:
            raise UserError(
                "accelerator_config: each process reads its own batches; leave split_batches and dispatch_batches out"
            )
