"""Datasets saved by `save_to_disk`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict


def load_saved_dataset(folder: str) -> "Dataset | DatasetDict":
    """`datasets.load_from_disk`, with its tables looked through: reading a damaged one may end the process.

    Raises:
        Exception: of any kind, where the folder is not what `save_to_disk` left.
    """
    import datasets

    loaded = datasets.load_from_disk(folder)
    for data in loaded.values() if isinstance(loaded, datasets.DatasetDict) else [loaded]:
        data.data.table.validate(full=True)
    return loaded
