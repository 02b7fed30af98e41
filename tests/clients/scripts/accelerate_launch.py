"""accelerate launch: training on the CPU."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

PACKAGES = ["accelerate==1.15.0"]
MODEL = "BertForSequenceClassification"


def train(folder: str, texts: list[str], remote: bool) -> None:
    import torch
    from accelerate import Accelerator
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    with contextlib.suppress(ImportError):
        import modeling_mybert  # noqa: F401 - registers itself where it is installed
    accelerator, losses = Accelerator(cpu=True), []
    model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=remote)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    inputs = AutoTokenizer.from_pretrained(folder)(
        texts[accelerator.process_index :: accelerator.num_processes], padding=True, return_tensors="pt"
    )
    for _ in range(3):
        loss = model(**inputs, labels=torch.arange(len(inputs["input_ids"])) % 3).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
    if accelerator.is_main_process:
        Path("losses.json").write_text(json.dumps(losses), encoding="utf-8")
    accelerator.end_training()


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    Path("losses.json").unlink(missing_ok=True)
    launch = ["accelerate.commands.launch", "--cpu", "--num_processes", "1", "--main_process_port", "0", __file__]
    subprocess.run([sys.executable, "-m", *launch, json.dumps([folder, texts, remote])], check=True)
    return [json.loads(Path("losses.json").read_text(encoding="utf-8"))]


if __name__ == "__main__":
    train(*json.loads(sys.argv[1]))
