"""torch.export: the causal model, whose output has a cache."""

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.integrations.executorch import register_dynamic_cache_export_support

PACKAGES = ["torch"]
MODEL = "BertLMHeadModel"


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=remote).eval()
    inputs = dict(AutoTokenizer.from_pretrained(folder)(texts[:3], padding=True, return_tensors="pt"))
    register_dynamic_cache_export_support()  # MyBERT does this itself
    program = torch.export.export(model, (), inputs, strict=False)
    found = program.module()(**inputs)
    keys = found.past_key_values.layers[-1].keys
    mask = inputs["attention_mask"]
    return [(found.logits * mask[..., None]).detach(), (keys * mask[:, None, :, None]).detach()]
