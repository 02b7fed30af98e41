"""Grammar of masked language models: BLiMP by the pseudo-log-likelihood of sentences, as the BabyLM challenge uses it.

    python benchmarks/babylm.py MODEL [MODEL …] [--pairs ../shared/data/blimp/dev.jsonl.zst] [--output FILE.json]
    python benchmarks/babylm.py --draw FILE [--text ../shared/data/pretraining] [--words 10000000]

The first form scores minimal pairs: a model is right if the grammatical sentence of a pair has the higher score. The
score of a sentence is the sum of log P(token | all other tokens), each predicted from a copy in which the token is
masked (Salazar et al. 2020); `within words` masks the later tokens of its word too (Kauf & Ivanova 2023). Reported are
the mean over the paradigms of each phenomenon, and the mean over all paradigms (Warstadt et al. 2020). A pair of equal
scores is wrong; `ties right` counts it as right, as pipelines do that take the first maximum of (good, bad). MODEL is
a folder or Hub name, or `random:FOLDER` for random weights with FOLDER's configuration.

The second form writes the text of a run on a fixed number of words: all documents of `--text`, cut at paragraphs to at
most 2,000 words, in the order of a hash of their text, until `--words` words. So the draw depends on the text alone.
"""

import argparse
import hashlib
import json
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.progress import track

from modeling_mybert import MyBertConfig, MyBertForMaskedLM
from mybert import Scorer
from mybert.common.machine import hardware
from mybert.common.tables import print_table
from mybert.io.documents import read_documents
from mybert.io.files import open_file
from tokenization import MyBertTokenizer

PASSAGE_WORDS = 2000
METHODS = {"tokens": False, "within words": True}
Scores = dict[str, dict[str, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--pairs", type=Path, default=Path("../shared/data/blimp/dev.jsonl.zst"))
    parser.add_argument("--limit", type=int, help="pairs of each paradigm, the first of the file")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--draw", type=Path, help="the file of passages to write")
    parser.add_argument("--text", type=Path, default=Path("../shared/data/pretraining"))
    parser.add_argument("--words", type=int, default=10_000_000)
    options = parser.parse_args()
    if options.draw:
        draw(options.text, options.words, options.draw)
    if not options.models:
        return
    pairs = read_pairs(options.pairs, options.limit)
    results = {name: score(name, pairs, options.methods) for name in options.models}
    print(f"machine: {hardware()}")
    for method in options.methods:
        print_results(method, {name: result[method] for name, result in results.items()})
    if options.output:
        options.output.write_text(json.dumps(results, indent=2), encoding="utf-8")


def draw(folder: Path, words: int, output: Path) -> None:
    """Writes passages of `words` words in total, or fewer if there are no more, as JSON Lines."""
    files = sorted(map(str, folder.glob("*.jsonl.zst")))
    passages = sorted({passage for document in read_documents(files) for passage in cut(document.text)}, key=_hash)
    count = written = 0
    with output.open("w", encoding="utf-8") as file:
        for passage in passages:
            size = len(passage.split())
            if count + size <= words:
                file.write(json.dumps({"text": passage}, ensure_ascii=False) + "\n")
                count, written = count + size, written + 1
    print(f"{output}: {count:,} words in {written:,} of {len(passages):,} passages")


def cut(text: str) -> Iterator[str]:
    """Groups of whole paragraphs of at most `PASSAGE_WORDS` words; a longer paragraph is a passage of its own."""
    passage: list[str] = []
    size = 0
    for paragraph in filter(str.strip, text.split("\n\n")):
        count = len(paragraph.split())
        if passage and size + count > PASSAGE_WORDS:
            yield "\n\n".join(passage)
            passage, size = [], 0
        passage.append(paragraph)
        size += count
    if passage:
        yield "\n\n".join(passage)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def read_pairs(path: Path, limit: int | None) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """(phenomenon, paradigm) → pairs of a grammatical and an ungrammatical sentence."""
    pairs = defaultdict(list)
    with open_file(path) as file:
        for line in file:
            row = json.loads(line)
            pairs[row["phenomenon"], row["paradigm"]].append((row["good"], row["bad"]))
    return {key: rows[:limit] for key, rows in sorted(pairs.items())}


def score(name: str, pairs: dict[tuple[str, str], list[tuple[str, str]]], methods: list[str]) -> Scores:
    """Method → phenomenon, `mean` or `ties right` → percent."""
    with tempfile.TemporaryDirectory() as folder:
        if name.startswith("random:"):
            source = name.removeprefix("random:")
            torch.manual_seed(0)
            MyBertForMaskedLM(MyBertConfig.from_pretrained(source)).save_pretrained(folder)
            MyBertTokenizer.from_pretrained(source).save_pretrained(folder)
        scorer = Scorer(folder if name.startswith("random:") else name)
        return {method: accuracies(scorer, pairs, METHODS[method], f"{name}, {method}") for method in methods}


def accuracies(
    scorer: Scorer, pairs: dict[tuple[str, str], list[tuple[str, str]]], within_word: bool, title: str
) -> dict[str, float]:
    paradigms = defaultdict(list)
    ties = []
    for (phenomenon, _), rows in track(pairs.items(), description=title):
        scores = [text.log_probability for text in scorer.texts([text for row in rows for text in row], within_word)]
        differences = [good - bad for good, bad in zip(scores[::2], scores[1::2], strict=True)]
        paradigms[phenomenon].append(100 * statistics.mean(difference > 0 for difference in differences))
        ties.append(100 * statistics.mean(difference == 0 for difference in differences))
    means = {phenomenon: statistics.mean(values) for phenomenon, values in paradigms.items()}
    mean = statistics.mean(value for values in paradigms.values() for value in values)
    return {**means, "mean": mean, "ties right": mean + statistics.mean(ties)}


def print_results(method: str, results: dict[str, dict[str, float]]) -> None:
    rows = [[row, *(f"{result[row]:.1f}" for result in results.values())] for row in next(iter(results.values()))]
    print_table(f"BLiMP, {method}, percent", rows, ["phenomenon", *(Path(name).name for name in results)])


if __name__ == "__main__":
    main()
