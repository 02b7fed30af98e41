"""TrainingArguments of fine-tuning."""

from dataclasses import dataclass, field

from mybert.finetuning.settings import FinetuningOptions
from mybert.training.arguments import RunArguments


@dataclass
class FinetuningArguments(FinetuningOptions, RunArguments):
    """transformers' TrainingArguments with the defaults of `FinetuningOptions`."""

    label_names: list[str] | None = field(default=None, init=False)  # --label-names renames classes instead
