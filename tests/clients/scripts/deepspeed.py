"""DeepSpeed: ZeRO stage 2 on the CPU."""

import os

import deepspeed
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

PACKAGES = ["deepspeed==0.19.8"]
MODEL = "BertForSequenceClassification"


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533"}
    os.environ |= {**alone, "DS_ACCELERATOR": "cpu"}
    deepspeed.init_distributed("gloo")
    model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=remote)
    settings = {"train_micro_batch_size_per_gpu": len(texts), "zero_optimization": {"stage": 2}}
    settings |= {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3), config=settings
    )
    inputs = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    losses = []
    for _ in range(3):
        loss = engine(**inputs, labels=torch.arange(len(texts)) % 3).loss
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return [losses]
