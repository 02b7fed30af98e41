"""Fine-tuning with and without a teacher: scores and speed of students with fewer layers.

    python benchmarks/distillation.py MODEL --sets FOLDER,TASK,ROWS,STEPS[,TEACHER_ROWS] … --output FOLDER
        [--unlabelled 3000] [--layers 3] [--teacher-steps 150] [--teacher-rate 2e-4] [--seeds 3] [--dev-rows 1000]
        [--same-rows]

Each set is a folder with train.jsonl and dev.jsonl, a task, and the number of labelled rows. The teacher is MODEL
fine-tuned on these rows, or on TEACHER_ROWS. The students have LAYERS evenly spaced layers of MODEL and train for
STEPS steps with the same seeds on the same labelled rows: without a teacher; with a teacher and UNLABELLED further
rows, whose labels are not used; and with --same-rows also with a teacher on the labelled rows only. Models are
evaluated after half of the steps and at the end, and the better checkpoint counts. Speed is CPU time of `Predictor`
on the dev rows. Results are stored in FOLDER/results.json; running the command again computes missing ones only.
Prints a Markdown table.
"""

import argparse
import json
import random
import statistics
from pathlib import Path

import torch
from saved_tables import markdown
from sides import timed

from mybert import Predictor, finetune
from mybert.common.machine import hardware
from mybert.inference.checkpoint import quiet_loading
from mybert.training.arguments import bfloat16_is_faster

LABELS = {"label", "labels", "ner_tags", "upos", "answers", "score"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--sets", nargs="+", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--unlabelled", type=int, default=3000)
    parser.add_argument("--dev-rows", type=int, default=1000)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--teacher-steps", type=int, default=150)
    parser.add_argument("--teacher-rate", type=float, help="default: that of the students")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--same-rows", action="store_true")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / "results.json"
    results = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    with quiet_loading():
        for name in options.sets:
            for run, choices in prepare(options, name).items():
                if run not in results.setdefault(name, {}):
                    results[name][run] = measure(options, name, run, choices)
                    file.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    for name, runs in results.items():
        print_table(name, runs)


def prepare(options: argparse.Namespace, name: str) -> dict[str, dict]:
    """Writes the rows of a set; returns the choices of each run."""
    source, _, rows, steps, *teacher_rows = name.split(",")
    folder = options.output / Path(source).name
    folder.mkdir(exist_ok=True)
    lines = (Path(source) / "train.jsonl").read_text(encoding="utf-8").splitlines()
    random.Random(0).shuffle(lines)  # some files are sorted by label
    texts = [json.loads(line) for line in lines[int(rows) :][: options.unlabelled]]
    texts = [{key: value for key, value in row.items() if key not in LABELS} for row in texts]
    write(folder / "train.jsonl", lines[: int(rows)])
    write(folder / "teacher.jsonl", lines[: int(*teacher_rows or [rows])])
    write(folder / "texts.jsonl", list(map(json.dumps, texts)))
    dev = (Path(source) / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    write(folder / "dev.jsonl", dev[: options.dev_rows])
    student = {"layers": options.layers, "max_steps": int(steps), "seeds": options.seeds}
    teacher = {"teacher": folder / "teacher"}
    rate = options.teacher_rate or options.learning_rate
    own = {"train": folder / "teacher.jsonl", "max_steps": options.teacher_steps, "learning_rate": rate}
    runs = {
        "teacher": own,
        "student alone": student,
        "student, teacher": {**student, **teacher},
        f"student, teacher, {len(texts):,} unlabelled rows": {
            **student,
            **teacher,
            "unlabelled": folder / "texts.jsonl",
        },
    }
    if not options.same_rows:
        runs.pop("student, teacher")
    return runs


def write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def measure(options: argparse.Namespace, name: str, run: str, choices: dict) -> dict:
    source, task, *_ = name.split(",")
    folder = options.output / Path(source).name
    output = folder / (run if run == "teacher" else "student")
    trained = timed(
        finetune,
        task=task,
        model=options.model,
        validation=folder / "dev.jsonl",
        output=output,
        max_length=options.max_length,
        per_device_train_batch_size=options.batch,
        bf16=bfloat16_is_faster(torch.device("cpu")),
        bootstrap=0,
        eval_strategy="steps",
        eval_steps=0.5,
        save_strategy="steps",
        save_steps=0.5,
        overwrite=True,
        **{"train": folder / "train.jsonl", "learning_rate": options.learning_rate, **choices},
    )
    found = json.loads((output / "results.json").read_text(encoding="utf-8"))
    rows = [json.loads(line) for line in (folder / "dev.jsonl").read_text(encoding="utf-8").splitlines()]
    predictor = Predictor(output, device="cpu")
    predictor(rows[:8])
    result = {
        "metric": found["metric"],
        "scores": [x["metrics"][found["metric"]] for x in found["runs"]],
        "seconds": timed(predictor, rows).cpu,
        "training": trained.cpu,
    }
    print(name, run, result, flush=True)
    return result


def print_table(name: str, runs: dict[str, dict]) -> None:
    teacher, rows = runs["teacher"], []
    for run, found in runs.items():
        mean = statistics.mean(found["scores"])
        deviation = f"{statistics.stdev(found['scores']):.4f}" if len(found["scores"]) > 1 else "-"
        share, faster = mean / teacher["scores"][0], teacher["seconds"] / found["seconds"]
        speed = f"{found['seconds']:.1f} s, {faster:.2f} times as fast"
        rows.append((run, f"{mean:.4f}", deviation, f"{share:.1%}", speed, f"{found['training']:.0f} s"))
    columns = ("model", teacher["metric"], "deviation", "share of the teacher's", "prediction", "training")
    print(f"\n{name}\n\n{markdown(rows, columns)}")


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
