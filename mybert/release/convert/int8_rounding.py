"""The int8 form of one linear layer, from its weights and inputs that it got on texts.

Shapes: `T` tokens, `I` inputs, `O` outputs, `K` outliers.
"""

import torch
from torch import Tensor, nn

from mybert.inference.cpu.int8 import MyBertInt8Linear

_EXPONENT = 0.57  # of the inputs' spread; the rest falls to the weights (Xiao et al. 2023)
_DAMPING = 0.01  # share of the mean of the diagonal (Frantar et al. 2022)
_BLOCK = 128  # columns whose errors are spread to the later ones together
_LEAST_SPREAD = 0.01  # share of the mean; a feature that is constant here may vary later


def int8_linear(linear: nn.Linear, inputs: Tensor, outliers: int = 0, least: float | None = None) -> MyBertInt8Linear:
    """The int8 form of a layer.

    Args:
        inputs: (T, I) float32.
        outliers: K.
        least: no input is ever smaller, and 0 and above are common; None: the inputs lie on both sides of their mean.
    """
    weight = linear.weight.detach().float()
    quantised = MyBertInt8Linear(linear.in_features, linear.out_features, outliers)
    centre = inputs.mean(0) if least is None else inputs.new_full((linear.in_features,), least)
    centred = (inputs - centre).abs_()
    largest_of_each = centred.amax(0).clamp(min=1e-30)
    spread = centred.div_(largest_of_each).pow_(8).mean(0).pow(1 / 8) * largest_of_each  # without overflow
    largest = (spread * weight.norm(dim=0)).argsort(descending=True)[:outliers].sort().values
    # more for small inputs with large weights
    least_spread = max(_LEAST_SPREAD * float(spread.mean()), 1e-5)
    factor = weight.abs().amax(0).clamp(min=1e-5) ** (1 - _EXPONENT) / spread.clamp(min=least_spread) ** _EXPONENT
    factor /= factor.mean()
    factor[largest] = 0
    quantised.zero_point.fill_(128 if least is None else 0)
    quantised.factor.copy_(factor)
    quantised.shift.copy_(-centre * factor)
    if quantised.outliers is not None and quantised.outlier_weight is not None:
        quantised.outliers.copy_(largest)
        quantised.outlier_weight.copy_(weight[:, largest])

    rounded, scale = quantised.quantise(inputs)
    rounded = rounded.float().sub_(int(quantised.zero_point)).mul_(scale)
    mean = rounded.mean(0)
    scaled = torch.where(factor > 0, weight / factor, 0)
    quantised.weight_scale.copy_(scaled.abs().amax(1).clamp(min=1e-12) / 127)
    integers = round_with_feedback(scaled, quantised.weight_scale, rounded.sub_(mean))
    quantised.weight.copy_(integers)
    # The mean of the output stays that of the float32 weights.
    exact = nn.functional.linear(torch.where(factor > 0, inputs.mean(0), 0), weight)
    quantised.bias.copy_(exact - (integers @ mean) * quantised.weight_scale)
    if linear.bias is not None:
        quantised.bias.add_(linear.bias.detach())
    return quantised


def round_with_feedback(weight: Tensor, scale: Tensor, inputs: Tensor) -> Tensor:
    """Rounds the weights so that their products with `inputs` change little (GPTQ, Frantar et al. 2022).

    Columns are rounded one after the other. The error of each is compensated in the columns that are not rounded yet.

    Args:
        weight: (O, I).
        scale: (O,) the step of each row.
        inputs: (T, I).

    Returns:
        (O, I) whole numbers from -127 to 127, float32.
    """
    moments = (inputs.T @ inputs).double()
    moments.diagonal().add_(_DAMPING * moments.diagonal().mean() + 1e-12)
    order = moments.diagonal().argsort(descending=True)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(moments[order][:, order]))
    feedback = torch.linalg.cholesky(inverse, upper=True).float()
    left, integers = (weight / scale[:, None])[:, order], torch.empty_like(weight)
    for start in range(0, weight.shape[1], _BLOCK):
        end = min(start + _BLOCK, weight.shape[1])
        errors = torch.empty(len(weight), end - start)
        for column in range(start, end):
            integers[:, column] = left[:, column].round().clamp(-127, 127)
            error = (left[:, column] - integers[:, column]) / feedback[column, column]
            left[:, column:end].addr_(error, feedback[column, column:end], alpha=-1)
            errors[:, column - start] = error
        left[:, end:].addmm_(errors, feedback[start:end, end:], alpha=-1)
    return integers[:, order.argsort()]
