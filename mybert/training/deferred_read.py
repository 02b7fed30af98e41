"""Read small tensors from a device without synchronisation."""

import torch
from torch import Tensor


class DeferredRead:
    """Starts copying a small tensor, (n,), to the host; only `read` waits for the device."""

    def __init__(self, values: Tensor):
        self.is_immediate = values.device.type == "cpu"
        self._values = values.to("cpu", non_blocking=values.is_cuda)
        self._copied = torch.cuda.Event() if values.is_cuda else None
        if self._copied is not None:
            self._copied.record()

    def read(self) -> list[float]:
        if self._copied is not None:
            self._copied.synchronize()
        return self._values.tolist()
