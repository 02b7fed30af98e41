"""Speed of corpus building compared with the `tokenizers` library on the same text and cores.

    python benchmarks/corpus_speed.py TOKENIZER INPUT… [--pairs 3] [--cores 2]

Each pair runs both sides, one after the other: `build_corpus` from files to a finished folder (reading, sentences,
tokens, pairs, writing, manifest), and `encode_batch_fast` on the same documents, already in memory, one thread per
core. The ratio of CPU seconds per token, over all processes, is printed too: other load changes it less.
"""

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from sides import timed

from mybert.common.machine import hardware


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(arguments.cores)

    from mybert.artifacts.manifest import read_manifest
    from mybert.corpus.build import build_corpus
    from mybert.corpus.examples.text_encoding import plain_tokenizer
    from mybert.corpus.settings import CorpusSettings
    from mybert.io.documents import read_documents

    texts = [document.text for document in read_documents(arguments.inputs)]
    backend = plain_tokenizer(arguments.tokenizer).backend
    print(f"{len(texts):,} documents, {sum(map(len, texts)):,} characters, {arguments.cores} cores")

    def bare() -> int:
        parts = (texts[start : start + 512] for start in range(0, len(texts), 512))
        return sum(sum(map(len, backend.encode_batch_fast(part, add_special_tokens=False))) for part in parts)

    speeds = {"bare": [], "build": [], "bare, CPU": [], "build, CPU": []}
    for pair in range(arguments.pairs):
        with tempfile.TemporaryDirectory() as folder:
            settings = CorpusSettings(
                inputs=arguments.inputs,
                tokenizer=arguments.tokenizer,
                output=str(Path(folder) / "corpus"),
                num_proc=arguments.cores,
            )
            runs = {"bare": timed(bare), "build": timed(build_corpus, settings)}
            tokens = {"bare": runs["bare"].found, "build": read_manifest(runs["build"].found)["counts"]["tokens"]}
        for name, run in runs.items():
            speeds[name].append(tokens[name] / run.seconds)
            speeds[f"{name}, CPU"].append(tokens[name] / run.cpu)
        print(f"pair {pair + 1}: bare {speeds['bare'][-1]:,.0f} tokens/s, build {speeds['build'][-1]:,.0f} tokens/s")
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    print(f"median: bare {medians['bare']:,.0f}, build {medians['build']:,.0f} tokens/s; ", end="")
    print(f"ratio {medians['build'] / medians['bare']:.2f}, ", end="")
    print(f"of CPU seconds {medians['build, CPU'] / medians['bare, CPU']:.2f}")


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
