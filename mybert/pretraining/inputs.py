"""What a run starts from, checked before anything is spent: corpus, tokenizer, model."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import datasets
import numpy as np
from accelerate import PartialState

from modeling_mybert import MyBertConfig, MyBertForPreTraining
from mybert.common.checkpoint_loading import explain_unreadable, refuse_missing
from mybert.common.error_messages import cause
from mybert.common.errors import UserError
from mybert.common.manifest import MANIFEST, fingerprint
from mybert.io.saved_datasets import load_saved_dataset
from mybert.pretraining.data.batching import ExampleDataset
from mybert.pretraining.planning.run_plan import CorpusShape
from mybert.pretraining.settings import PretrainSettings
from tokenization import MyBertTokenizer

_COLUMNS = ("input_ids", "token_type_ids")
_SAMPLE = 1000
_HEADS = ("cls.", "bert.pooler.")  # what a BERT that was pretrained otherwise may lack


@dataclass(frozen=True)
class Corpus:
    """A folder made by `mybert corpus`.

    Attributes:
        folder: where it is.
        train, validation: its examples; no validation if nothing was held out.
        tokenizer: that its ids are of.
        shape: of the training examples.
    """

    folder: Path
    train: datasets.Dataset
    validation: datasets.Dataset | None
    tokenizer: MyBertTokenizer
    shape: CorpusShape

    @classmethod
    def load(cls, folder: str) -> "Corpus":
        """
        Raises:
            UserError: there is no such folder, or it is not a corpus, or its ids are not of its tokenizer.
        """
        path = Path(folder)
        train = _load_examples(path)
        validation = _load_examples(path / "validation") if (path / "validation").is_dir() else None
        if not (path / "tokenizer").is_dir():
            raise UserError(f"{path} has no tokenizer folder; build it with `mybert corpus`")
        try:
            tokenizer = MyBertTokenizer.from_pretrained(path / "tokenizer")
        except Exception as error:  # as many kinds as there are ways to be damaged
            raise UserError(f"{path / 'tokenizer'} is not a WordPiece tokenizer: {cause(error)}") from error
        with _explain_damage(path):
            shape = CorpusShape.of(train)
            keys = [(0, index) for index in range(min(len(train), _SAMPLE))]
            ids = ExampleDataset(train).__getitems__(keys).input_ids
        if np.max(ids, initial=0) >= len(tokenizer):
            raise UserError(
                f"{path} has token id {np.max(ids)} but its tokenizer only {len(tokenizer)} tokens; rebuild the corpus"
            )
        return cls(path, train, validation, tokenizer, shape)

    @property
    def has_pairs(self) -> bool:
        return "next_sentence_label" in self.train.column_names

    def identity(self) -> dict:
        """Path and fingerprint; that of the manifest, which has those of everything that went in."""
        manifest = self.folder / MANIFEST
        return {"path": str(self.folder), "sha256": fingerprint(manifest if manifest.is_file() else self.folder)}


@contextlib.contextmanager
def _explain_damage(folder: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(f"{folder} is not a corpus; build one with `mybert corpus`") from error
    except Exception as error:  # datasets and Arrow check little: they trip over what is wrong anywhere
        raise UserError(f"corpus {folder} is damaged ({cause(error)}); build it again with `mybert corpus`") from error


def _load_examples(folder: Path) -> datasets.Dataset:
    if folder.is_file():
        raise UserError(f"{folder} is a file; make a corpus of it: `mybert corpus {folder} --tokenizer … --output …`")
    if not folder.is_dir():
        raise UserError(f"corpus {folder} does not exist; build it with `mybert corpus … --output {folder}`")
    with _explain_damage(folder):
        examples = load_saved_dataset(str(folder))
    if not isinstance(examples, datasets.Dataset) or not set(_COLUMNS) <= set(examples.column_names):
        found = getattr(examples, "column_names", [])
        raise UserError(f"{folder} must hold the columns {', '.join(_COLUMNS)}; it has {found}")
    if not len(examples):
        raise UserError(f"{folder} holds no examples")
    return examples


def check_second_corpus(first: Corpus, second: Corpus) -> None:
    """
    Raises:
        UserError: the two cannot be read in one run.
    """
    if second.tokenizer.get_vocab() != first.tokenizer.get_vocab():
        raise UserError(f"{second.folder} has another vocabulary than {first.folder}; build both with one tokenizer")
    if second.has_pairs != first.has_pairs:
        raise UserError(f"only one of {first.folder} and {second.folder} has pairs; build both with or without")
    if second.train.features != first.train.features:
        raise UserError(f"{second.folder} has columns {second.train.features}, {first.folder} {first.train.features}")


def build_model(settings: PretrainSettings, corpus: Corpus, longest: int) -> MyBertForPreTraining:
    """A new model of the size asked for, or the one to go on from.

    Args:
        longest: tokens of the longest sequence that it will read.

    Raises:
        UserError: the checkpoint cannot be read, lacks weights of its encoder, has another vocabulary, or too few
            positions; or there is no such attention backend here.
    """
    choices = {}
    if settings.dropout is not None:
        choices = {"hidden_dropout_prob": settings.dropout, "attention_probs_dropout_prob": settings.dropout}
    if settings.attn_implementation is not None:
        choices["attn_implementation"] = settings.attn_implementation
    if settings.init_from is None:
        positions = max(longest, MyBertConfig().max_position_embeddings)
        config = MyBertConfig.from_size(
            settings.size,
            vocab_size=len(corpus.tokenizer),
            pad_token_id=corpus.tokenizer.pad_token_id,
            max_position_embeddings=positions,
            **choices,
            **({} if settings.initializer_range is None else {"initializer_range": settings.initializer_range}),
        )
        try:
            return MyBertForPreTraining(config)
        except (ValueError, ImportError) as error:  # a backend that is not known, or not installed
            raise UserError(cause(error)) from error
    with explain_unreadable(settings.init_from):
        tokenizer = MyBertTokenizer.from_pretrained(settings.init_from)
        if not _keeps_vocabulary(tokenizer.get_vocab(), corpus.tokenizer.get_vocab()):
            raise UserError(
                f"--init-from {settings.init_from} has another vocabulary than the corpus; "
                f"build the corpus with `--tokenizer {settings.init_from}`"
            )
        model, report = MyBertForPreTraining.from_pretrained(settings.init_from, output_loading_info=True, **choices)
    refuse_missing(settings.init_from, report["missing_keys"], new=_HEADS)
    if report["missing_keys"] and PartialState().is_main_process:
        print(f"new, since {settings.init_from} lacks them: {', '.join(sorted(report['missing_keys']))}")
    if longest > model.config.max_position_embeddings:
        raise UserError(
            f"the corpus has a sequence of {longest} tokens, {settings.init_from} only "
            f"{model.config.max_position_embeddings} positions; build the corpus with a smaller --max-length"
        )
    return model


def _keeps_vocabulary(old: dict[str, int], new: dict[str, int]) -> bool:
    """Whether every token has its old id, except tokens that replace `[unusedN]`, as Google's BERT advises."""
    tokens = {index: token for token, index in old.items()}
    changed = [index for token, index in new.items() if old.get(token) != index]
    return len(old) == len(new) and all(re.fullmatch(r"\[unused\d+]", tokens.get(index, "")) for index in changed)


def trained_length(settings: PretrainSettings, model: MyBertForPreTraining, longest: int) -> int:
    """Most tokens that the finished model will have read at once; positions beyond stay as they began.

    Args:
        longest: tokens of the longest sequence of this run.
    """
    if settings.init_from is None:
        return longest
    before = MyBertTokenizer.from_pretrained(settings.init_from).model_max_length
    return max(longest, min(before, model.config.max_position_embeddings))
