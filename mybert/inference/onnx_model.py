"""Models exported by `mybert export`, in ONNX Runtime."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from modeling_mybert import MyBertConfig
from mybert.common.errors import UserError, needing
from mybert.common.machine import threads

# In an exported folder; the places where transformers.js looks for its types fp32 and q8.
ONNX_FILE = "onnx/model.onnx"
INT8_FILE = "onnx/model_quantized.onnx"


def onnx_file(name: str) -> Path | None:
    """The ONNX graph of a folder without other weights; None for other checkpoints."""
    folder = Path(name)
    has_weights = any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))
    return (
        None
        if has_weights
        else next((folder / file for file in (ONNX_FILE, INT8_FILE) if (folder / file).is_file()), None)
    )


class OnnxModel:
    """An ONNX graph that is called like a model of transformers, on the CPU."""

    device = torch.device("cpu")

    def __init__(self, path: Path, config: MyBertConfig):
        self.config = config
        self._outputs = onnx_outputs(path)

    def __call__(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> dict[str, Tensor]:
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        return self._outputs(
            {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": types.contiguous()}
        )


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
