"""TrainingArguments of fine-tuning."""

from dataclasses import dataclass, field

from transformers.trainer_utils import SaveStrategy

from mybert.common.errors import UserError
from mybert.finetuning.settings import FinetuningOptions
from mybert.training.arguments import DeviceArguments, check_arguments, settle_arguments


@dataclass
class FinetuningArguments(FinetuningOptions, DeviceArguments):
    """transformers' TrainingArguments with the defaults of `FinetuningOptions`."""

    label_names: list[str] | None = field(default=None, init=False)  # --label-names renames classes instead

    def __post_init__(self):
        settle_arguments(self)
        for name in ("metric_for_best_model", "greater_is_better"):  # before transformers fills them in
            if getattr(self, name) is not None:
                raise UserError(f"{name} is not supported: the best checkpoint is chosen by --metric")
        if self.load_best_model_at_end and self.save_strategy not in (self.eval_strategy, SaveStrategy.BEST):
            raise UserError(
                "--eval-strategy and --save-strategy differ, so the best checkpoint may not be saved; give both the "
                "same value, or add --load-best-model-at-end false"
            )
        super().__post_init__()
        unsupported = {
            "bf16_full_eval": "it would round the weights that are kept; --bf16 evaluates in bfloat16, too",
            "fp16_full_eval": "it would round the weights that are kept",
            "push_to_hub": "`mybert push` uploads the finished model, verified",
            "dataloader_drop_last": "every row is trained on and scored",
            "prediction_loss_only": "checkpoints are chosen by scores",
            "batch_eval_metrics": "scores are computed over all rows at once",
        }
        check_arguments(self, unsupported)
        if self.save_strategy == SaveStrategy.BEST:
            raise UserError(
                "save_strategy best is not supported: the best checkpoint is always kept; --resume needs the last"
            )
        if not self.eval_do_concat_batches:
            raise UserError("eval_do_concat_batches false is not supported: scores are computed over all rows at once")
