"""Sealed checkpoints: a file with the hashes of all others marks a complete checkpoint; checked before use."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mybert.artifacts.manifest import fingerprint, write_json
from mybert.artifacts.staging import replace_folder, report_full_disk
from mybert.common.errors import UserError, short
from mybert.common.json_io import parse_json

if TYPE_CHECKING:
    from mybert.training.trainer import RunTrainer

SEAL = "checkpoint.json"
"""File with the size and hash of every other file of a checkpoint; a checkpoint without it is incomplete."""
PARTIAL = ".checkpoint.partial"
"""Folder in which a checkpoint is written before it is renamed."""
COPIES_IN_A_CHECKPOINT = 3
"""A checkpoint holds each parameter and Adam's two moments."""
_NAME = re.compile(r"checkpoint-(\d+)")


def save_sealed(trainer: "RunTrainer", write: Callable[[], None]) -> None:
    """Lets `write` save a checkpoint into `trainer.partial_folder`; seals and renames it after all processes."""
    from transformers.trainer import TRAINER_STATE_NAME  # here, since plans do not need it

    run, arguments, state = Path(str(trainer.args.output_dir)), trainer.args, trainer.state
    partial, name = run / PARTIAL, f"checkpoint-{state.global_step}"
    try:
        with report_full_disk(run / name, trainer.checkpoint_bytes(), "free some space and repeat with --resume"):
            if arguments.should_save:
                shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed while saving
            trainer.accelerator.wait_for_everyone()
            trainer.partial_folder = partial
            write()
            states = trainer.extra_states()
            trainer.accelerator.wait_for_everyone()
            if state.best_global_step:  # Trainer has looked for it in the temporary folder, in every process
                best = run / f"checkpoint-{state.best_global_step}"
                state.best_model_checkpoint = str(best) if best.is_dir() or best.name == name else None
            if arguments.should_save:
                for file, content in states.items():
                    write_json(partial / name / file, content)
                if state.best_global_step:
                    state.save_to_json(str(partial / name / TRAINER_STATE_NAME))
                seal(partial / name)
                replace_folder(partial / name, run / name)
    finally:
        trainer.partial_folder = None
        if arguments.should_save:
            shutil.rmtree(partial, ignore_errors=True)
    if arguments.should_save:
        drop_old(run, arguments.save_total_limit, state.best_model_checkpoint)
    trainer.accelerator.wait_for_everyone()


def seal(folder: Path) -> None:
    """Flushes the files of a checkpoint to disk and writes their sizes and hashes."""
    files = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SEAL):
        with file.open("rb+") as stream:
            os.fsync(stream.fileno())
        files[file.relative_to(folder).as_posix()] = {"bytes": file.stat().st_size, "sha256": fingerprint(file)}
    write_json(folder / SEAL, {"files": files})


def find_damage(folder: Path) -> str | None:
    """Describes the damage of a checkpoint, with the file; None if it is undamaged."""
    try:
        sealed = parse_json((folder / SEAL).read_bytes())["files"]
        expected = {name: (int(facts["bytes"]), facts["sha256"]) for name, facts in sealed.items()}
    except FileNotFoundError:
        return f"no {SEAL}: it was not saved completely"
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return f"{SEAL} is damaged"
    for name, (wanted, _) in expected.items():
        file = folder / name
        if not os.path.isfile(file):
            return f"{short(name)[1:-1]} is missing"
        if (size := file.stat().st_size) != wanted:
            return f"{name} has {size:,} bytes instead of {wanted:,}"
    for name, (_, sha256) in expected.items():  # reads everything, so it comes last
        if fingerprint(folder / name) != sha256:
            return f"{name} has changed since it was saved (SHA-256 differs)"
    return None


def checkpoints_in(folder: Path) -> list[Path]:
    """The checkpoints of a run by step. Files, and folders with other names, such as a user's copies, are none."""
    folders = (path for path in folder.glob("checkpoint-*") if path.is_dir())
    steps = {path: match for path in folders if (match := _NAME.fullmatch(path.name))}
    return sorted(steps, key=lambda path: int(steps[path][1]))


def drop_old(folder: Path, most: int | None, best: str | None) -> None:
    """Removes the oldest of more than `most` checkpoints, except the newest and `best`, as transformers does."""
    checkpoints = sorted(checkpoints_in(folder), key=lambda path: path.stat().st_mtime)
    protected = {*checkpoints[-1:], *([Path(best)] if best else [])}
    surplus = len(checkpoints) - max(most, len(protected)) if most and most > 0 else 0
    for path in [path for path in checkpoints if path not in protected][: max(surplus, 0)]:
        shutil.rmtree(path, ignore_errors=True)


def last_undamaged(folder: Path) -> tuple[Path | None, dict[Path, str]]:
    """The newest undamaged checkpoint in `folder`, to resume from, if any; and the damage of each newer one."""
    damaged: dict[Path, str] = {}
    for path in reversed(checkpoints_in(folder)):
        if (damage := find_damage(path)) is not None:
            damaged[path] = damage
            continue
        if not any(path.glob("optimizer*")):
            raise UserError(
                f"--resume: {path} has no optimizer state; a checkpoint saved with --save-only-model cannot be "
                "resumed: start again with --overwrite"
            )
        return path, damaged
    return None, damaged


def describe(damaged: dict[Path, str]) -> str:
    return "; ".join(f"{path} is damaged: {damage}" for path, damage in damaged.items())


def set_aside(damaged: dict[Path, str], checkpoint: Path | None) -> None:
    """Renames damaged checkpoints, so that neither --resume nor `save_total_limit` counts them, and reports it."""
    places = []
    for path in damaged:
        number, place = 0, path.with_name(f"damaged-{path.name}")
        while place.exists():
            number += 1
            place = path.with_name(f"damaged-{path.name}.{number}")
        places.append(path.rename(place).name)
    if damaged:
        start = checkpoint.name if checkpoint else "the first step"
        print(f"{describe(damaged)}; resuming from {start} (renamed: {', '.join(places)})")
