"""Speed of corpus building compared with the `tokenizers` library on the same text and cores.

    python benchmarks/corpus_speed.py TOKENIZER INPUT… [--pairs 3] [--cores 2]

Each pair runs both sides, one after the other: `build_corpus` from files to a finished folder (reading, sentences,
tokens, pairs, writing, manifest), and `encode_batch_fast` on the same documents, already in memory, one thread per
core. The ratio of CPU seconds per token, over all processes, is printed too: other load changes it less.
"""

import argparse
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

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
    speeds = {"bare": [], "build": [], "bare, CPU": [], "build, CPU": []}
    for pair in range(arguments.pairs):
        begun, cpu = time.perf_counter(), cpu_seconds()
        tokens = 0
        for start in range(0, len(texts), 512):
            encodings = backend.encode_batch_fast(texts[start : start + 512], add_special_tokens=False)
            tokens += sum(map(len, encodings))
        speeds["bare"].append(tokens / (time.perf_counter() - begun))
        speeds["bare, CPU"].append(tokens / (cpu_seconds() - cpu))
        with tempfile.TemporaryDirectory() as folder:
            settings = CorpusSettings(
                inputs=arguments.inputs,
                tokenizer=arguments.tokenizer,
                output=str(Path(folder) / "corpus"),
                num_proc=arguments.cores,
            )
            begun, cpu = time.perf_counter(), cpu_seconds()
            output = build_corpus(settings)
            seconds, cpu = time.perf_counter() - begun, cpu_seconds() - cpu
            tokens = read_manifest(output)["counts"]["tokens"]
            speeds["build"].append(tokens / seconds)
            speeds["build, CPU"].append(tokens / cpu)
        print(f"pair {pair + 1}: bare {speeds['bare'][-1]:,.0f} tokens/s, build {speeds['build'][-1]:,.0f} tokens/s")
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    print(f"median: bare {medians['bare']:,.0f}, build {medians['build']:,.0f} tokens/s; ", end="")
    print(f"ratio {medians['build'] / medians['bare']:.2f}, ", end="")
    print(f"of CPU seconds {medians['build, CPU'] / medians['bare, CPU']:.2f}")


def cpu_seconds() -> float:
    """CPU seconds of this process, its threads and its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
