"""Quality of encoders on one scale: masked words, next sentences and fine-tuned tasks.

    python benchmarks/encoder_quality.py MODEL [--data ../shared/data] [--sets sst2 …] [--seeds 3] [--output FILE.json]

MODEL is any BERT checkpoint: a folder or Hub name, with or without pretraining heads. DATA contains a folder for each
data set, with train.jsonl and dev.jsonl, and `corpus/wikitext_valid.jsonl`, the held-out text.

- **Masked words.** 15% of the words of the held-out text are masked with all their tokens; a hash of document and
  position chooses them, so the words are the same for every vocabulary. Reported: the share of words predicted
  completely, and bits per character, the log-probability of the masked tokens divided by the words' characters. Models
  without a masked-language-model head are not scored.
- **Next sentences.** Consecutive windows of the text, and the same first windows before a window of another document.
- **Tasks.** One recipe for every model of a size, fixed rows and seeds: mean and standard deviation of the dev score.

The last line is the mean over the tasks, of which no row is used twice.
"""

import argparse
import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers.pre_tokenizers import BertPreTokenizer

from modeling_mybert import MyBertForPreTraining
from mybert import finetune
from mybert.common.machine import hardware
from mybert.common.tables import print_table
from tokenization import MyBertTokenizer

WINDOW = 126  # tokens between [CLS] and [SEP]


class Benchmark(NamedTuple):
    """One data set: `--task`, metric, training rows."""

    task: str
    metric: str
    rows: int


SETS = {
    "sst2_1000": Benchmark("text-classification", "accuracy", 1000),
    "sst2": Benchmark("text-classification", "accuracy", 6916),
    "conll2003": Benchmark("token-classification", "f1", 4000),
    "ewt_pos": Benchmark("token-classification", "accuracy", 4000),
    "mrpc": Benchmark("text-classification", "f1_macro", 3668),
    "rte": Benchmark("text-classification", "accuracy", 2490),
    "cola": Benchmark("text-classification", "matthews_correlation", 4000),
    "stsb": Benchmark("text-classification", "spearman", 4000),
    "bbc": Benchmark("text-classification", "accuracy", 1551),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--sets", nargs="*", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--documents", type=int, default=60, help="of the held-out text")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    began = time.perf_counter()
    results = masked_words_and_pairs(options.model, options.data, options.documents)
    rows = [(name, value, None) for name, value in results.items()]
    for name in options.sets:
        scores = fine_tune(options.model, options.data, name, options.seeds)
        results[name] = scores
        deviation = statistics.stdev(scores) if len(scores) > 1 else None
        rows.append((f"{name}, {SETS[name].metric}", statistics.mean(scores), deviation))
        print(f"{name}: {scores}, {time.perf_counter() - began:.0f} s so far", flush=True)
    if options.sets:
        results["mean"] = statistics.mean(statistics.mean(results[name]) for name in options.sets)
        rows.append(("mean of the tasks", results["mean"], None))
    print_table(f"{options.model}, {time.perf_counter() - began:.0f} s", rows, ("score", "value", "deviation"))
    if options.output:
        options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def fine_tune(model: str, data: Path, name: str, seeds: int) -> list[float]:
    """The dev scores of one data set, one for each seed."""
    task, metric, rows = SETS[name]
    folder = data / name.removesuffix("_1000")
    small = model_width(model) < 512
    with tempfile.TemporaryDirectory() as output:
        finetune(
            task=task,
            model=model,
            train=str(folder / "train.jsonl"),
            validation=str(folder / "dev.jsonl"),
            output=f"{output}/run",
            seeds=seeds,
            max_train_samples=rows,
            metric=metric,
            learning_rate=3e-4 if small else 5e-5,  # fixed, so that all results stand on one scale
            num_train_epochs=4 if small else 3,
            per_device_train_batch_size=32,
            dropout=0.1,
            bootstrap=0,
            **({"problem": "regression"} if metric == "spearman" else {}),
        )
        found = json.loads(Path(output, "run", "results.json").read_text(encoding="utf-8"))
    return [run["metrics"][metric] for run in found["runs"]]


def model_width(model: str) -> int:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(model, trust_remote_code=True).hidden_size


class Window(NamedTuple):
    """Consecutive words of a document; `masked` are indices of words."""

    document: int
    words: list[str]
    token_ids: list[list[int]]
    masked: list[int]


def masked_words_and_pairs(model: str, data: Path, documents: int) -> dict[str, float]:
    """Scores of the pretraining heads on the held-out text; empty without a masked-language-model head."""
    tokenizer = MyBertTokenizer.from_pretrained(model)
    bert, report = MyBertForPreTraining.from_pretrained(model, output_loading_info=True)
    missing = " ".join(report["missing_keys"])
    if "cls.predictions" in missing:
        return {}
    bert.eval()
    lines = (data / "corpus" / "wikitext_valid.jsonl").read_text(encoding="utf-8").splitlines()[:documents]
    windows = [
        window
        for number, line in enumerate(lines)
        for window in windows_of(number, json.loads(line)["text"], tokenizer)
    ]
    right, total, nats, characters = 0, 0, 0.0, 0
    for window in windows:
        hits, log_probability = score_masked_words(bert, tokenizer, window)
        right += hits
        total += len(window.masked)
        nats -= log_probability
        characters += sum(len(window.words[place]) for place in window.masked)
    scores = {
        "masked words": total,
        "masked word accuracy": right / total,
        "bits per character": nats / characters / torch.log(torch.tensor(2.0)).item(),
    }
    if "cls.seq_relationship" not in missing and "pooler" not in missing:
        scores["next sentence accuracy"] = score_pairs(bert, tokenizer, windows)
    return scores


def windows_of(document: int, text: str, tokenizer: MyBertTokenizer) -> Iterator[Window]:
    """Windows of at most `WINDOW` tokens. Words are BERT's: split at spaces and punctuation."""
    words = [word for word, _ in BertPreTokenizer().pre_tokenize_str(text)]
    ids = tokenizer(words, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    ids = [pieces if len(pieces) <= WINDOW else [] for pieces in ids]  # no window holds a longer word
    first, length = 0, 0
    for place in range(len(words) + 1):
        if place == len(words) or length + len(ids[place]) > WINDOW:
            masked = [at for at in range(first, place) if ids[at] and is_masked(document, at)]
            if masked:
                masked = [at - first for at in masked]
                yield Window(document, words[first:place], ids[first:place], masked)
            first, length = place, 0
        if place < len(words):
            length += len(ids[place])


def is_masked(document: int, word: int) -> bool:
    """15% of the words, chosen by a hash of document and position."""
    digest = hashlib.sha256(f"{document} {word}".encode()).digest()
    return int.from_bytes(digest[:4], "big") < 0.15 * 2**32


@torch.inference_mode()
def score_masked_words(bert: MyBertForPreTraining, tokenizer: MyBertTokenizer, window: Window) -> tuple[int, float]:
    """Number of masked words predicted completely, and the log-probability of their tokens."""
    input_ids, labels, owners = [tokenizer.cls_token_id], [-100], [-1]
    masked = set(window.masked)
    for place, pieces in enumerate(window.token_ids):
        input_ids += [tokenizer.mask_token_id] * len(pieces) if place in masked else pieces
        labels += pieces if place in masked else [-100] * len(pieces)
        owners += [place] * len(pieces)
    inputs = torch.tensor([[*input_ids, tokenizer.sep_token_id]])
    places = [at for at, label in enumerate(labels) if label >= 0]
    wanted = torch.tensor([labels[at] for at in places])
    log_probabilities = bert(input_ids=inputs).prediction_logits[0, places].log_softmax(-1)
    wrong = (log_probabilities.argmax(-1) != wanted).tolist()
    failed = {owners[at] for at, is_wrong in zip(places, wrong, strict=True) if is_wrong}
    return len(masked) - len(failed), log_probabilities.gather(1, wanted[:, None]).sum().item()


@torch.inference_mode()
def score_pairs(bert: MyBertForPreTraining, tokenizer: MyBertTokenizer, windows: list[Window]) -> float:
    """Accuracy on halves of windows: the second half of the same window, and of the next document's first window."""
    halves = []
    for window in windows:
        ids = [token for pieces in window.token_ids for token in pieces]
        halves.append((ids[: len(ids) // 2], ids[len(ids) // 2 :]))
    firsts = {window.document: place for place, window in reversed(list(enumerate(windows)))}
    documents = sorted(firsts)
    right = 0
    for place, (one, two) in enumerate(halves):
        number = documents.index(windows[place].document)
        other = halves[firsts[documents[(number + 1) % len(documents)]]][1]
        for second, label in ((two, 0), (other, 1)):
            input_ids = [tokenizer.cls_token_id, *one, tokenizer.sep_token_id, *second, tokenizer.sep_token_id]
            types = [0] * (len(one) + 2) + [1] * (len(second) + 1)
            logits = bert(
                input_ids=torch.tensor([input_ids]), token_type_ids=torch.tensor([types])
            ).seq_relationship_logits
            right += int(logits.argmax(-1).item() == label)
    return right / (2 * len(halves))


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
