"""Build the examples of one block of documents."""

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from mybert.corpus.examples.segment_pairs import Pair, TokenisedDocuments, full_sentences, segment_pairs
from mybert.corpus.examples.text_encoding import PlainTokenizer, ranges
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.text.sentences import splitter_of

_SENTENCES_PER_CALL = 8192


def example_schema(nsp: bool) -> pa.Schema:
    """Columns of the examples; see `block_to_examples`."""
    columns = {"input_ids": pa.list_(pa.int32()), "token_type_ids": pa.list_(pa.int8())}
    return pa.schema(columns | ({"next_sentence_label": pa.int8()} if nsp else {}))


def block_to_examples(
    texts: Sequence[str],
    identities: Sequence[int],
    tokenizer: PlainTokenizer,
    settings: CorpusSettings,
    key: str,
    dupes: int,
) -> tuple[pa.Table, Counter[str]]:
    """Builds the examples of some documents. The result depends on the arguments alone.

    Args:
        identities: equal for equal texts.
        key: name of the block; it seeds the random choices, with the seed and the number of the repetition.
        dupes: number of times that the documents are used.

    Returns:
        table: `input_ids`: `[CLS] A [SEP] B [SEP]`; `token_type_ids`: 0 up to the first `[SEP]`, then 1;
            `next_sentence_label`: 1 where B is random. Without NSP `[CLS] A [SEP]` and no label.
        counts: `sentences`, `tokens`, `unknown_tokens`, `documents_without_tokens`, `examples`, `truncated`, `short`,
            `tokens_cut`; `random_next`, examples with a random B.
    """
    assert settings.max_length is not None  # `build_corpus` has chosen it
    ids, documents, counts = _tokenise(texts, identities, tokenizer, settings)
    pairs: list[Pair] = []
    for dupe in range(dupes):
        rng = random.Random(f"{settings.seed} {dupe} {key}")
        if not documents.identities:
            continue
        if settings.nsp:
            pairs += segment_pairs(
                documents,
                rng,
                max_tokens=settings.max_length - 3,
                short_seq_prob=settings.short_seq_prob,
                same_document=settings.negatives == "same-document",
            )
        else:
            pairs += full_sentences(
                documents, rng, max_tokens=settings.max_length - 2, short_seq_prob=settings.short_seq_prob
            )
    columns = np.array(pairs, dtype=np.int64).reshape(-1, len(Pair._fields)).T
    of = dict(zip(Pair._fields, columns, strict=True))
    counts.update(
        examples=len(pairs),
        truncated=int((of["cut"] > 0).sum()),
        tokens_cut=int(of["cut"].sum()),
        short=int(of["is_short"].sum()),
        **({"random_next": int(of["is_random"].sum())} if settings.nsp else {}),
    )
    return _assemble(ids, of, tokenizer, settings.nsp), counts


def _tokenise(
    texts: Sequence[str], identities: Sequence[int], tokenizer: PlainTokenizer, settings: CorpusSettings
) -> tuple[np.ndarray, TokenisedDocuments, Counter[str]]:
    """
    Returns:
        ids: (tokens,) int32, the concatenated sentences.
        documents: the sentences and documents that have tokens.
        counts: of sentences, tokens and documents.
    """
    split = splitter_of(settings)
    sentences, ends = [], []
    for text in texts:
        sentences += split(text)
        ends.append(len(sentences))
    starts = range(0, len(sentences) or 1, _SENTENCES_PER_CALL)
    parts = [tokenizer.encode(sentences[start : start + _SENTENCES_PER_CALL]) for start in starts]
    ids, lengths = map(np.concatenate, zip(*parts, strict=True))
    offsets = np.concatenate([[0], lengths[lengths > 0].cumsum()])
    kept = np.concatenate([[0], (lengths > 0).cumsum()])[np.array([0, *ends])]
    full = np.diff(kept) > 0
    documents = TokenisedDocuments(
        offsets.tolist(),
        [0, *kept[1:][full].tolist()],
        [identity for identity, good in zip(identities, full, strict=True) if good],
    )
    counts = Counter(
        sentences=len(offsets) - 1,
        tokens=len(ids),
        unknown_tokens=int((ids == tokenizer.unk_id).sum()),
        documents_without_tokens=int((~full).sum()),
        documents_of_one_sentence=int((np.diff(kept) == 1).sum()),
    )
    return ids, documents, counts


def _assemble(ids: np.ndarray, of: dict[str, np.ndarray], tokenizer: PlainTokenizer, nsp: bool) -> pa.Table:
    """The examples as a table: the segments in `ids` given by `of`, with special tokens."""
    a, b = of["a_end"] - of["a"], of["b_end"] - of["b"]
    lengths = a + 2 + (b + 1 if nsp else 0)
    offsets = np.concatenate([[0], lengths.cumsum()])
    starts = offsets[:-1]
    out = np.full(offsets[-1], tokenizer.sep_id, dtype=np.int32)
    out[starts] = tokenizer.cls_id
    types = np.zeros(offsets[-1], dtype=np.int8)
    out[ranges(starts + 1, a)] = ids[ranges(of["a"], a)]
    if nsp:
        out[ranges(starts + a + 2, b)] = ids[ranges(of["b"], b)]
        types[ranges(starts + a + 2, b + 1)] = 1
    bounds = pa.array(offsets, pa.int32())
    columns = [pa.ListArray.from_arrays(bounds, pa.array(out)), pa.ListArray.from_arrays(bounds, pa.array(types))]
    if nsp:
        columns.append(pa.array(of["is_random"].astype(np.int8)))
    return pa.table(columns, schema=example_schema(nsp))
