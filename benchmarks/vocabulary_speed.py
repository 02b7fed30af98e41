"""Speed of vocabulary training compared with the trainer of the `tokenizers` library on the same text.

    python benchmarks/vocabulary_speed.py INPUT… [--vocab-size 30000] [--pairs 3]

Both sides have the text in memory and one thread, and end with a vocabulary: `count_words` and `train_wordpiece`, and
`Tokenizer.train_from_iterator` with `WordPieceTrainer`. CPU seconds are printed: other load changes them less.
"""

import argparse
import os
import statistics
from collections.abc import Sequence

from sides import timed
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer

from mybert.common.machine import hardware
from mybert.io.documents import read_documents
from tokenization import SPECIAL_TOKENS, count_words, train_wordpiece


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--vocab-size", type=int, default=30_000)
    parser.add_argument("--pairs", type=int, default=3)
    arguments = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    texts = [document.text for document in read_documents(arguments.inputs)]
    print(
        f"{len(texts):,} documents, {sum(map(len, texts)):,} characters, {arguments.vocab_size:,} tokens", flush=True
    )
    sides = {"tokenizers": library, "MyBERT": ours}
    seconds = {name: [] for name in sides}
    for pair in range(arguments.pairs):
        runs = {name: timed(train, texts, arguments.vocab_size) for name, train in sides.items()}
        for name, run in runs.items():
            seconds[name].append(run.cpu)
        shown = ", ".join(f"{name} {run.cpu:.2f} CPU s ({run.found:,} tokens)" for name, run in runs.items())
        print(f"pair {pair + 1}: {shown}", flush=True)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"median: {medians}; MyBERT / tokenizers {medians['MyBERT'] / medians['tokenizers']:.2f}")


def backend() -> Tokenizer:
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    return tokenizer


def library(texts: Sequence[str], size: int) -> int:
    tokenizer = backend()
    trainer = WordPieceTrainer(
        vocab_size=size, min_frequency=2, special_tokens=list(SPECIAL_TOKENS), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.get_vocab_size()


def ours(texts: Sequence[str], size: int) -> int:
    (counts,) = count_words(texts, [backend()])
    return sum(not piece.startswith("[unused") for piece in train_wordpiece(counts, size))


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
