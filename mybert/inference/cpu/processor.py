"""Properties of the processor and of this build of PyTorch, and where the operations of this package apply."""

import functools
import math
import time
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

HALF = (torch.bfloat16, torch.float16)
_MEASURED, _MEASURING, _CLEARLY = 256, 0.02, 0.8
"""Products by which types are compared: size, seconds, and what share of the time of float32 is clearly less."""


def is_plain_cpu(device: torch.device) -> bool:
    """Whether PyTorch computes on the CPU operation by operation: no graph, and no transform of `torch.func`."""
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined]
    return device.type == "cpu" and not tracing and not torch.compiler.is_compiling() and not may_be_transformed()


def may_be_transformed() -> bool:
    """Whether `torch.func` or forward-mode derivatives are active; True if this PyTorch has no way to tell."""
    try:
        return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    except AttributeError:  # private names, which a later PyTorch may rename
        return True


def cpu_capabilities() -> dict[str, Any]:
    """Instructions of this processor by PyTorch's names; empty where PyTorch cannot tell."""
    return getattr(torch.cpu, "get_capabilities", dict)()  # torch 2.11 lacks it on some platforms


@functools.cache
def onednn_is_faster() -> bool:
    """Whether oneDNN multiplies float32 matrices faster than MKL, on processors and builds that were measured."""
    has = cpu_capabilities()
    measured = "AMD" in has.get("cpu_name", "") and bool(has.get("avx512_f"))
    return measured and torch.backends.mkl.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@functools.cache
def can_prepack() -> bool:
    """Whether this build of PyTorch has oneDNN's products with prepacked weights."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


def has_bfloat16_products() -> bool:
    """Whether products in bfloat16 are faster than in float32 on this processor.

    Without instructions for them, or where oneDNN may not use these, they take 3 to 80 times as long.
    """
    is_traced = type(torch.empty(0, device="cpu")) is not Tensor  # computes nothing
    return not is_traced and _bfloat16_is_faster()


@functools.cache
def _bfloat16_is_faster() -> bool:
    """Measured once, by turns, so that other programs slow both down."""
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        factors = [torch.ones(_MEASURED, _MEASURED, dtype=dtype, device="cpu") for dtype in (torch.float32, HALF[0])]
        for factor in factors:
            factor @ factor  # compiles the product
        best, end = [math.inf, math.inf], time.perf_counter() + _MEASURING
        while math.inf in best or time.perf_counter() < end:
            for number, factor in enumerate(factors):
                start = time.perf_counter()
                factor @ factor
                best[number] = min(best[number], time.perf_counter() - start)
    return best[1] < _CLEARLY * best[0]
