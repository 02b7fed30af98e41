"""OpenVINO: convert_model of the PyTorch model."""

import openvino
from transformers import AutoModel, AutoTokenizer

PACKAGES = ["openvino==2026.4.1"]


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=remote)
    model = AutoModel.from_pretrained(folder, trust_remote_code=remote).eval()
    graph = openvino.convert_model(model, example_input=dict(tokenizer(texts[:2], padding=True, return_tensors="pt")))
    compiled = openvino.Core().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    inputs = tokenizer(texts, padding=True, return_tensors="np")
    hidden, pooled = compiled(dict(inputs)).values()
    return [hidden * inputs["attention_mask"][..., None], pooled]
