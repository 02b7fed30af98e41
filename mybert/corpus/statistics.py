"""results.json of a corpus: numbers from a sample of documents and examples, for its report and `mybert doctor`."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from transformers import PreTrainedTokenizerBase

from mybert.artifacts.manifest import RESULTS, json_line
from mybert.common.quantities import evenly
from mybert.corpus.examples.text_encoding import load_wordpiece, plain_tokenizer
from mybert.corpus.report import length_counts
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.text.document_store import read_stored
from mybert.corpus.text.sentences import splitter_of
from tokenization import SPECIAL_TOKENS, MyBertTokenizer, count_words, removed_marks

_DOCUMENTS, _CHARACTERS = 500, 20_000  # read; of each
_WORDS_OF = 2_000  # characters of each whose words are counted
_EXAMPLES, _TOKENS = 5_000, 20_000_000  # read for frequent tokens; scanned for shared spans
_SHOWN_EXAMPLES, _SHOWN_TOKENS, _SHOWN_CHARACTERS = 10, 30, 600
_SPAN, _SPANS = 20, 2_000  # tokens of a span; number of spans
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def write_statistics(
    folder: Path, stored: Path, documents: np.ndarray, parts: dict[str, list[dict[str, Any]]], settings: CorpusSettings
) -> None:
    """Writes results.json. It depends on the documents, the examples and the settings alone.

    Args:
        folder: of the examples and the tokenizer.
        stored: the folder of the stored documents.
        documents: indices of the documents that are used.
        parts: records of `make_shard`.
    """
    tokenizer = load_wordpiece(str(folder / "tokenizer"))
    training = datasets.load_from_disk(str(folder))
    texts = read_stored(stored, documents[evenly(len(documents), _DOCUMENTS)])
    lengths = {name: length_counts(records) for name, records in parts.items()}
    results = {
        "length_counts": {name: counts for name, counts in lengths.items() if counts},
        **_of_documents(texts, folder / "tokenizer", settings),
        **_marks_removed(texts, tokenizer),
        **_frequent_tokens(training, tokenizer),
        "examples": _some_examples(training, tokenizer),
    }
    if (folder / "validation").is_dir():
        results["shared_spans"] = shared_spans(training, datasets.load_from_disk(str(folder / "validation")))
    (folder / RESULTS).write_text(json_line(results), encoding="utf-8", newline="\n")


def _of_documents(texts: list[str], tokenizer: Path, settings: CorpusSettings) -> dict[str, Any]:
    """Sentences and tokens of each document, tokens of a word, and the words that are [UNK]."""
    split = splitter_of(settings)
    plain = plain_tokenizer(str(tokenizer))
    texts = [text[:_CHARACTERS] for text in texts]
    sentences = [len(split(text)) for text in texts]
    sizes = plain.encode(texts)[1].tolist()
    words = tokens = divided = 0
    unknown: Counter[str] = Counter()
    texts = [text[:_WORDS_OF] for text in texts]
    for text, encoding in zip(texts, plain.backend.encode_batch(texts, add_special_tokens=False), strict=True):
        of_word = Counter(encoding.word_ids)
        words, tokens = words + len(of_word), tokens + len(encoding.ids)
        divided += sum(count > 1 for count in of_word.values())
        for place in np.flatnonzero(np.asarray(encoding.ids) == plain.unk_id).tolist():
            start, end = encoding.offsets[place]
            unknown[text[start:end]] += 1
    return {
        "documents_sampled": len(texts),
        "sentence_counts": _doubling(sentences),
        "document_tokens": _doubling(sizes),
        "tokens_per_word": tokens / max(words, 1),
        "split_words": divided / max(words, 1),
        "unknown_words": unknown.most_common(_SHOWN_TOKENS),
    }


def _marks_removed(texts: list[str], tokenizer: MyBertTokenizer) -> dict[str, Any]:
    """The share of characters that are removed as combining marks, and words that become equal."""
    if not tokenizer.strips_accents:
        return {}
    marked = MyBertTokenizer(SPECIAL_TOKENS, do_lower_case=tokenizer.do_lower_case, strip_accents=False)
    texts = [text[:_WORDS_OF] for text in texts]
    words, beyond = count_words(texts, [tokenizer.backend_tokenizer], beyond_ascii=[marked.backend_tokenizer])
    removed = removed_marks(beyond, words, tokenizer.backend_tokenizer)
    return {"removed_marks": removed.share(words), "equal_words": removed.equal[:_SHOWN_TOKENS]}


def _doubling(values: list[int]) -> dict[str, int]:
    """Histogram with the bins 0, 1, 2 to 3, 4 to 7, …"""
    counts = Counter(value.bit_length() for value in values)
    bits_of = range(min(counts, default=0), max(counts, default=-1) + 1)
    return {str(bits) if bits < 2 else f"{2 ** (bits - 1)} to {2**bits - 1}": counts[bits] for bits in bits_of}


def _frequent_tokens(examples: datasets.Dataset, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    some = examples.select(evenly(len(examples), _EXAMPLES))
    counts = sum(np.bincount(ids, minlength=len(tokenizer)) for ids in _token_ids(some, 1000))
    assert isinstance(counts, np.ndarray)  # not the 0 of an empty sum: a corpus has examples
    counts[tokenizer.all_special_ids] = 0
    order = [i for i in np.argsort(-counts, kind="stable").tolist() if counts[i]]
    pieces = list(zip(tokenizer.convert_ids_to_tokens(order), counts[order].tolist(), strict=True))
    continued = [pair for pair in pieces if pair[0].startswith("##")]
    return {"common_tokens": pieces[:_SHOWN_TOKENS], "common_continuations": continued[:_SHOWN_TOKENS]}


def _token_ids(examples: datasets.Dataset, batch_size: int) -> Iterator[np.ndarray]:
    """(tokens,) the `input_ids` of `batch_size` examples at a time, one example after the other."""
    for batch in examples.select_columns("input_ids").with_format("arrow").iter(batch_size):
        yield batch["input_ids"].combine_chunks().flatten().to_numpy()


def _some_examples(examples: datasets.Dataset, tokenizer: PreTrainedTokenizerBase) -> list[dict[str, Any]]:
    shown = []
    for row in examples.select(evenly(len(examples), _SHOWN_EXAMPLES)):
        ids = row["input_ids"]
        middle = ids.index(tokenizer.sep_token_id)
        a, b = tokenizer.decode(ids[1:middle]), tokenizer.decode(ids[middle + 1 : -1])
        shown.append(
            {
                "a": a[:_SHOWN_CHARACTERS],
                "b": b[:_SHOWN_CHARACTERS],
                "label": row.get("next_sentence_label"),
                "tokens": len(ids),
            }
        )
    return shown


def shared_spans(training: datasets.Dataset, validation: datasets.Dataset) -> dict[str, Any]:
    """Counts spans of held-out examples that also occur in training examples, at any position.

    Spans are compared by hashes (Karp and Rabin 1987) of all positions of the first training examples.

    Returns:
        `tokens` of a span, number of `spans` and how many were `found`, and `training_tokens` that were scanned.
    """
    wanted = []
    for batch in validation.select(evenly(len(validation), _SPANS)).with_format("numpy").iter(1000):
        for ids in batch["input_ids"]:
            segment = max(np.split(ids, np.flatnonzero(ids == ids[-1])), key=len)[1:]  # [SEP] ends each
            if len(segment) >= _SPAN:
                start = (len(segment) - _SPAN) // 2
                wanted.append(segment[start : start + _SPAN])
    if not wanted:
        return {}
    hashes = span_hashes(np.concatenate(wanted))[::_SPAN]
    found, scanned = np.zeros(len(hashes), dtype=bool), 0
    low_bits = np.zeros(1 << 16, dtype=bool)
    low_bits[hashes.astype(np.uint16)] = True
    for ids in _token_ids(training, 20_000):
        here = span_hashes(ids)
        here = here[low_bits[here.astype(np.uint16)]]  # few are left for the exact comparison
        found |= np.isin(hashes, here, kind="sort")  # tables of numpy 2.0 fail on hashes of 2**63 and more
        scanned += len(ids)
        if scanned >= _TOKENS or found.all():
            break
    return {"tokens": _SPAN, "spans": len(hashes), "found": int(found.sum()), "training_tokens": scanned}


def span_hashes(ids: np.ndarray) -> np.ndarray:
    """A hash of each span of `_SPAN` tokens, (tokens - `_SPAN` + 1,) uint64."""
    if len(ids) < _SPAN:
        return np.empty(0, dtype=np.uint64)
    spans = sliding_window_view(ids.astype(np.uint64) + np.uint64(1), _SPAN)
    return spans @ _FACTOR ** np.arange(_SPAN, dtype=np.uint64)
