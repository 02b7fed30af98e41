"""AdapterHub's adapters: a bottleneck adapter."""

import adapters
import torch
from transformers import AutoModel, AutoTokenizer

PACKAGES = ["adapters==1.3.0"]
REMARK = "Requires transformers 4.57 ([adapters #834](https://github.com/adapter-hub/adapters/issues/834))."


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = AutoModel.from_pretrained(folder, trust_remote_code=remote)
    adapters.init(model)
    model.add_adapter("task", config="seq_bn")
    model.set_active_adapters("task")
    inputs = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        return [model.eval()(**inputs).last_hidden_state * inputs["attention_mask"][..., None]]
