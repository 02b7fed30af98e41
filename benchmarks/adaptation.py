"""Compare settings of `mybert adapt`: number of new words, options against forgetting, initialisation of new vectors.

    python benchmarks/adaptation.py runs MODEL … --domain TEXT[,TASK] … --general TEXT --output FOLDER
        [--vary "new_words=0" "new_words=1000 freeze=encoder" …] [--cpu-seconds 60 | --max-steps 300] [--seeds 0 1 2]
        [--task-rows 300] [--task-steps 60]
    python benchmarks/adaptation.py tokens MODEL --domain TEXT [--new-words 300 1000 3000]
    python benchmarks/adaptation.py starts MODEL --domain TEXT --output FOLDER [--new-words 1000] [--max-steps 200]

`runs` adapts each MODEL to each TEXT with each setting of `--vary` (default: 0, 300, 1,000 and 3,000 new words) and
each seed, for the same time or the same number of steps. Time is CPU time of this process and includes preparation.
The command prints scores on held-out text of the domain and on general text. TASK is a folder with train.jsonl and
dev.jsonl; the original and the adapted models are fine-tuned on TASK_ROWS of its rows, drawn by the seed. Scores are
appended to FOLDER/runs.jsonl; running the command again computes missing runs only. `replay=1` mixes general text into
the training.

`tokens` prints the share of tokens that each number of new words saves, and the upper bound: one token per word of
letters.

`starts` trains the same model with several initialisations of the same new words, and prints the loss on held-out
examples during training. The vocabulary is the same, so the losses can be compared.
"""

import argparse
import contextlib
import json
import math
import shutil
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import torch
from saved_tables import markdown

from modeling_mybert import MyBertForPreTraining
from mybert import adapt, finetune
from mybert.adaptation.preparation import CORPUS, START, prepare
from mybert.adaptation.settings import AdaptSettings
from mybert.adaptation.texts import read_texts
from mybert.common.machine import hardware
from mybert.inference.checkpoint import quiet_loading
from mybert.io.documents import read_documents
from mybert.pretraining import clock
from mybert.pretraining.arguments import PretrainingArguments
from mybert.pretraining.planning import measurement
from mybert.pretraining.run import pretrain
from mybert.pretraining.settings import PretrainSettings
from mybert.training.arguments import bfloat16_is_faster
from mybert.workflows import adapt as workflow
from tokenization import MyBertTokenizer
from tokenization.new_words import choose_new_words, count_tokens, count_uses

SCORES = ("tokens_per_word", "bits_per_character", "masked_word_accuracy")
KEYS = ("model", "domain", "vary", "seed")
_CONTEXTS = 8  # of each word


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("runs", "tokens", "starts"))
    parser.add_argument("model", nargs="+")
    parser.add_argument("--domain", required=True, nargs="+")
    parser.add_argument("--general")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--vary", nargs="+", default=[f"new_words={count}" for count in (0, 300, 1000, 3000)])
    parser.add_argument("--new-words", nargs="+", default=["300", "1000", "3000"])
    parser.add_argument("--cpu-seconds", type=float)
    parser.add_argument("--max-steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--eval-characters", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--task-rows", type=int, default=300)
    parser.add_argument("--task-steps", type=int, default=60)
    parser.add_argument("--task-rate", type=float, default=3e-4)
    options = parser.parse_args()
    if options.what == "tokens":
        compare_tokens(options)
        return
    options.output.mkdir(parents=True, exist_ok=True)
    with quiet_loading():
        (compare_runs if options.what == "runs" else compare_starts)(options)


def training(options: argparse.Namespace, seed: int) -> dict:
    seconds = options.cpu_seconds
    return {
        **({"time_budget": f"{seconds:g}s"} if seconds else {"max_steps": options.max_steps}),
        "per_device_train_batch_size": options.batch,
        "learning_rate": options.learning_rate,
        "warmup_steps": 0.1,
        "save_strategy": "no",
        "seed": seed,
        "report_to": [],
    }


def compare_tokens(options: argparse.Namespace) -> None:
    tokenizer = MyBertTokenizer.from_pretrained(options.model[0])
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    texts = (document.text for document in read_documents(options.domain))
    uses = count_uses(texts, tokenizer.backend_tokenizer)
    before, bound = count_tokens(uses, pieces), sum(use.count for word, use in uses.items() if word.isalpha())
    bound = count_tokens({word: use for word, use in uses.items() if word.isalpha()}, pieces) - bound
    rows = {}
    for words in options.new_words:
        chosen = choose_new_words(uses, pieces, int(words))
        after = count_tokens(uses, [*pieces, *(word.piece for word in chosen)])
        rows[f"{words} asked for, {len(chosen):,} found"] = [f"{1 - after / before:.1%}", f"{bound / before:.1%}"]
    print(_table([f"saved of {before:,} tokens", "at most"], rows))


def compare_runs(options: argparse.Namespace) -> None:
    file = options.output / "runs.jsonl"
    done = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
    keys = [
        {"model": model, "domain": domain, "vary": vary, "seed": seed}
        for seed in options.seeds
        for model in options.model
        for domain in options.domain
        for vary in ["", *options.vary]
    ]
    for key in keys:
        if not any(key.items() <= run.items() for run in done):
            done.append({**key, **(run(options, **key) if key["vary"] else before(options, **key))})
            with file.open("a", encoding="utf-8") as rows:
                rows.write(json.dumps(done[-1]) + "\n")
            print(done[-1], flush=True)
    for model in options.model:
        for domain in options.domain:
            print_runs(f"{model}, {domain}", [x for x in done if (x["model"], x["domain"]) == (model, domain)])


def run(options: argparse.Namespace, model: str, domain: str, vary: str, seed: int) -> dict:
    """Scores of an adapted model."""
    text, _, task = domain.partition(",")
    choices = dict(choice.split("=") for choice in vary.split())
    general = {"replay" if choices.pop("replay", None) else "general": [options.general]} if options.general else {}
    began = time.process_time()
    with processor_time() if options.cpu_seconds else contextlib.nullcontext():
        adapted = adapt(
            model=model,
            inputs=[text],
            output=str(options.output / "adapted"),
            max_length=options.max_length,
            eval_characters=options.eval_characters,
            overwrite=True,
            eval_strategy="no",
            num_proc=1,
            **general,
            **{name: int(value) if value.isdecimal() else value for name, value in choices.items()},
            **training(options, seed),
        )
    found = {"seconds": time.process_time() - began, "steps": adapted.manifest["counts"]["steps"]}
    for title, scores in adapted.manifest["adaptation"].items():
        for when, values in scores.items():
            found |= {f"{title} {name}{' before' * (when == 'before')}": values[name] for name in SCORES}
    if task:
        found["task"] = downstream(options, str(adapted.path), Path(task), seed)
    return found


def before(options: argparse.Namespace, model: str, domain: str, vary: str, seed: int) -> dict:
    """The score of the model before adaptation on the task."""
    task = domain.partition(",")[2]
    return {"task": downstream(options, model, Path(task), seed)} if task else {}


@contextlib.contextmanager
def processor_time() -> Iterator[None]:
    """Counts a time budget in processor time of this process."""
    cpu_time = SimpleNamespace(**dict.fromkeys(("monotonic", "perf_counter", "process_time"), time.process_time))
    with contextlib.ExitStack() as stack:
        for module in (workflow, measurement, clock):
            stack.enter_context(patch.object(module, "time", cpu_time))
        yield


def print_runs(title: str, runs: list[dict]) -> None:
    names = [name for name in dict.fromkeys(name for run in runs for name in run) if name not in KEYS]
    names = [name for name in names if not name.endswith(" before")]
    rows = {}
    for vary in dict.fromkeys(run["vary"] for run in runs):
        found = [run for run in runs if run["vary"] == vary]
        if not vary:  # scores on texts are those that each adaptation has measured before
            found = [
                {name.removesuffix(" before"): run[name] for name in run if name.endswith(" before")}
                | ({"task": run["task"]} if not run["vary"] and "task" in run else {})
                for run in runs
            ]
        rows[vary.replace("_", " ") or "before"] = [_mean([run.get(name) for run in found]) for name in names]
    print(title, f"{len({run['seed'] for run in runs})} seeds", sep=", ")
    print(_table([name.replace("_", " ") for name in names], rows), flush=True)


def downstream(options: argparse.Namespace, model: str, task: Path, seed: int) -> float:
    """The main validation metric of a fine-tuned model."""
    tuned = finetune(
        task="text-classification",
        model=model,
        train=task / "train.jsonl",
        validation=task / "dev.jsonl",
        output=str(options.output / "tuned"),
        max_train_samples=options.task_rows,
        max_length=options.max_length,
        max_steps=options.task_steps,
        per_device_train_batch_size=16,
        learning_rate=options.task_rate,
        seed=seed,
        bootstrap=0,
        eval_strategy="no",
        save_strategy="no",
        load_best_model_at_end=False,
        bf16=bfloat16_is_faster(torch.device("cpu")),
        overwrite=True,
        report_to=[],
    )
    metric = json.loads((tuned.path / "results.json").read_text(encoding="utf-8"))["metric"]
    return tuned.metrics["validation"][metric]


def compare_starts(options: argparse.Namespace) -> None:
    output, (model,) = options.output, options.model
    work = output / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    settings = AdaptSettings(
        options.domain,
        model=model,
        output=str(output),
        new_words=options.new_words[-1],
        max_length=options.max_length,
        num_proc=1,
    )
    facts = prepare(settings, work)
    old = MyBertForPreTraining.from_pretrained(model).eval()
    old_tokenizer = MyBertTokenizer.from_pretrained(model)
    texts = list(read_texts(work / "training.jsonl"))
    rows, steps = {}, []
    for name in ("random", "mean", "characters", "rarity", "contexts", "mean and contexts", "mean, bias by frequency"):
        model = MyBertForPreTraining.from_pretrained(work / START)
        set_start(name, model, old, old_tokenizer, facts, texts)
        start = output / "start"
        model.save_pretrained(start)
        MyBertTokenizer.from_pretrained(work / START).save_pretrained(start)
        arguments = PretrainingArguments(
            output_dir=str(output / "run"), eval_steps=0.25, eval_on_start=True, **training(options, options.seeds[0])
        )
        choices = PretrainSettings(
            corpus=str(work / CORPUS), output=str(output / "run"), init_from=str(start), overwrite=True
        )
        pretrain(choices, arguments)
        log = [json.loads(line) for line in (output / "run" / "log.jsonl").read_text().splitlines()]
        evaluations = {entry["step"]: entry["eval_mlm_loss"] for entry in log if "eval_mlm_loss" in entry}
        steps = list(evaluations)
        rows[name] = [f"{loss:.3f}" for loss in evaluations.values()]
        print(_table([f"step {step}" for step in steps], rows), flush=True)


@torch.no_grad()
def set_start(
    name: str,
    model: MyBertForPreTraining,
    old: MyBertForPreTraining,
    tokenizer: MyBertTokenizer,
    facts: dict,
    texts: list[str],
) -> None:
    """Replaces the rows of the new words, which are means of their old pieces."""
    table, bias = model.get_input_embeddings().weight, model.cls.predictions.bias
    ids, words = facts["new_ids"], facts["new_words"]
    counts = Counter()
    for encoding in tokenizer.plain_text_backend().encode_batch(texts, add_special_tokens=False):
        counts.update(encoding.ids)
    if name == "random":
        table[ids] = torch.randn(len(ids), table.shape[1], generator=torch.manual_seed(0)) * 0.02
        bias[ids] = 0
    if name in ("characters", "rarity"):
        for index, word in zip(ids, words, strict=True):
            old_ids = tokenizer.convert_tokens_to_ids(word["pieces"])
            sizes = [len(piece.removeprefix("##")) for piece in word["pieces"]]
            rare = [1 / math.sqrt(1 + counts[old_id]) for old_id in old_ids]
            weights = torch.tensor(sizes if name == "characters" else rare, dtype=torch.float32)
            table[index] = weights @ old.get_input_embeddings().weight[old_ids] / weights.sum()
    if name.endswith("contexts"):
        for index, row in expected_rows(old, tokenizer, ids, words, texts).items():
            table[index] = row if name == "contexts" else (row + table[index]) / 2
    if name.endswith("frequency"):
        uses = torch.tensor([counts[index] for index in range(len(tokenizer))], dtype=torch.float32)
        known = (uses >= 5).nonzero()[:, 0]
        x, y = uses[known].log(), old.cls.predictions.bias[known]
        slope = ((x - x.mean()) * (y - y.mean())).mean() / x.var()
        for index, word in zip(ids, words, strict=True):
            uses_of_word = max(1, word["saved"] / max(1, len(word["pieces"]) - 1))
            bias[index] = y.mean() + slope * (math.log(uses_of_word) - x.mean())


def expected_rows(
    old: MyBertForPreTraining, tokenizer: MyBertTokenizer, ids: list[int], words: list[dict], texts: list[str]
) -> dict[int, torch.Tensor]:
    """For each new word the mean row of the tokens that the old model expects in its place, over some contexts."""
    wanted = {word["piece"]: index for index, word in zip(ids, words, strict=True)}
    contexts = defaultdict(list)
    backend = tokenizer.backend_tokenizer
    for text in texts:
        found = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))]
        for place, word in enumerate(found):
            if word in wanted and len(contexts[word]) < _CONTEXTS:
                window = [*found[max(0, place - 20) : place], "[MASK]", *found[place + 1 : place + 21]]
                contexts[word].append(" ".join(window))
    rows = {}
    table = old.get_input_embeddings().weight
    for word, windows in contexts.items():
        inputs = tokenizer(windows, padding=True, truncation=True, max_length=64, return_tensors="pt")
        masked = inputs["input_ids"] == tokenizer.mask_token_id
        if masked.any():
            shares = old(**inputs).prediction_logits[masked].softmax(-1)
            rows[wanted[word]] = shares.mean(0) @ table
    return rows


def _mean(values: list[float | None]) -> str:
    found = [value for value in values if value is not None]
    if not found:
        return "-"
    deviation = f" ± {statistics.stdev(found):.3f}" if len(found) > 1 else ""
    return f"{statistics.mean(found):.3f}{deviation}"


def _table(columns: list[str], rows: dict[str, list[str]]) -> str:
    padded = [(name, *values, *["-"] * (len(columns) - len(values))) for name, values in rows.items()]
    return markdown(padded, ["", *columns]) + "\n"


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
