"""Checks and adjustments of training arguments."""

from types import SimpleNamespace

import pytest
import torch
from transformers import TrainingArguments

from mybert.pretraining.arguments import PretrainingArguments
from mybert.training import arguments as arguments_of_training
from mybert.training.arguments import advise_half, prepare_launch, settle_arguments, warn_of_arguments


@pytest.mark.parametrize(
    ("device", "pinned", "expected"),
    [("cuda", True, (True, True)), ("cuda", False, (False, False)), ("cpu", True, (False, False))],
)
def test_batches_are_copied_without_waiting_from_pinned_memory_to_a_gpu_only(device, pinned, expected):
    copies = SimpleNamespace(non_blocking=False)
    arguments = SimpleNamespace(device=torch.device(device), dataloader_pin_memory=pinned, accelerator_config=copies)
    arguments.output_dir, arguments.n_gpu, arguments.report_to = None, 1, []
    prepare_launch(arguments, "out", "pretrain")
    assert (arguments.dataloader_pin_memory, copies.non_blocking) == expected


@pytest.mark.skipif(torch.accelerator.is_available(), reason="bf16 trains on the accelerator then")
@pytest.mark.parametrize("faster", [True, False])
def test_bf16_trains_on_the_cpu_without_another_flag_in_the_type_that_is_faster(tmp_path, monkeypatch, capsys, faster):
    monkeypatch.setattr(arguments_of_training, "has_bfloat16_products", lambda: faster)
    arguments = PretrainingArguments(str(tmp_path), bf16=True)
    assert (arguments.device.type, arguments.bf16) == ("cpu", faster)
    assert arguments.mixed_precision == ("bf16" if faster else "no")
    assert ("float32 in place of --bf16" in capsys.readouterr().out) != faster


@pytest.mark.parametrize(
    ("accelerator", "processes", "expected"), [(False, 2, True), (False, 1, False), (True, 2, False)]
)
def test_several_processes_without_a_gpu_train_together_on_the_cpu(monkeypatch, accelerator, processes, expected):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: accelerator)
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    arguments = SimpleNamespace(fsdp=None, disable_tqdm=True, bf16=False, use_cpu=False)
    settle_arguments(arguments)
    assert arguments.use_cpu == expected


@pytest.mark.parametrize(
    ("faster", "bf16", "hidden_size", "said"),
    [
        (True, False, 256, True),
        (True, False, 128, False),  # small models train in minutes anyway
        (True, True, 256, False),
        (False, False, 256, False),
    ],
)
def test_a_notice_about_bfloat16_depends_on_its_speed(monkeypatch, capsys, faster, bf16, hidden_size, said):
    monkeypatch.setattr(arguments_of_training, "has_bfloat16_products", lambda: faster)
    advise_half(SimpleNamespace(bf16=bf16, fp16=False, process_index=0, device=torch.device("cpu")), hidden_size)
    assert ("--bf16 is" in capsys.readouterr().out) == said


@pytest.mark.parametrize(
    ("arguments", "warning"),
    [
        ({"learning_rate": 5.0}, "--learning-rate 5 "),
        ({"fp16": True}, "--fp16 has no effect on a CPU"),
        ({"learning_rate": 2.5e-3}, None),
    ],
)
def test_a_high_learning_rate_and_fp16_on_a_cpu_are_warned_about(tmp_path, caplog, arguments, warning):
    warn_of_arguments(TrainingArguments(str(tmp_path), use_cpu=True, **arguments))
    assert (warning in caplog.text) if warning else not caplog.records


@pytest.mark.parametrize("given", ["true", "True", True, "false", None])
def test_fsdp_shards_with_the_defaults_of_transformers_or_not(given, monkeypatch, tmp_path):
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "")  # which transformers sets
    arguments = PretrainingArguments(str(tmp_path), fsdp=given)
    assert bool(arguments.fsdp) == (given not in ("false", None))
    assert not arguments.fsdp or (arguments.fsdp is True and arguments.fsdp_plugin_args["fsdp_version"] == 2)
