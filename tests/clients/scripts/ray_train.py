"""Ray Train: TorchTrainer with two workers."""

import contextlib
import tempfile
from pathlib import Path

import ray
import ray.train
import torch
from ray.train.torch import TorchTrainer, prepare_model

PACKAGES = ["ray[train,serve]==2.60.0"]
MODEL = "BertForSequenceClassification"


def train(settings: dict) -> None:
    with contextlib.suppress(ImportError):
        import modeling_mybert  # noqa: F401 - registers itself where it is installed
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder, rank = settings["folder"], ray.train.get_context().get_world_rank()
    model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=settings["remote"])
    model, optimizer = prepare_model(model), torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = AutoTokenizer.from_pretrained(folder)(settings["texts"][rank::2], padding=True, return_tensors="pt")
    losses = []
    for _ in range(3):
        loss = model(**inputs, labels=torch.arange(len(inputs["input_ids"])) % 3).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    with tempfile.TemporaryDirectory() as checkpoint:  # without one, the result has no metrics
        model.module.save_pretrained(checkpoint)
        ray.train.report({"losses": losses}, checkpoint=ray.train.Checkpoint.from_directory(checkpoint))


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    ray.init(address="local", num_cpus=3, include_dashboard=False)
    settings = {"folder": folder, "texts": texts, "remote": remote}
    scaling = ray.train.ScalingConfig(num_workers=2, use_gpu=False)
    storage = ray.train.RunConfig(storage_path=str(Path("results").resolve()))
    result = TorchTrainer(train, train_loop_config=settings, scaling_config=scaling, run_config=storage).fit()
    ray.shutdown()
    return [result.metrics["losses"]]
