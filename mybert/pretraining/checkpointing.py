"""A Trainer that saves whole checkpoints or none, and goes on with random states of its own number of processes."""

import shutil
from pathlib import Path

from torch import nn
from transformers import Trainer, set_seed
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import rotate_checkpoints

from mybert.common.disk_space import report_full_disk
from mybert.common.output_folders import replace_folder
from mybert.pretraining.checkpoints import PARTIAL, seal
from mybert.pretraining.planning.costs import COPIES_IN_A_CHECKPOINT


class CheckpointingTrainer(Trainer):
    """transformers' Trainer, but a process that dies while saving leaves no folder that looks like a checkpoint."""

    _stage: Path | None = None

    def _get_output_dir(self, trial) -> str:
        return super()._get_output_dir(trial) if self._stage is None else str(self._stage)

    def _save_checkpoint(self, model: nn.Module, trial=None) -> None:
        """Saves beside the other checkpoints and renames what all processes have written to its end.

        Raises:
            UserError: the disk is full; the checkpoints before it are as they were.
        """
        run = Path(super()._get_output_dir(trial))
        stage, name = run / PARTIAL, f"checkpoint-{self.state.global_step}"
        try:
            with report_full_disk(run / name, self.checkpoint_bytes(), "free some space and go on with --resume"):
                self._write_aside(model, trial, run, stage / name)
                if self.args.should_save:
                    replace_folder(stage / name, run / name)
        finally:
            if self.args.should_save:
                shutil.rmtree(stage, ignore_errors=True)
        if self.args.should_save:
            rotate_checkpoints(run, self.args.save_total_limit, self.state.best_model_checkpoint, use_mtime=True)
        if self.args.push_to_hub:
            super()._push_from_checkpoint(str(run / name))
        self.accelerator.wait_for_everyone()

    def _write_aside(self, model: nn.Module, trial, run: Path, folder: Path) -> None:
        if self.args.should_save:
            shutil.rmtree(folder.parent, ignore_errors=True)  # of a process that was killed while saving
        self.accelerator.wait_for_everyone()
        self._stage = folder.parent
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self._stage = None
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            if self.state.best_global_step:  # Trainer looked for it here
                self.state.best_model_checkpoint = str(run / f"checkpoint-{self.state.best_global_step}")
                self.state.save_to_json(str(folder / TRAINER_STATE_NAME))
            seal(folder)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Nothing while the checkpoint stands aside: `_save_checkpoint` uploads it under its own name."""

    def checkpoint_bytes(self) -> int:
        """About what a checkpoint takes on the disk."""
        return COPIES_IN_A_CHECKPOINT * sum(p.numel() * p.element_size() for p in self.model.parameters())

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Where none was saved for this process, dropout gets a stream that no other step or process has had."""
        name = "rng_state.pth" if self.args.world_size == 1 else f"rng_state_{self.args.process_index}.pth"
        if checkpoint is None or (Path(checkpoint) / name).is_file():
            super()._load_rng_state(checkpoint)
        else:
            place = self.state.global_step * self.args.world_size + self.args.process_index
            set_seed((self.args.seed + place) % 2**32)

    def _issue_warnings_after_load(self, load_result) -> None:
        """Tied weights are saved once; that they miss their second name in a checkpoint is nothing to warn of."""
        tied = self.model.all_tied_weights_keys
        load_result.missing_keys[:] = [name for name in load_result.missing_keys if name not in tied]
        super()._issue_warnings_after_load(load_result)
