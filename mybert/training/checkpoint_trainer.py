"""A Trainer that saves sealed checkpoints, and restores random states for its own number of processes."""

import shutil
from pathlib import Path

from torch import nn
from transformers import Trainer, set_seed
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from mybert.common.disk_space import report_full_disk
from mybert.common.manifest import write_json
from mybert.common.output_folders import replace_folder
from mybert.training.sealed_checkpoints import COPIES_IN_A_CHECKPOINT, PARTIAL, drop_old, seal


class CheckpointTrainer(Trainer):
    """transformers' Trainer with atomic checkpoints: a process killed while saving leaves no incomplete checkpoint."""

    _stage: Path | None = None

    def before_save(self) -> None:
        """Called before a checkpoint is written; an exception prevents it."""

    def extra_states(self) -> dict[str, dict]:
        """Name and content of further JSON files of a checkpoint. All processes must call it."""
        return {}

    def count_parameters(self) -> int:
        """Parameters of the model as it is saved."""
        return sum(p.numel() for p in self.model.parameters())

    def checkpoint_bytes(self) -> int:
        """Approximate size of a checkpoint on disk."""
        return COPIES_IN_A_CHECKPOINT * self.count_parameters() * next(self.model.parameters()).element_size()

    def _get_output_dir(self, trial) -> str:
        return super()._get_output_dir(trial) if self._stage is None else str(self._stage)

    def _save_checkpoint(self, model: nn.Module, trial=None) -> None:
        """Saves into a temporary folder and renames it when all processes have finished."""
        self.before_save()
        run = Path(self.args.output_dir)
        stage, name = run / PARTIAL, f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        try:
            with report_full_disk(run / name, self.checkpoint_bytes(), "free some space and repeat with --resume"):
                self._save_to_stage(model, trial, run, stage / name)
                if self.args.should_save:
                    replace_folder(stage / name, run / name)
        finally:
            if self.args.should_save:
                shutil.rmtree(stage, ignore_errors=True)
        if self.args.should_save:
            drop_old(run, self.args.save_total_limit, self.state.best_model_checkpoint)
        self.accelerator.wait_for_everyone()

    def _save_to_stage(self, model: nn.Module, trial, run: Path, folder: Path) -> None:
        if self.args.should_save:
            shutil.rmtree(folder.parent, ignore_errors=True)  # of a process that was killed while saving
        self.accelerator.wait_for_everyone()
        self._stage = folder.parent
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self._stage = None
        states = self.extra_states()
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            for name, state in states.items():
                write_json(folder / name, state)
            if self.state.best_global_step:  # Trainer has looked for it in the temporary folder
                best = run / f"{PREFIX_CHECKPOINT_DIR}-{self.state.best_global_step}"
                self.state.best_model_checkpoint = str(best) if best.is_dir() or best.name == folder.name else None
                self.state.save_to_json(str(folder / TRAINER_STATE_NAME))
            seal(folder)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Seeds a process without a saved state differently from every other process and step."""
        name = "rng_state.pth" if self.args.world_size == 1 else f"rng_state_{self.args.process_index}.pth"
        if checkpoint is None or (Path(checkpoint) / name).is_file():
            super()._load_rng_state(checkpoint)
        else:
            place = self.state.global_step * self.args.world_size + self.args.process_index
            set_seed((self.args.seed + place) % 2**32)
