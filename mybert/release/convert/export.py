"""`mybert export`: convert a checkpoint to ONNX in float32 and int8, and compare the outputs in ONNX Runtime."""

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig

from modeling_mybert import MyBertPreTrainedModel
from mybert.artifacts.staging import staged_folder
from mybert.common.errors import needing
from mybert.inference.checkpoint import open_checkpoint
from mybert.inference.onnx_model import INT8_FILE, ONNX_FILE, onnx_outputs
from mybert.release.convert.companions import finish, print_conversion, refuse_int8
from mybert.release.convert.compare_models import (
    largest_differences,
    outputs_of,
    ragged_batches,
    refuse_above,
    relative_errors,
)
from mybert.release.settings import ExportSettings

_STACK = "pkg.torch.onnx.stack_trace"  # of each node, with the folders of this machine


def export(settings: ExportSettings) -> Path:
    """Converts a checkpoint, compares the outputs on padded batches and prints the differences.

    Returns:
        The folder: weights, configuration, tokenizer if there is one, modules of a sentence-transformers checkpoint,
        and a manifest with the differences.

    Raises:
        UserError: the checkpoint or the output cannot be used, packages are missing, or the outputs differ by more
            than `tolerance`; the output is not written then.
    """
    with needing("onnx", "the export to ONNX"):
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    output = Path(settings.output)
    with staged_folder(output, overwrite=settings.overwrite, stage="export", inputs=[settings.model]) as folder:
        checkpoint = open_checkpoint(settings.model)
        refuse_int8(checkpoint)
        measured = {"differences": write_onnx(checkpoint.model, folder)}
        refuse_above(settings.tolerance, measured["differences"], "--tolerance")
        if settings.int8:
            measured["int8_errors"] = write_int8(checkpoint.model, folder)
            refuse_above(settings.int8_tolerance, measured["int8_errors"], "--int8-tolerance")
        finish(checkpoint, folder, settings, {"checkpoint": settings.model}, measured)
    names = {"differences": "largest difference", "int8_errors": "relative error of int8"}
    rows = [(f"{names[key]}, {name}", x) for key, values in measured.items() for name, x in values.items()]
    title = f"{settings.model} ({type(checkpoint.model).__name__}) to ONNX"
    print_conversion(title, checkpoint, rows)
    return output


def write_onnx(model: MyBertPreTrainedModel, folder: Path) -> dict[str, float]:
    """Writes `onnx/model.onnx` and config.json with the labels and task settings.

    The graph accepts any batch size and length. Its inputs are `input_ids`, `attention_mask` and `token_type_ids`;
    its outputs have the names of the model's outputs. Values at padding are undefined.

    Returns the largest difference of each output, computed in ONNX Runtime on padded batches.
    """
    model = model.float().eval()
    example = next(batch for batch in ragged_batches(model) if min(batch["input_ids"].shape) > 1)
    axes = ("batch", "sequence") if example["input_ids"].dim() == 2 else ("batch", "choice", "sequence")
    with _quiet():
        program: Any = torch.onnx.export(
            model,
            kwargs=example,
            dynamo=True,
            dynamic_shapes={name: dict(enumerate(axes)) for name in example},
            output_names=list(outputs_of(model, example)),
            verbose=False,
        )
    for graph in (program.model.graph, *program.model.functions.values()):
        for node in graph.all_nodes():
            node.metadata_props.pop(_STACK, None)
    (folder / ONNX_FILE).parent.mkdir(exist_ok=True)
    program.save(folder / ONNX_FILE)
    values = {**model.config.to_dict(), "architectures": [type(model).__name__.removeprefix("My")]}
    without_code = {key: x for key, x in values.items() if key not in ("auto_map", "custom_pipelines")}
    BertConfig(**without_code).save_pretrained(folder)  # transformers' own class saves no code beside it
    return largest_differences(lambda x: outputs_of(model, x), onnx_outputs(folder / ONNX_FILE), ragged_batches(model))


def write_int8(model: MyBertPreTrainedModel, folder: Path) -> dict[str, float]:
    """Quantises the `onnx/model.onnx` of `folder` dynamically to `onnx/model_quantized.onnx`; returns relative errors.

    Weights have one scale per output channel and use 7 of the 8 bits: processors without VNNI add products in 16
    bits, which would overflow. Activations have one scale per batch.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(folder / ONNX_FILE)
    del graph.graph.value_info[:]  # shapes of weights that quantisation transposes
    with _quiet():
        quantize_dynamic(graph, folder / INT8_FILE, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)
    return relative_errors(lambda x: outputs_of(model, x), onnx_outputs(folder / INT8_FILE), ragged_batches(model))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Mutes warnings of the exporter and the quantiser, which the user cannot act on."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
