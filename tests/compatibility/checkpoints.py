"""Checkpoints between versions: `checkpoints.py save FOLDER`, `checkpoints.py compare FOLDER...`.

`save` trains two tiny checkpoints with the packages of this environment and stores what they compute. `compare` loads
the checkpoints of each folder twice, with this project and with only the code that they carry, and compares.
`make test-compatibility` does both in every environment of `make test-oldest` and `make test-newest`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

_WORDS = "the old river town had one narrow bridge and people crossed it every morning before work".split()  # noqa: SIM905
_TEXTS = ["the old river town had one narrow bridge", "people crossed it"]
_TOLERANCE = 1e-6  # relative to 1 or the largest number
_CLASSES = {"pretrained": "AutoModelForPreTraining", "finetuned": "AutoModelForSequenceClassification"}
_WITHOUT_PROJECT = "modeling_mybert", "tokenization", "mybert"


def save(folder: Path) -> None:
    from mybert import build_corpus, finetune, pretrain, train_tokenizer

    folder.mkdir(parents=True)
    sentences = [" ".join(_WORDS[i:] + _WORDS[:i]) for i in range(len(_WORDS))]
    (folder / "text.txt").write_text("\n\n".join(f"{a}. {a}." for a in sentences), encoding="utf-8", newline="\n")
    tokenizer, corpus, model = (str(folder / name) for name in ("tokenizer", "corpus", "pretrained"))
    train_tokenizer(inputs=[str(folder / "text.txt")], vocab_size=150, output=tokenizer)
    build_corpus(inputs=[str(folder / "text.txt")], tokenizer=tokenizer, max_length=32, output=corpus, num_proc=1)
    run = {"max_steps": 2, "use_cpu": True, "per_device_train_batch_size": 4}
    pretrain(corpus=corpus, size="tiny", output=model, **run)
    rows = [{"text": text, "label": label} for text, label in zip(sentences, ["dry", "wet"] * 8, strict=True)]
    finetune(task="text-classification", model=model, train=rows, output=str(folder / "finetuned"), **run)
    found = {name: outputs(folder / name) for name in _CLASSES}
    (folder / "outputs.json").write_text(json.dumps(found), encoding="utf-8", newline="\n")


def outputs(folder: Path) -> dict[str, list]:
    """Token ids of the texts, and every output of the checkpoint as a flat list."""
    import torch
    import transformers

    if "modeling_mybert" not in sys.modules:
        import modeling_mybert  # noqa: F401 - registers the classes
    trust = sys.modules["modeling_mybert"] is None
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)
    model = getattr(transformers, _CLASSES[folder.name]).from_pretrained(folder, trust_remote_code=trust).eval()
    inputs = tokenizer(_TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        found = model(**inputs)
    values = {name: value.flatten().tolist() for name, value in found.items()}
    return {"input_ids": inputs["input_ids"].flatten().tolist(), **values}


def compare(folder: Path) -> float:
    """The largest difference, relative to the tolerance's scale; raises AssertionError if an output is missing."""
    expected = json.loads((folder / "outputs.json").read_text(encoding="utf-8"))
    worst = 0.0
    for name, known in expected.items():
        found = outputs(folder / name)
        assert found.keys() == known.keys(), f"{folder / name}: outputs {sorted(found)}, expected {sorted(known)}"
        assert found["input_ids"] == known["input_ids"], f"{folder / name}: other tokens"
        for key in known:
            scale = max(1.0, *map(abs, known[key]))
            worst = max(worst, *(abs(a - b) / scale for a, b in zip(found[key], known[key], strict=True)))
    return worst


def main(verb: str, folders: list[Path]) -> int:
    if verb == "save":
        save(*folders)
        return 0
    if verb == "compare":  # one process with this project, one without
        command = [sys.executable, __file__]
        return max(subprocess.run([*command, kind, *map(str, folders)]).returncode for kind in ("package", "code"))
    if verb == "code":
        sys.modules.update(dict.fromkeys(_WITHOUT_PROJECT))  # importing them fails
    failed = False
    for folder in folders:
        worst = compare(folder)
        failed |= not worst <= _TOLERANCE
        print(f"{sys.prefix}: {folder.name} with the {verb}: largest difference {worst:.1e}", flush=True)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], [Path(name).absolute() for name in sys.argv[2:]]))
