"""Findings of `mybert doctor` on runs with known faults, and on runs without.

    python benchmarks/doctor.py [WORK_FOLDER]

Trains tiny models for a few minutes on one core. Prints a table: the fault, the expected finding, its level (or
`missed`), and other findings.
"""

import random
import sys
import tempfile
from pathlib import Path

from mybert import build_corpus, doctor, finetune, pretrain, train_tokenizer
from mybert.common.tables import print_table
from mybert.io.sources import PYTHON_DOCS

PRETRAINING = {"max_length": 64, "seed": 0, "validation_share": 0.15, "dupe_factor": 5}
TRAINING = {
    "size": "tiny",
    "initializer_range": 0.08,
    "per_device_train_batch_size": 16,
    "learning_rate": 2.5e-3,
    "warmup_steps": 0.1,
    "max_steps": 120,
    "logging_steps": 4,
    "eval_steps": 30,
    "save_strategy": "no",
    "use_cpu": True,
}
WORDS = {"good": ["good", "lovely", "great", "fine"], "bad": ["bad", "dull", "awful", "boring"]}
NOUNS = ["film", "book", "song", "play", "story", "scene", "actor", "plot"]


def rows(count: int, seed: int, padding: int = 0, marker: str = "") -> list[dict]:
    """Opinions whose label is that of one of their words."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        label = draw.choice(list(WORDS))
        words = [
            *draw.choices(NOUNS, k=2 + padding),
            draw.choice(WORDS[label]),
            *draw.choices(NOUNS, k=draw.randint(0, 2)),
        ]
        words += [marker] if marker and label == "good" else []
        made.append({"text": " ".join(words), "label": label})
    return made


def documents(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    words = [
        f"{a}{b}" for a in ("ka", "lo", "mi", "nu", "re", "so", "ti") for b in ("ban", "dor", "fel", "gim", "hus")
    ]
    return ["\n".join(" ".join(draw.choices(words, k=9)) + "." for _ in range(9)) for _ in range(count)]


def main(work: Path) -> None:
    tokenizer, corpus = work / "tokenizer", work / "corpus"
    train_tokenizer(inputs=[PYTHON_DOCS], vocab_size=2048, output=tokenizer)
    build_corpus(inputs=[PYTHON_DOCS], tokenizer=tokenizer, output=corpus, **PRETRAINING)
    found: list[tuple] = []

    def look(fault: str, expected: str | None, folder: Path) -> None:
        findings = doctor(folder)
        levels = {finding.name: finding.level for finding in findings if finding.level != "green"}
        others = ", ".join(f"{name} ({level})" for name, level in levels.items() if name != expected)
        hit = levels.get(expected, "missed") if expected else "no problem" if "red" not in levels.values() else "RED"
        found.append((fault, expected or "nothing red", hit, others))
        print(found[-1], flush=True)

    def pretrained(name: str, data: Path = corpus, **changes) -> Path:
        return pretrain(corpus=data, output=work / name, **{**TRAINING, **changes}).path

    def built(name: str, texts: list[str], **changes) -> Path:
        file = work / f"{name}.txt"
        file.write_text("\n\n".join(texts), encoding="utf-8")
        settings = {"one_sentence_per_line": True, "validation_share": 0.2, "max_length": 64, **changes}
        return build_corpus(inputs=[file], tokenizer=tokenizer, output=work / name, **settings).path

    good = pretrained("good-pretraining", max_steps=600, eval_steps=120, per_device_train_batch_size=32)
    look("good: pretraining", None, good)
    look("learning rate 200 times too high", "learning-rate-high", pretrained("high", learning_rate=0.5))
    look("learning rate 10,000 times too low", "learning-rate-low", pretrained("low", learning_rate=2.5e-7))
    look("too few steps to leave the plateau", "plateau", pretrained("short", max_steps=30, logging_steps=1))
    look("no warm-up, high learning rate", "warm-up", pretrained("cold", learning_rate=0.03, warmup_steps=0))
    texts = documents(300, seed=1)
    look("good: corpus", None, built("clean", texts))
    copies = [f"{text} {number}." for number, text in enumerate(texts)]
    look("each document twice, with another last word", "leaks", built("leaking", [*texts, *copies]))
    foreign = [text.replace("ban", "ბან").replace("dor", "დორ") for text in texts]
    look("a vocabulary without the script of the text", "unknown-tokens", built("foreign", foreign))

    def tuned(name: str, train: list[dict], validation: list[dict], **changes) -> Path:
        settings = {
            "task": "text-classification",
            "model": good,
            "max_length": 32,
            "learning_rate": 1e-3,
            "num_train_epochs": 4,
            "use_cpu": True,
            **changes,
        }
        return finetune(train=train, validation=validation, output=work / name, **settings).path

    train, validation = rows(600, seed=1, padding=2), rows(300, seed=2, padding=2)
    look("good: fine-tuning", None, tuned("good-tuning", train, validation))
    shouted = [{**row, "text": row["text"].upper() + "!"} for row in train[:30]]
    look("30 training rows in the validation rows", "leaks", tuned("copied", train, [*validation, *shouted]))
    marked = rows(600, seed=1, marker="zzz")
    look("a word that only one label has", "giveaway", tuned("marked", marked, rows(300, seed=2, marker="zzz")))
    rare = [row for row in train if row["label"] == "good"] + [row for row in train if row["label"] == "bad"][:3]
    look("a label with three rows", "rare-classes", tuned("rare", rare, validation))
    cut = tuned("cut", rows(600, seed=1, padding=8), rows(300, seed=2, padding=8), max_length=10)
    look("the telling word is truncated", "truncation", cut)
    look("20 validation rows", "rows", tuned("few", train, validation[:20]))
    guessed = [{**row, "label": random.Random(i).choice(["good", "bad"])} for i, row in enumerate(train[:40])]
    over = tuned("over", guessed, validation, num_train_epochs=30, load_best_model_at_end=False)
    look("40 rows with random labels, read 30 times", "overfitting", over)
    shuffled = [{**row, "label": random.Random(i).choice(["good", "bad"])} for i, row in enumerate(train)]
    look("random labels", "learned", tuned("random", shuffled, validation))
    print_table("Faults and findings", found, ("fault", "expected finding", "found", "other findings"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
