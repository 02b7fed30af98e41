"""ONNX Runtime sessions."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from mybert.common.errors import UserError, needing
from mybert.common.machine import threads

# In an exported folder; the places where transformers.js looks for its types fp32 and q8.
ONNX_FILE = "onnx/model.onnx"
INT8_FILE = "onnx/model_quantized.onnx"


def onnx_outputs(path: Path) -> Callable[[Mapping[str, Tensor]], dict[str, Tensor]]:
    """Loads an ONNX graph as a function from inputs to outputs by name; uses the CPU and torch's thread count."""
    with needing("onnx", str(path)):
        import onnxruntime
    threads.share()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        raise UserError(f"{path} cannot be read ({str(error).splitlines()[0]}); export it again") from error
    names = [output.name for output in session.get_outputs()]

    def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        arrays = session.run(names, {name: tensor.numpy() for name, tensor in inputs.items()})
        return {name: torch.from_numpy(array) for name, array in zip(names, arrays, strict=True)}

    return run
