import pytest
import torch
from torch import nn
from transformers import TrainingArguments

from mybert.training.trainer import RunTrainer


class Line(nn.Module):
    """y = w x, with a weight matrix of a layer, which `update_ratio` measures."""

    main_input_name = "input_ids"

    def __init__(self):
        super().__init__()
        self.encoder = nn.ModuleDict({"layer": nn.Linear(1, 1)})

    def forward(self, input_ids, labels):
        out = self.encoder["layer"](input_ids.float())
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}


@pytest.fixture
def make_trainer(tmp_path):
    """A function (training arguments) → a trainer of `Line` on 8 rows, which logs and evaluates."""

    def make(folder="run", **arguments) -> RunTrainer:
        torch.manual_seed(0)
        rows = [{"input_ids": [float(i)], "labels": [2.0 * i]} for i in range(8)]
        defaults = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "use_cpu": True, "logging_steps": 2}
        defaults |= {"max_steps": 6, "eval_strategy": "steps", "eval_steps": 3, "per_device_train_batch_size": 2}
        args = TrainingArguments(str(tmp_path / folder), **defaults | {"learning_rate": 1e-2} | arguments)
        return RunTrainer(model=Line(), args=args, train_dataset=rows, eval_dataset=rows)

    return make
