"""Worker processes that are not forked from the caller, as on Windows and macOS: they share no memory with it.

A fork server stands for spawning: it passes arguments the same way, and its processes import this project anew, but
they have the libraries already, whose import takes five seconds of a core in each of seven processes.
"""

import os
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS = "the old river town had one narrow bridge and people crossed it every morning before work".split()  # noqa: SIM905
SCRIPT = """
import multiprocessing
import mybert

def make(folder, processes):
    texts = {"inputs": ["one.txt", "two.txt"], "num_proc": processes}
    run = {"max_steps": 2, "use_cpu": True, "per_device_train_batch_size": 4, "eval_strategy": "no"}
    run["dataloader_num_workers"] = processes - 1
    mybert.train_tokenizer(**texts, vocab_size=150, output=f"{folder}/tokenizer")
    mybert.build_corpus(**texts, tokenizer=f"{folder}/tokenizer", max_length=32, output=f"{folder}/corpus")
    mybert.pretrain(corpus=f"{folder}/corpus", size="tiny", output=f"{folder}/model", **run)
    rows = [{"text": text, "label": label} for text, label in zip(["dry land", "wet sea"] * 4, ["dry", "wet"] * 4)]
    mybert.finetune(
        task="text-classification", model=f"{folder}/model", train=rows, output=f"{folder}/classifier",
        load_best_model_at_end=False, **run
    )

if __name__ == "__main__":
    multiprocessing.set_start_method("forkserver")
    multiprocessing.set_forkserver_preload(["datasets", "transformers.trainer"])
    make("served", 2)
"""


def test_workers_that_are_not_forked_give_the_same_files_as_one_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sentences = [" ".join(WORDS[i:] + WORDS[:i]) for i in range(len(WORDS))]
    for name, part in (("one", sentences[::2]), ("two", sentences[1::2])):
        text = "\n\n".join(f"{a}. {a}." for a in part)
        Path(f"{name}.txt").write_text(text, encoding="utf-8", newline="\n")
    Path("script.py").write_text(SCRIPT, encoding="utf-8", newline="\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "script.py"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    runpy.run_path("script.py")["make"]("alone", 1)
    alone = Path("alone")
    files = [path.relative_to(alone) for path in alone.rglob("*") if path.suffix in (".txt", ".arrow", ".safetensors")]
    assert {path.parts[0] for path in files} == {"tokenizer", "corpus", "model", "classifier"}
    for path in files:
        assert ("served" / path).read_bytes() == (alone / path).read_bytes(), path
