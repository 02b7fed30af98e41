"""captum: LayerIntegratedGradients of the embeddings."""

import torch
from captum.attr import LayerIntegratedGradients
from transformers import AutoModelForSequenceClassification, AutoTokenizer

PACKAGES = ["captum==0.9.0"]
MODEL = "BertForSequenceClassification"


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=remote).eval()
    inputs = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    mask = inputs["attention_mask"]
    explain = LayerIntegratedGradients(lambda ids, mask: model(ids, mask).logits, model.bert.embeddings)
    baselines = torch.where(inputs["input_ids"] > 102, 0, inputs["input_ids"])
    found = explain.attribute(inputs["input_ids"], baselines, target=1, additional_forward_args=(mask,), n_steps=8)
    return [(found * mask[..., None]).detach()]
