"""torch.export: the encoder."""

import torch
from transformers import AutoModel, AutoTokenizer

PACKAGES = ["torch"]


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = AutoModel.from_pretrained(folder, trust_remote_code=remote).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence", max=512)}
    example = dict(tokenizer(texts[:3], padding=True, return_tensors="pt"))
    program = torch.export.export(model, (), example, dynamic_shapes=dict.fromkeys(example, axes), strict=False)
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    found = program.module()(**inputs)
    return [(found.last_hidden_state * inputs["attention_mask"][..., None]).detach(), found.pooler_output.detach()]
