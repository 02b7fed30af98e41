"""Order of evaluation and saving at the end of an epoch."""

from transformers import TrainerCallback
from transformers.trainer_utils import IntervalStrategy


class SaveAfterEvaluation(TrainerCallback):
    """Saves a checkpoint of the last step of an epoch after the evaluation of that epoch.

    Trainer saves it before, so that a run resumed from it would skip the evaluation and differ from then on.
    """

    def __init__(self):
        self._postponed = False

    def on_step_end(self, args, state, control, **kwargs):
        ends_epoch = float(state.epoch).is_integer()
        if control.should_save and ends_epoch and args.eval_strategy == IntervalStrategy.EPOCH:
            control.should_save, self._postponed = False, True

    def on_epoch_end(self, args, state, control, **kwargs):
        control.should_save |= self._postponed
        self._postponed = False
