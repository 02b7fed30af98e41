"""Loading and checking the examples that pretraining reads."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from mybert.artifacts.manifest import MANIFEST, fingerprint
from mybert.common.errors import UserError, cause
from mybert.corpus.examples.text_encoding import load_wordpiece
from mybert.corpus.settings import check_examples
from mybert.io.dataset_sources import load_saved_dataset
from mybert.pretraining.data.batching import ExampleDataset, example_lengths
from mybert.pretraining.planning.flops_and_memory import CorpusShape
from tokenization import MyBertTokenizer

_COLUMNS = ("input_ids", "token_type_ids")
_SAMPLE = 1000


@dataclass(frozen=True)
class Corpus:
    """A folder written by `mybert corpus`.

    Attributes:
        train, validation: the examples; validation is None if no documents were held out.
        shape: lengths of the training examples.
    """

    folder: Path
    train: datasets.Dataset
    validation: datasets.Dataset | None
    tokenizer: MyBertTokenizer
    shape: CorpusShape

    @classmethod
    def load(cls, folder: str) -> "Corpus":
        """Loads a corpus and checks that its ids are in its vocabulary."""
        path = Path(folder)
        train = _load_examples(path)
        validation = _load_examples(path / "validation") if (path / "validation").is_dir() else None
        if not (path / "tokenizer").is_dir():
            raise UserError(f"{path} has no tokenizer folder; build it with `mybert corpus`")
        tokenizer = load_wordpiece(str(path / "tokenizer"), "the tokenizer")
        with _explain_damage(path):
            shape = CorpusShape.of(example_lengths(train))
            keys = [(0, index) for index in range(min(len(train), _SAMPLE))]
            ids = ExampleDataset(train).__getitems__(keys).input_ids
        if np.max(ids, initial=0) >= len(tokenizer):
            raise UserError(
                f"{path} has the token id {np.max(ids)}, but its tokenizer has only {len(tokenizer)} tokens; rebuild "
                "the corpus"
            )
        return cls(path, train, validation, tokenizer, shape)

    @property
    def has_pairs(self) -> bool:
        return "next_sentence_label" in self.train.column_names

    def identity(self) -> dict[str, Any]:
        """Path and fingerprint, of the manifest if there is one, since it holds the fingerprints of all inputs."""
        manifest = self.folder / MANIFEST
        return {"path": str(self.folder), "sha256": fingerprint(manifest if manifest.is_file() else self.folder)}


@contextlib.contextmanager
def _explain_damage(folder: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(f"{folder} is not a corpus; build one with `mybert corpus`") from error
    except Exception as error:  # datasets and Arrow raise many types on damaged files
        raise UserError(f"corpus {folder} is damaged ({cause(error)}); build it again with `mybert corpus`") from error


def _load_examples(folder: Path) -> datasets.Dataset:
    check_examples(str(folder))
    with _explain_damage(folder):
        examples = load_saved_dataset(str(folder))
    if not isinstance(examples, datasets.Dataset) or not set(_COLUMNS) <= set(examples.column_names):
        columns = ", ".join(getattr(examples, "column_names", [])) or "none"
        raise UserError(
            f"{folder} must have the columns {', '.join(_COLUMNS)}; it has {columns}; build one with `mybert corpus`"
        )
    if not len(examples):
        raise UserError(f"{folder} has no examples; build the corpus from more text")
    return examples
