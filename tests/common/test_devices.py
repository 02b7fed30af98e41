from types import SimpleNamespace

import pytest
import torch

from mybert.common.devices import advise_half, feed_without_waiting
from mybert.pretraining.settings import PretrainingArguments


@pytest.mark.parametrize(
    ("device", "pinned", "expected"),
    [("cuda", True, (True, True)), ("cuda", False, (False, False)), ("cpu", True, (False, False))],
)
def test_batches_are_copied_beside_the_computation_from_pinned_memory_to_a_gpu_alone(device, pinned, expected):
    copies = SimpleNamespace(non_blocking=False)
    arguments = SimpleNamespace(device=torch.device(device), dataloader_pin_memory=pinned, accelerator_config=copies)
    feed_without_waiting(arguments)
    assert (arguments.dataloader_pin_memory, copies.non_blocking) == expected


@pytest.mark.skipif(torch.accelerator.is_available(), reason="bfloat16 is trained on the accelerator then")
def test_bfloat16_is_trained_on_the_cpu_without_another_flag(tmp_path):
    assert PretrainingArguments(str(tmp_path), bf16=True).device.type == "cpu"


@pytest.mark.parametrize(
    ("capabilities", "bf16", "hidden_size", "said"),
    [
        ({"amx_bf16": True}, False, 256, True),
        ({"amx_bf16": True}, False, 128, False),  # which trains in minutes anyway
        ({"amx_bf16": True}, True, 256, False),
        ({"avx512_bf16": True}, False, 256, True),
        ({"avx512_f": True}, False, 256, False),
    ],
)
def test_training_in_float32_on_a_cpu_with_instructions_for_bfloat16_says_so(
    monkeypatch, capsys, capabilities, bf16, hidden_size, said
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    advise_half(SimpleNamespace(bf16=bf16, fp16=False, process_index=0, device=torch.device("cpu")), hidden_size)
    assert ("--bf16 true" in capsys.readouterr().out) == said
