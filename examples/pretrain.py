"""Pretrain a BERT on text files in Python: `python pretrain.py OUTPUT books/*.txt`.

Each stage leaves a folder: OUTPUT/tokenizer, OUTPUT/corpus and OUTPUT/model. `mybert tokenizer`, `mybert corpus` and
`mybert pretrain` do the same on the command line.
"""

import argparse
from pathlib import Path

from mybert import build_corpus, pretrain, train_tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("texts", nargs="+", help="text files with one document each")
    parser.add_argument("--size", default="mini", help="tiny, mini, small, medium, base or large")
    parser.add_argument("--vocab-size", type=int, default=16_000)
    parser.add_argument("--max-length", type=int, default=128, help="tokens per example")
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    tokenizer, corpus, model = (str(options.output / name) for name in ("tokenizer", "corpus", "model"))

    train_tokenizer(inputs=options.texts, vocab_size=options.vocab_size, output=tokenizer)
    build_corpus(
        inputs=options.texts,
        document_per_file=True,
        tokenizer=tokenizer,
        max_length=options.max_length,
        validation_share=0.1,
        output=corpus,
    )
    result = pretrain(
        corpus=corpus,
        size=options.size,
        max_steps=options.steps,
        learning_rate=1e-3,
        warmup_steps=0.05,
        resume=True,  # an interrupted script continues from its last checkpoint
        output=model,
    )
    print(f"{result.path}: {result.metrics}")


if __name__ == "__main__":
    main()
