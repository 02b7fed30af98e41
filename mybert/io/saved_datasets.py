"""Data sets written by `save_to_disk`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict


def load_saved_dataset(folder: str) -> "Dataset | DatasetDict":
    """`datasets.load_from_disk` with validation of the tables: reading a damaged table can kill the process.

    Raises:
        Exception: of any type, if the folder was not written by `save_to_disk`.
    """
    import datasets

    loaded = datasets.load_from_disk(folder)
    for data in loaded.values() if isinstance(loaded, datasets.DatasetDict) else [loaded]:
        data.data.table.validate(full=True)
    return loaded
