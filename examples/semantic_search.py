"""Find the texts closest in meaning to a query: `python semantic_search.py MODEL texts.txt "a film about the sea"`.

texts.txt has one text per line. A model trained by train_sentence_embeddings.py gives better results than a pretrained
one. `mybert embed` and `mybert search` do the same on the command line.
"""

import argparse
from pathlib import Path

from mybert import Embedder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("texts", type=Path)
    parser.add_argument("query")
    parser.add_argument("--top", type=int, default=5)
    options = parser.parse_args()

    texts = [line for line in options.texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    embedder = Embedder(options.model, normalize=True)  # vectors of length 1: their product is the cosine
    vectors = embedder.texts(texts)  # (texts, hidden size)
    similarity = vectors @ embedder.texts([options.query])[0]
    for index in similarity.argsort()[::-1][: options.top]:
        print(f"{similarity[index]:.3f}  {texts[index]}")


if __name__ == "__main__":
    main()
