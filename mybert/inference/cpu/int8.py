"""Linear layers of an int8 model (`mybert quantize`), for CPUs with VNNI.

Query, key and feed-forward products multiply int8 weights, with one scale per output, by uint8 inputs, with one scale
per token. Each input feature is shifted and multiplied by a factor first, and its column of the weights is divided by
the factor (Xiao et al. 2023, SmoothQuant). A few features of the activations inside the feed-forward layer are far
larger than all others; these are multiplied in float32 (Dettmers et al. 2022, LLM.int8()).

Attention is computed in bfloat16, everything else in float32: int8 would cost accuracy there and gain little time
(benchmarks/RESULTS.md).
"""

import os
from typing import Any

import torch
from torch import Tensor, nn

from mybert.inference.cpu.processor import cpu_capabilities, has_bfloat16_products

_OPS, _PRODUCT, _PACK = torch.ops.onednn, "qlinear_pointwise", "qlinear_prepack"

_MAGIC = 1.5 * 2**23
"""A float32 of this size has no fraction: adding it rounds a small number to a whole one, in the lowest bits."""


def int8_obstacle() -> str | None:
    """What this machine lacks for int8 products; None: nothing."""
    has = cpu_capabilities()
    if not any(has.get(name) for name in ("avx512_vnni", "avx_vnni", "amx_int8")):
        return "this processor has no int8 instructions (VNNI)"
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or ""
    if limit.upper() in ("SSE41", "AVX", "AVX2", "AVX512_CORE"):  # sums of two products overflow without VNNI
        return f"ONEDNN_MAX_CPU_ISA={limit} keeps oneDNN from the int8 instructions (VNNI)"
    if not (torch.backends.mkldnn.is_available() and hasattr(_OPS, _PRODUCT) and hasattr(_OPS, _PACK)):
        return f"PyTorch {torch.__version__} has no int8 products by oneDNN; install a build for x86-64"
    return None


class MyBertInt8Linear(nn.Module):
    """A linear layer in int8 with `O` outputs, `I` inputs and `K` outliers. It has no gradients.

    Attributes:
        weight: (O, I) int8, zeros for outliers.
        weight_scale: (O,).
        shift, factor: (I,) the input of the int8 product is x · factor + shift; both are 0 for outliers.
        zero_point: () int32: 0 if no input of the int8 product is negative, else 128.
        bias: (O,).
        outliers: (K,) int64, the features in float32; None without any.
        outlier_weight: (O, K) or None.
        output_dtype: None: that of the input.
    """

    output_dtype: torch.dtype | None = None

    def __init__(self, in_features: int, out_features: int, outliers: int = 0):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Buffer(torch.zeros(out_features, in_features, dtype=torch.int8))
        self.weight_scale = nn.Buffer(torch.zeros(out_features))
        self.shift = nn.Buffer(torch.zeros(in_features))
        self.factor = nn.Buffer(torch.zeros(in_features))
        self.zero_point = nn.Buffer(torch.zeros((), dtype=torch.int32))
        self.bias = nn.Buffer(torch.zeros(out_features))
        self.outliers = nn.Buffer(torch.zeros(outliers, dtype=torch.int64)) if outliers else None
        self.outlier_weight = nn.Buffer(torch.zeros(out_features, outliers)) if outliers else None
        self._packed: tuple[Any, ...] | None = None

    @torch.compiler.disable
    def forward(self, x: Tensor) -> Tensor:
        """(…, I) → (…, O).

        Raises:
            ValueError: the input is not on the CPU, or the scales are no longer in float32.
        """
        if self.weight_scale.dtype != torch.float32:
            raise ValueError(
                f"int8 weights have scales in float32, not {self.weight_scale.dtype}; load the model again and leave "
                "its data type as it is"
            )
        if x.device.type != "cpu":
            raise ValueError(f"int8 weights work on the CPU, and the input is on {x.device}; choose the device cpu")
        return _Int8Product.apply(x, self) if torch.is_grad_enabled() else self.product(x)

    def train(self, mode: bool = True) -> "MyBertInt8Linear":
        """As in torch; raises ValueError for training."""
        if mode:
            raise ValueError("int8 weights cannot be trained; train the checkpoint that this one was quantised from")
        return super().train(mode)

    def product(self, x: Tensor) -> Tensor:
        """`forward` without a check of the device and of gradients."""
        rows = x.reshape(-1, self.in_features).float()
        x8, scale = self.quantise(rows)
        packed, zeros, zero_point = self._prepared()
        scales = 1.0, zero_point, packed, self.weight_scale, zeros
        y = getattr(_OPS, _PRODUCT)(x8, *scales, None, 1.0, 0, torch.float32, "none", [], "none")
        others: Tensor = self.bias
        if self.outliers is not None and self.outlier_weight is not None:
            others = nn.functional.linear(rows.index_select(1, self.outliers), self.outlier_weight, self.bias)
        y = torch.addcmul(others, y, scale, out=y)
        return y.to(self.output_dtype or x.dtype).view(*x.shape[:-1], self.out_features)

    def quantise(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(T, I) → uint8 (T, I), and the scale of each row (T, 1)."""
        zero_point = self._prepared()[2]
        z = torch.addcmul(self.shift, rows, self.factor)
        largest = (z.abs() if zero_point else z).amax(-1, keepdim=True)
        scale = largest.div_(127 if zero_point else 255).clamp_(min=1e-12)
        torch.addcmul(rows.new_full((self.in_features,), _MAGIC + zero_point), z, scale.reciprocal(), out=z)
        return z.view(torch.int32).to(torch.uint8), scale  # the lowest byte

    def _prepared(self) -> tuple[Any, ...]:
        """The weights in oneDNN's layout, zero points of the weights, and the zero point of the inputs."""
        version = (self.weight.data_ptr(), self.weight._version if not self.weight.is_inference() else 0)
        if self._packed is None or self._packed[0] != version:
            if problem := int8_obstacle():
                raise ValueError(f"{problem}; use the checkpoint that this one was quantised from")
            packed = getattr(_OPS, _PACK)(self.weight, None)
            zeros = torch.zeros(self.out_features, dtype=torch.int32)
            self._packed = version, packed, zeros, int(self.zero_point)
        return self._packed[1:]

    def __getstate__(self) -> dict[str, Any]:
        """Without the packed weights, which neither pickle nor deepcopy can copy."""
        return {**self.__dict__, "_packed": None}


class _Int8Product(torch.autograd.Function):
    """The product outside of `no_grad`, with an error in place of gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: MyBertInt8Linear) -> Tensor:
        return module.product(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise RuntimeError("int8 weights have no gradients; use the checkpoint that this one was quantised from")


class MyBertBfloat16Linear(nn.Linear):
    """`nn.Linear`, computed in bfloat16 on a CPU. The output is then in bfloat16."""

    def forward(self, input: Tensor) -> Tensor:
        """(…, I) → (…, O)."""
        if input.device.type != "cpu":
            return super().forward(input)
        x, weight = input.bfloat16(), self.weight.bfloat16()
        bias = None if self.bias is None else self.bias.bfloat16()
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return nn.functional.linear(x, weight, bias)
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [None], "")  # faster


def use_int8(encoder: Any, outliers: int) -> None:
    """Replaces the linear layers of a `MyBertEncoder` by those of an int8 model, with weights yet to be loaded.

    Raises:
        ValueError: this machine has no int8 products, or the other weights would not be float32.
    """
    if obstacle := int8_obstacle():
        raise ValueError(f"{obstacle}, which int8 weights need; use the checkpoint that this one was quantised from")
    if torch.get_default_dtype() != torch.float32:
        raise ValueError(f"int8 weights have scales in float32, not {torch.get_default_dtype()}; leave dtype out")
    for layer in encoder.layer:
        for parent, name, may_have_outliers in int8_products(layer):
            linear = getattr(parent, name)
            count = outliers if may_have_outliers else 0
            setattr(parent, name, MyBertInt8Linear(linear.in_features, linear.out_features, count))
        use_bfloat16_attention(layer)


def int8_products(layer: Any) -> list[tuple[nn.Module, str, bool]]:
    """The linear layers of a `MyBertLayer` that become int8, in the order of computation.

    Each as module, attribute, and whether it has outliers.
    """
    attention = layer.attention.self
    return [
        (attention, "query", False),
        (attention, "key", False),
        (layer.intermediate, "dense", False),
        (layer.output, "dense", True),
    ]


def count_int8(model: nn.Module) -> int:
    """Number of weights and biases of the int8 layers, as before they were quantised."""
    layers = (module for module in model.modules() if isinstance(module, MyBertInt8Linear))
    return sum(layer.weight.numel() + layer.bias.numel() for layer in layers)


def use_bfloat16_attention(layer: Any) -> None:
    """Computes attention in bfloat16, with the query and key products in int8, where that is faster than float32."""
    if not has_bfloat16_products():
        return
    attention = layer.attention.self
    for linear in (attention.value, layer.attention.output.dense):
        linear.__class__ = MyBertBfloat16Linear
    attention.query.output_dtype = attention.key.output_dtype = torch.bfloat16
