from types import SimpleNamespace

import pytest
import torch

from mybert.common.devices import feed_without_waiting


@pytest.mark.parametrize(
    ("device", "pinned", "expected"),
    [("cuda", True, (True, True)), ("cuda", False, (False, False)), ("cpu", True, (False, False))],
)
def test_batches_are_copied_beside_the_computation_from_pinned_memory_to_a_gpu_alone(device, pinned, expected):
    copies = SimpleNamespace(non_blocking=False)
    arguments = SimpleNamespace(device=torch.device(device), dataloader_pin_memory=pinned, accelerator_config=copies)
    feed_without_waiting(arguments)
    assert (arguments.dataloader_pin_memory, copies.non_blocking) == expected
