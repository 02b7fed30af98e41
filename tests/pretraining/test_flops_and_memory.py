"""Computed costs against models, operations counted by torch, the allocator, and files on disk."""

import numpy as np
import pytest
import torch
from recomputation import checkpoint_layers
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from modeling_mybert import NAMED_SIZES, MyBertConfig, MyBertForPreTraining
from mybert.common.quantities import counted, duration, with_unit
from mybert.corpus.disk_budget import examples_bytes
from mybert.inference.cpu import attention
from mybert.pretraining.data.batching import example_lengths
from mybert.pretraining.planning.flops_and_memory import CorpusShape, count_parameters


def make_batch(lengths, labelled, vocabulary):
    """A random packed batch with evenly spread labels."""
    total = sum(lengths)
    ids = torch.randint(5, vocabulary, (1, total))
    positions = (torch.arange(labelled) + 0.5).mul(total / labelled).long()
    labels = torch.full_like(ids, -100)
    labels[0, positions] = ids[0, positions]
    return {
        "input_ids": ids,
        "labels": labels,
        "masked_lm_positions": positions,
        "next_sentence_label": torch.zeros(len(lengths), dtype=torch.long),
        "cu_seq_lens_q": torch.tensor([0, *lengths]).cumsum(0).int(),
        "max_length_q": max(lengths),
    }


def costs_of(config, lengths, labelled):
    return CorpusShape.of(np.array(lengths)).costs(config, labelled / sum(lengths), has_pairs=True)


@pytest.mark.parametrize("size", NAMED_SIZES)
def test_parameters_of_each_part_are_those_of_the_model(size):
    config = MyBertConfig.from_size(size, vocab_size=1000, max_position_embeddings=100)
    with torch.device("meta"):
        model = MyBertForPreTraining(config)
    found = {
        "embeddings": model.bert.embeddings,
        "encoder": model.bert.encoder,
        "masked-language-model head": model.cls.predictions,
        "next-sentence head": torch.nn.ModuleList([model.bert.pooler, model.cls.seq_relationship]),
    }
    found = {part: sum(p.numel() for p in module.parameters()) for part, module in found.items()}
    found["masked-language-model head"] -= model.cls.predictions.decoder.weight.numel()
    assert count_parameters(config) == found
    assert sum(found.values()) == sum(p.numel() for p in model.parameters())
    untied = MyBertConfig.from_size(size, vocab_size=1000, tie_word_embeddings=False)
    with torch.device("meta"):
        model = MyBertForPreTraining(untied)
    assert sum(count_parameters(untied).values()) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_counted_operations_are_those_of_a_ragged_step(checkpointing, monkeypatch):
    monkeypatch.setattr(attention, "COST_OF_A_GROUP", 0)  # one length in each group, without padding
    config = MyBertConfig.from_size("tiny", vocab_size=300)
    lengths = [256, 160]
    model = MyBertForPreTraining(config).train()
    if checkpointing:
        checkpoint_layers(model)
    with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:  # it knows no oneDNN
        model(**make_batch(lengths, 21, 300)).loss.backward()
    costs = costs_of(config, lengths, 21)
    assert sum(lengths) * costs.executed_per_token(checkpointing) == pytest.approx(counter.get_total_flops(), rel=1e-3)


def peak_bytes(model, batch, half):
    """Peak allocation of a step without the weights, from the profiler's record of the allocator."""
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()

    step()  # allocates moments and gradients
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step()
    now = most = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


@pytest.mark.parametrize(
    ("length", "how"), [(64, {}), (256, {}), (128, {"half": True}), (128, {"checkpointing": True})]
)
def test_memory_is_near_what_a_step_allocates(length, how):
    config = MyBertConfig.from_size("mini", vocab_size=8000)
    lengths = [length] * (1024 // length)
    labelled = round(0.15 * sum(lengths))
    model = MyBertForPreTraining(config).train()
    if how.get("checkpointing"):
        checkpoint_layers(model)
    costs = costs_of(config, lengths, labelled)
    expected = costs.memory(sum(lengths), keeps_scores=True, **how)
    found = peak_bytes(model, make_batch(lengths, labelled, 8000), how.get("half", False))
    assert expected["weights"] == sum(p.numel() * p.element_size() for p in model.parameters())
    assert found == pytest.approx(expected["copies"] + expected["activations"] + expected["logits"], rel=0.15)


def test_shards_add_up_to_a_whole_copy_and_gathered_layers_take_less():
    costs = costs_of(MyBertConfig.from_size("large"), [128], 19)
    alone, ddp, fsdp = (
        costs.memory(4096, devices=devices, sharded=sharded)
        for devices, sharded in ((1, False), (8, False), (8, True))
    )
    for part in ("weights", "gradients", "optimizer"):
        assert ddp[part] == alone[part] == 8 * fsdp[part]
    assert alone["copies"] == 0 < fsdp["copies"] < ddp["copies"] == 4 * costs.parameters


def test_a_checkpoint_has_the_computed_size(make_trainer, tokenizer, tmp_path):
    config = MyBertConfig.from_size("tiny", vocab_size=len(tokenizer))
    trainer = make_trainer(model=MyBertForPreTraining(config), max_steps=1, save_strategy="steps", save_steps=1)
    trainer.train()
    folder = tmp_path / "run" / "checkpoint-1"
    found = sum((folder / name).stat().st_size for name in ("model.safetensors", "optimizer.pt"))
    assert costs_of(config, [128], 19).checkpoint_bytes == pytest.approx(found, rel=0.01)


def test_examples_have_the_computed_size(pairs, tmp_path):
    corpus = pairs(2000, longest=60)
    corpus.save_to_disk(tmp_path)
    found = sum(path.stat().st_size for path in tmp_path.rglob("*.arrow"))
    lengths = [len(row) for row in corpus["input_ids"]]
    assert examples_bytes(sum(lengths), np.mean(lengths)) == pytest.approx(found, rel=0.02)


@pytest.mark.parametrize(
    ("stop", "time"), [(True, "1 min 40 s of training in total"), (False, "35 s of training left")]
)
def test_a_dry_run_prints_the_time_of_all_steps_and_a_run_that_of_the_remaining_ones(make_trainer, stop, time):
    trainer = make_trainer(trainer={"dry_run": stop}, max_steps=20)
    trainer.state.global_step = 13
    assert time in trainer.objective.time_message(seconds=5.0, steps=10, first=0)


def test_the_shape_of_a_corpus_is_that_of_its_sequences(pairs):
    corpus = pairs(50)
    lengths = [len(row) for row in corpus["input_ids"]]
    expected = CorpusShape(50, sum(lengths), max(lengths), sum(length**2 for length in lengths))
    assert CorpusShape.of(example_lengths(corpus)) == expected
    chosen = corpus.select([7, 3])
    assert CorpusShape.of(example_lengths(chosen)).tokens == lengths[7] + lengths[3]


def test_large_numbers_have_units():
    assert with_unit(9.87e9, "FLOP") == "9.87 GFLOP"
    assert with_unit(12, "B") == "12 B"
    assert (with_unit(999_499, "B"), with_unit(999_999, "B"), with_unit(999.9, "B")) == ("999 kB", "1 MB", "1 kB")
    assert duration(59.6) == "1 min" and duration(0) == "0 s"
    assert duration(3.2) == "3 s"
    assert duration(93_784) == "1 d 2 h"


def test_a_count_of_one_is_singular():
    assert [counted(number, "layer") for number in (0, 1, 2000)] == ["0 layers", "1 layer", "2,000 layers"]
