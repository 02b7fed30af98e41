"""The private members of transformers' Trainer that this package uses, and what depends on each.

One that is renamed or no longer called would be missed silently: a method of that name is still a valid override.
"""

import ast
import inspect
import re
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from tiny_models import tiny_config
from torch.utils.data import SequentialSampler
from transformers import Trainer

from modeling_mybert import MyBertForSequenceClassification
from mybert.finetuning.arguments import FinetuningArguments
from mybert.training import sealed_checkpoints
from mybert.training.objective import Course
from mybert.training.sealed_checkpoints import find_damage
from mybert.training.trainer import RunTrainer

PACKAGE = Path(sealed_checkpoints.__file__).parents[1]
CHECKPOINTS = {"_save_checkpoint", "_get_output_dir", "_load_from_checkpoint", "_load_rng_state"}
WEIGHT = "encoder.layer.weight"
MEMBERS = CHECKPOINTS | {"_get_grad_norm", "_get_train_sampler"}  # of the first: tests/pretraining/test_nonfinite.py


def test_no_other_private_member_is_used():
    private = set(re.findall(r"\bself\.(_[a-z]\w+)", inspect.getsource(Trainer)))
    used = set()
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if "Trainer" in text:
            used |= {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)} & private
            used |= {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)} & private
    assert used == MEMBERS and len(used) <= 8


@pytest.fixture
def saved(make_trainer):
    """The checkpoints of steps 2, 4 and 6."""
    trainer = make_trainer(save_strategy="steps", save_steps=2)
    trainer.train()
    return [Path(trainer.args.output_dir) / f"checkpoint-{step}" for step in (2, 4, 6)]


def test_save_checkpoint_seals_every_checkpoint(saved):
    assert [find_damage(folder) for folder in saved] == [None] * 3


def test_get_output_dir_keeps_an_unfinished_checkpoint_aside(make_trainer, monkeypatch):
    monkeypatch.setattr(sealed_checkpoints, "seal", lambda folder: 1 / 0)
    trainer = make_trainer(save_strategy="steps", save_steps=2)
    with pytest.raises(ZeroDivisionError):
        trainer.train()
    assert not list(Path(trainer.args.output_dir).glob("checkpoint-*"))


def test_load_from_checkpoint_brings_the_weights_of_a_finished_run(make_trainer, saved):
    again = make_trainer()
    with torch.no_grad():
        again.model.encoder["layer"].weight.fill_(9.0)
    assert again.run(saved[-1]) is False
    assert torch.equal(again.model.encoder["layer"].weight, load_file(saved[-1] / "model.safetensors")[WEIGHT])


def test_load_rng_state_seeds_a_process_that_saved_none_by_its_step(make_trainer, saved):
    (saved[1] / "rng_state.pth").unlink()
    seeds = []
    trainer = make_trainer()
    step = trainer.training_step
    trainer.training_step = lambda *args: seeds.append(torch.initial_seed()) or step(*args)
    trainer.train(resume_from_checkpoint=str(saved[1]))
    assert seeds[0] == trainer.args.seed + 4


def test_get_train_sampler_gives_the_order_of_the_course(tmp_path):
    rows = Dataset.from_dict({"input_ids": [[5] * n for n in (9, 2, 7, 4)], "labels": [0, 1] * 2})
    course = Course()
    course.sampler = lambda: SequentialSampler(rows)
    arguments = FinetuningArguments(
        output_dir=str(tmp_path),
        use_cpu=True,
        num_train_epochs=1,
        per_device_train_batch_size=32,
        eval_strategy="no",
        load_best_model_at_end=False,
    )
    model = MyBertForSequenceClassification(tiny_config())
    trainer = RunTrainer(course=course, model=model, args=arguments, train_dataset=rows)
    assert isinstance(trainer.get_train_dataloader().batch_sampler.sampler, SequentialSampler)
