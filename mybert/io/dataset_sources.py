"""Data sets of the `datasets` library: folders written by `save_to_disk`, the Hub, and copies of its repositories."""

from pathlib import Path
from typing import Any

import datasets
from datasets.config import DATASET_STATE_JSON_FILENAME, DATASETDICT_JSON_FILENAME
from huggingface_hub import is_offline_mode

from mybert.common.errors import UserError, cause, did_you_mean


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` has written the folder; otherwise it may be a copy of a repository of the Hub."""
    return any((folder / name).is_file() for name in (DATASET_STATE_JSON_FILENAME, DATASETDICT_JSON_FILENAME))


def open_saved(folder: str, split: str | None = None) -> datasets.Dataset:
    """`split` is the name of the split; None if the folder has a single one."""
    try:
        saved = load_saved_dataset(folder)
    except Exception as error:  # a wrong type in one of its files raises anything
        reason = root_cause(error)
        raise UserError(f"{folder} cannot be read as a saved data set ({reason}); name a file in it") from error
    if not isinstance(saved, datasets.DatasetDict):
        return saved
    if split is None and len(saved) == 1:
        (split,) = saved
    if split not in saved:
        splits, first = ", ".join(saved), next(iter(saved), "train")
        raise UserError(f"{folder} holds the splits {splits}; name the folder of one, such as {folder}/{first}")
    return saved[split]


def load_saved_dataset(folder: str) -> datasets.Dataset | datasets.DatasetDict:
    """`datasets.load_from_disk` with validation of the tables: reading a damaged table can kill the process.

    Values are those of Python, also if the data set was saved with a format such as `torch`, which hides columns too.

    Raises any exception if the folder was not written by `save_to_disk`.
    """
    loaded = datasets.load_from_disk(folder)
    for data in loaded.values() if isinstance(loaded, datasets.DatasetDict) else [loaded]:
        data.data.table.validate(full=True)
    return loaded.with_format(None)


def open_hub(name: str, split: str = "train", **options: Any) -> datasets.Dataset | datasets.IterableDataset:
    """The data set `NAME[:CONFIG[:SPLIT]]`, with options of `datasets.load_dataset`; NAME may be a local copy."""
    path, config, named, *_ = [*name.split(":"), None, None]
    datasets.config.HF_HUB_OFFLINE |= is_offline_mode()
    try:
        return datasets.load_dataset(path, config or None, split=named or split, **options)
    except Exception as error:  # the client of the Hub raises many types
        reason = root_cause(error)
        if reason.startswith("Unknown split"):
            raise UserError(f"{name}: {reason} Name it as {path}:{config or ''}:SPLIT") from error
        if Path(path).is_dir():
            where = f"{name} is neither a saved data set nor a folder like those of data sets on the Hub"
            raise UserError(f"{where} ({reason}); name a file in it") from error
        where = f"{name} is neither a file nor a data set that can be loaded from the Hub"
        raise UserError(f"{where} ({reason}){did_you_mean(name)}") from error


def root_cause(error: BaseException) -> str:
    """The first cause of an exception of `datasets`, as one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return cause(error)
