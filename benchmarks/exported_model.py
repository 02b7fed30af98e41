"""BERT as a graph of ONNX, computed by ONNX Runtime or OpenVINO."""

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def exported(side: str, model: transformers.PreTrainedModel) -> tuple[Callable, list[str]]:
    """The model as a function from arrays to arrays, and the names of its outputs."""
    example = {name: torch.ones(2, 8, dtype=torch.long) for name in INPUTS}
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    names = list(model(**example).keys())
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(None):
        path = str(Path(scratch) / "bert.onnx")
        shapes = dict.fromkeys(example, axes)
        torch.onnx.export(model, kwargs=example, dynamo=True, dynamic_shapes=shapes, verbose=False).save(path)
        if side == "OpenVINO":
            from openvino import Core

            exact = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
            compiled = Core().compile_model(path, "CPU", exact)
            return lambda arrays: [compiled(arrays)[name] for name in compiled.outputs], names
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda arrays: session.run(None, arrays), names
