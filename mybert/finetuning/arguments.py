"""TrainingArguments of fine-tuning."""

from dataclasses import dataclass, field

from mybert.finetuning.settings import FinetuningOptions
from mybert.training.arguments import DeviceArguments, check_arguments, settle_arguments


@dataclass
class FinetuningArguments(FinetuningOptions, DeviceArguments):
    """transformers' TrainingArguments with the defaults of `FinetuningOptions`."""

    label_names: list[str] | None = field(default=None, init=False)  # --label-names renames classes instead

    def __post_init__(self):
        settle_arguments(self)
        self.check_values(self)  # before transformers fills values in
        super().__post_init__()
        check_arguments(self)
