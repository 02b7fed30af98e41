"""torchao: int8 weights."""

import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_
from transformers import AutoModel, AutoTokenizer

PACKAGES = ["torchao==0.18.0"]


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = AutoModel.from_pretrained(folder, trust_remote_code=remote).eval()
    inputs = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    quantize_(model, Int8WeightOnlyConfig())
    assert type(model.encoder.layer[0].intermediate.dense.weight) is not torch.nn.Parameter
    with torch.no_grad():
        return [model(**inputs).last_hidden_state * inputs["attention_mask"][..., None]]
