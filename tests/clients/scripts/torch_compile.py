"""torch.compile: training and inference."""

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

PACKAGES = ["torch"]
MODEL = "BertForSequenceClassification"


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=remote)
    compiled = torch.compile(model, backend="aot_eager", dynamic=True)
    inputs = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    compiled(**inputs, labels=torch.arange(len(texts)) % 3).loss.backward()
    gradients = [model.classifier.weight.grad, model.bert.encoder.layer[0].intermediate.dense.weight.grad]
    with torch.no_grad():
        return [compiled.eval()(**inputs).logits, *gradients]
