"""PEFT: training of LoRA, IA3 and prompt tuning."""

import torch
from peft import IA3Config, LoraConfig, PromptTuningConfig, get_peft_model
from transformers import AutoModelForSequenceClassification, AutoTokenizer

PACKAGES = ["peft==0.21.2"]
MODEL = "BertForSequenceClassification"
METHODS = (
    LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"]),
    IA3Config(task_type="SEQ_CLS", target_modules=["key", "value", "dense"], feedforward_modules=["dense"]),
    PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=4),
)


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    inputs = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    labels, found = torch.arange(len(texts)) % 3, []
    for method in METHODS:
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=remote)
        if isinstance(method, PromptTuningConfig):
            method.num_layers, method.token_dim = 6, 384
        model = get_peft_model(model, method).train()
        optimizer = torch.optim.AdamW([x for x in model.parameters() if x.requires_grad], lr=1e-2)
        for _ in range(3):
            model(**inputs, labels=labels).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            found.append(model.eval()(**inputs).logits)
    return found
