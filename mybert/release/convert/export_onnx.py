"""MyBERT → ONNX by torch's exporter, in float32 and with weights of 8 bits; checked in ONNX Runtime."""

import contextlib
import importlib.util
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from modeling_mybert import MyBertPreTrainedModel
from mybert.common.errors import UserError
from mybert.common.onnx_session import onnx_outputs
from mybert.release.convert.compare_models import (
    largest_differences,
    outputs_of,
    ragged_batches,
    relative_errors,
)
from mybert.release.convert.export_bert import bert_config

ONNX_FILE = "model.onnx"
INT8_FILE = "model_int8.onnx"
_PACKAGES = ("onnx", "onnxruntime", "onnxscript")


def check_onnx_packages() -> None:
    """
    Raises:
        UserError: one of the optional packages is not installed.
    """
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"--to onnx needs {' and '.join(missing)}; pip install '.[onnx]' in MyBERT's folder")


def write_onnx(model: MyBertPreTrainedModel, folder: Path) -> dict[str, float]:
    """Writes `model.onnx`, of any batch size and length, and the configuration that its readers look for.

    Inputs are `input_ids`, `attention_mask` and `token_type_ids`, all needed; outputs are named as the model's own,
    such as `last_hidden_state` and `pooler_output`, or `logits`. At padding they hold numbers without a meaning.

    Returns:
        Name and largest difference of each output, computed in ONNX Runtime on ragged batches.

    Raises:
        UserError: the model generates text, for which one graph is not enough.
    """
    if getattr(model.config, "is_decoder", False):
        raise UserError(f"{type(model).__name__} generates text with a cache, which --to onnx does not export")
    model = model.float().eval()
    example = next(batch for batch in ragged_batches(model) if min(batch["input_ids"].shape) > 1)
    axes = dict(
        enumerate(("batch", "sequence") if example["input_ids"].dim() == 2 else ("batch", "choice", "sequence"))
    )
    with _quietly():
        program = torch.onnx.export(
            model,
            kwargs=example,
            dynamo=True,
            dynamic_shapes=dict.fromkeys(example, axes),
            output_names=list(outputs_of(model, example)),
            verbose=False,
        )
    program.save(folder / ONNX_FILE)
    bert_config(model).save_pretrained(folder)
    return largest_differences(lambda x: outputs_of(model, x), onnx_outputs(folder / ONNX_FILE), ragged_batches(model))


def write_int8(model: MyBertPreTrainedModel, folder: Path) -> dict[str, float]:
    """Writes `model_int8.onnx` from the `model.onnx` in `folder`.

    Weights are rounded to 8 bits for each output channel apart, and to 7 of them, since processors without VNNI add
    up products of 8 bits in 16 and overflow; activations are rounded as they come, a scale for each batch.

    Returns:
        Name and relative error of each output.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(folder / ONNX_FILE)
    del graph.graph.value_info[:]  # shapes of weights that quantisation transposes
    with _quietly():
        quantize_dynamic(graph, folder / INT8_FILE, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)
    return relative_errors(lambda x: outputs_of(model, x), onnx_outputs(folder / INT8_FILE), ragged_batches(model))


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Exporter and quantiser talk about operators of torchvision, names of axes, and steps they would like to see."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
