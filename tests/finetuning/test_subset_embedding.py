"""Training the rows that occur gives the weights of training the whole embedding."""

import copy

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from torch import nn

from modeling_mybert import MyBertForSequenceClassification
from mybert.finetuning import objective
from mybert.finetuning.arguments import FinetuningArguments
from mybert.finetuning.objective import Finetuning
from mybert.finetuning.subset_embedding import SubsetEmbedding, train_occurring_rows
from mybert.training.trainer import RunTrainer


def tables() -> tuple[nn.Embedding, SubsetEmbedding]:
    torch.manual_seed(0)
    whole = nn.Embedding(50, 4, padding_idx=3)
    return whole, SubsetEmbedding(copy.deepcopy(whole), torch.tensor([3, 7, 8, 20, 49]))


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adamw_trains_the_same_embedding(weight_decay):
    whole, part = tables()
    before, everything = whole.weight.detach().clone(), torch.arange(50)
    optimizers = [torch.optim.AdamW(table.parameters(), lr=0.1, weight_decay=weight_decay) for table in (whole, part)]
    part.follow(optimizers[1])
    for step in range(5):
        ids = torch.tensor([[7, 7, 3, 49], [20, 8, 8, 3]])[:, : 4 - step // 2]
        for table, optimizer in zip((whole, part), optimizers, strict=True):
            found = table(ids)
            (found.sin() * torch.arange(found.numel()).view_as(found)).sum().backward()
            optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
            optimizer.step()
            optimizer.zero_grad()
        if step == 2:  # evaluation at the end of an epoch
            assert torch.allclose(part.eval()(everything), whole(everything), rtol=1e-6, atol=0)
            part.train()
    expected, found = whole.state_dict(), part.state_dict()
    assert found.keys() == expected.keys() == {"weight"}
    torch.testing.assert_close(found["weight"], expected["weight"], rtol=1e-6 if weight_decay else 0, atol=0)
    trained = [7, 8, 20, 49]  # the padding row has no gradient
    assert torch.equal(found["weight"][trained], expected["weight"][trained])
    if not weight_decay:
        assert (found["weight"] != before).any(1).nonzero().squeeze(1).tolist() == trained
    assert sum(p.numel() for p in part.parameters()) == 5 * 4


def test_loading_and_converting_keep_weight_and_table_in_the_same_memory():
    _, part = tables()
    other = nn.Embedding(50, 4)
    assert not part.load_state_dict(other.state_dict()).missing_keys
    assert torch.equal(part.weight, other.weight[[3, 7, 8, 20, 49]])
    part.double()
    with torch.no_grad():
        part.weight[1] = 5.0
    assert (part.state_dict()["weight"][7] == 5).all() and part.state_dict()["weight"].dtype == torch.float64
    assert part.load_state_dict({}, strict=False).missing_keys == ["weight"]


def test_optimizer_states_are_those_of_the_whole_embedding():
    """So that a run can be resumed with several processes, which train the whole embedding."""

    def step(table, optimizer):
        table(torch.tensor([7, 3, 49, 7])).sin().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    def begin(table):
        optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(2)), *table.parameters()], lr=0.1, weight_decay=0.1)
        if isinstance(table, SubsetEmbedding):
            table.follow(optimizer)
        return optimizer

    made = [(table, begin(table)) for table in tables()]
    for table, optimizer in made:
        step(table, optimizer)
    states = [optimizer.state_dict()["state"] for _, optimizer in made]
    assert states[0].keys() == states[1].keys() == {1}
    assert all(torch.equal(value, states[1][1][name]) for name, value in states[0][1].items())
    for (before, optimizer), after in ((made[0], tables()[1]), (made[1], tables()[0])):
        after.load_state_dict(before.state_dict())
        other = begin(after)
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        for table, its in ((before, optimizer), (after, other)):
            step(table, its)
        torch.testing.assert_close(after.state_dict(), before.state_dict(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("case", ["by default", "frozen", "an optimizer that mixes rows", "a given optimizer"])
def test_the_whole_embedding_is_kept(tiny_checkpoint, tmp_path, case):
    model = MyBertForSequenceClassification.from_pretrained(tiny_checkpoint)
    table = model.base_model.embeddings.word_embeddings.requires_grad_(case != "frozen")
    choices = {"eval_strategy": "no", "load_best_model_at_end": False, "use_cpu": True, "max_steps": 1}
    choices |= {"per_device_train_batch_size": 32}
    choices |= {"num_train_epochs": 1, "learning_rate": 1e-3}
    choices |= {"optim": "adafactor" if "mixes" in case else "adamw_torch"}
    made = RunTrainer(
        objective=Finetuning(occurring_rows=case != "by default"),
        model=model,
        args=FinetuningArguments(output_dir=str(tmp_path), **choices),
        train_dataset=Dataset.from_dict({"input_ids": [[5, 6]] * 4, "labels": [0, 1] * 2}),
        optimizers=(torch.optim.AdamW(model.parameters()) if "given" in case else None, None),
    )
    made.train()
    made.train()  # twice is allowed
    assert model.base_model.embeddings.word_embeddings is table


def test_nested_choices_are_read(tiny_checkpoint, tmp_path):
    model = MyBertForSequenceClassification.from_pretrained(tiny_checkpoint)
    features = Dataset.from_dict({"input_ids": [[[9, 5], [6]], [[5], [30, 31]]]})
    train_occurring_rows(model, features, FinetuningArguments(output_dir=str(tmp_path), use_cpu=True))
    assert model.base_model.embeddings.word_embeddings.weight.shape[0] == len({0, 5, 6, 9, 30, 31})


@pytest.mark.slow
@pytest.mark.parametrize("decay", [0, 0.5])
def test_a_run_has_the_weights_of_one_that_trains_all_rows(
    finetune, write_rows, opinions, tiny_checkpoint, tmp_path, monkeypatch, decay
):
    train, validation = write_rows("train.jsonl", opinions[:30]), write_rows("dev.jsonl", opinions[30:])
    words = ("text-classification", "--train", train, "--validation", validation, "--num-train-epochs", 2)
    words += ("--weight-decay", decay, "--bootstrap", 0)
    assert finetune(*words, output="rows") == 0
    monkeypatch.setattr(objective, "train_occurring_rows", lambda *_: None)
    assert finetune(*words, output="whole") == 0
    found, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("rows", "whole"))
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-4, atol=1e-5, msg=name)
    before = load_file(tiny_checkpoint / "model.safetensors")
    name = "bert.embeddings.word_embeddings.weight"
    changed = (expected[name] != before[name]).any(1)
    assert changed.all() if decay else 0 < changed.sum() < len(changed)
    assert torch.equal((found[name] != before[name]).any(1), changed)
