"""The folder of a run: may it be written, is it the run to go on with, and what says so."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from accelerate import PartialState
from transformers import TrainingArguments

from mybert.common.errors import UserError
from mybert.common.manifest import identity, read_manifest, write_manifest
from mybert.common.output_folders import empty_folder, is_vacant, refuse_existing
from mybert.common.resuming import check_optimizer, check_unchanged, choices_of
from mybert.pretraining.checkpoints import PARTIAL, last_whole, set_aside
from mybert.pretraining.inputs import Corpus
from mybert.pretraining.settings import PretrainSettings

STAGE = "pretrain"


@dataclass(frozen=True)
class Identity:
    """What may not change when a run is resumed: else its steps would not be those of one run.

    Attributes:
        choices: name and value of the settings and seeds that decide what is computed.
        inputs: name of each corpus, its path and fingerprint.
    """

    choices: dict
    inputs: dict

    @classmethod
    def of(cls, settings: PretrainSettings, arguments: TrainingArguments, corpora: Sequence[Corpus]) -> "Identity":
        names = ("size", "init_from", "mlm_probability", "max_predictions_per_seq", "whole_word_masking")
        names += ("max_tokens_per_batch",)
        choices = {
            name: getattr(settings, name)
            for name in (*names, "dropout", "initializer_range", "masking_seed", "phase2_share")
        }
        choices |= choices_of(arguments)
        if settings.max_tokens_per_batch is not None:
            choices["train_sampling_strategy"] = arguments.train_sampling_strategy
        inputs = dict(zip(("corpus", "phase2_corpus"), (corpus.identity() for corpus in corpora), strict=False))
        if settings.init_from is not None:
            inputs["init_from"] = identity(settings.init_from)
        return cls(choices, inputs)

    def write(self, settings: PretrainSettings, **facts) -> None:
        """Writes the manifest of the output folder."""
        facts = {"counts": {}, "choices": self.choices} | facts
        write_manifest(settings.output, STAGE, settings=settings, inputs=self.inputs, **facts)

    def check_same(self, output: str) -> None:
        """
        Raises:
            UserError: the run in the folder `output` was started with something else.
        """
        check_unchanged(read_manifest(output), self.choices, self.inputs)


def check_output(settings: PretrainSettings) -> str | None:
    """
    Returns:
        The checkpoint to go on from, if that was asked for and the run has come so far.

    Raises:
        UserError: there is none to go on from though there was, or something is in the way.
    """
    output = Path(settings.output)
    if settings.dry_run:
        return None
    if settings.resume and not is_vacant(output):
        checkpoint, damaged = last_whole(output)
        if checkpoint is not None:
            check_optimizer(checkpoint)
            return str(checkpoint)
        if damaged:
            raise UserError(f"--resume: {_list(damaged)}; none is left: start the run anew with --overwrite")
        if read_manifest(output).get("complete") is not False:
            raise UserError(f"--resume: {output} has no checkpoint; start the run anew with --overwrite")
    if settings.resume and PartialState().is_main_process:
        print(f"--resume: {output} has no checkpoint yet: the run begins")
    _refuse_existing(settings)
    return None


def start_output(settings: PretrainSettings, run: Identity, checkpoint: str | None) -> None:
    """Empties the folder of a new run and writes down what it is; in a resumed one, sets aside what is damaged."""
    output = Path(settings.output)
    processes = PartialState()
    if not checkpoint:
        _refuse_existing(settings)  # what another run may have made while the corpus was read
    processes.wait_for_everyone()  # all have seen the folder as it was
    if processes.is_main_process and not checkpoint:
        empty_folder(output)
    elif processes.is_main_process:
        shutil.rmtree(output / PARTIAL, ignore_errors=True)
        _, damaged = last_whole(output)
        if damaged:
            places = ", ".join(set_aside(path).name for path in damaged)
            print(f"{_list(damaged)}; going on from {Path(checkpoint).name} (set aside: {places})")
    if processes.is_main_process:
        run.write(settings, complete=False)
    processes.wait_for_everyone()


def _refuse_existing(settings: PretrainSettings) -> None:
    inputs = [name for name in (settings.corpus, settings.phase2_corpus, settings.init_from) if name is not None]
    overwrite = settings.overwrite or settings.resume  # of a run that was cut off before its first checkpoint
    refuse_existing(settings.output, overwrite=overwrite, stage=STAGE, inputs=inputs)


def _list(damaged: dict[Path, str]) -> str:
    return "; ".join(f"{path} is damaged: {damage}" for path, damage in damaged.items())
