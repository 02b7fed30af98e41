"""Fine-tuned models exported by `mybert export`."""

from pathlib import Path

import torch
from torch import Tensor

from modeling_mybert import MyBertConfig
from mybert.common.onnx_session import INT8_FILE, ONNX_FILE, onnx_outputs


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
