"""Estimate of the disk space that the examples need, checked before they are built."""

import shutil

import numpy as np

from mybert.common.errors import UserError
from mybert.common.quantities import with_unit
from mybert.corpus.examples.text_encoding import PlainTokenizer
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.text.document_store import StoredDocuments, read_stored

SAMPLE_DOCUMENTS, SAMPLE_CHARACTERS = 100, 500
TOKENS_A_BYTE = 0.25  # of English text, without a sample
_BYTES_A_TOKEN = 5  # input_ids and token_type_ids
_BYTES_A_ROW = 9  # two offsets and the label
_SPECIAL_TOKENS = 3
_SHARE_FILLED = 0.8  # of the maximum length
_PAIRS_FACTOR = 1.5  # a random segment B uses text a second time


def examples_bytes(tokens: float, length: float) -> float:
    """Bytes of stored examples with that number of real tokens, in rows of `length` tokens."""
    return tokens * (_BYTES_A_TOKEN + _BYTES_A_ROW / length)


def require_room(
    stored: StoredDocuments, documents: np.ndarray, tokenizer: PlainTokenizer, settings: CorpusSettings
) -> None:
    """Prints an estimate of the disk space that the examples of `documents` need; raises if the disk has less.

    While building, the examples exist twice: as shards and as the data set.
    """
    assert settings.max_length is not None  # `build_corpus` has chosen it
    texts = read_stored(stored.folder, documents[:: max(1, len(documents) // SAMPLE_DOCUMENTS)])
    sample = [text[:SAMPLE_CHARACTERS] for text in texts]
    tokens = sum(map(len, tokenizer.backend.encode_batch_fast(sample, add_special_tokens=False)))
    tokens_per_byte = tokens / sum(len(text.encode()) for text in sample)
    length = _SHARE_FILLED * settings.max_length
    bytes_per_token = examples_bytes(1, length) + _SPECIAL_TOKENS * _BYTES_A_TOKEN / length
    uses = settings.dupe_factor * (_PAIRS_FACTOR if settings.nsp else 1)
    size = stored.size * stored.lengths[documents].sum() / stored.lengths.sum()
    examples = int(size * tokens_per_byte * uses * bytes_per_token)
    left = shutil.disk_usage(stored.folder).free
    building, after, free = (with_unit(number, "B") for number in (2 * examples, examples, left))
    estimate = f"the examples: about {building} of disk space while building, {after} after; {free} free"
    if 2 * examples > left:
        raise UserError(f"no room for {estimate}; free some space or choose an --output on another disk")
    print(estimate)
