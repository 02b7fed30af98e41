"""bitsandbytes: loading in 8 and 4 bits on the CPU."""

import bitsandbytes
import torch
from transformers import AutoModel, AutoTokenizer, BitsAndBytesConfig

PACKAGES = ["bitsandbytes==0.50.2", "accelerate"]
REMARK = "In batches with padding, 8-bit outputs differ by the error of 8 bits: BERT's padding counts as tokens there."


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    # Where the processor can, 4-bit products are computed in bfloat16, whose rounding hides every smaller difference.
    bitsandbytes.nn.modules.has_avx512bf16 = lambda: False
    tokenizer = AutoTokenizer.from_pretrained(folder)
    batches, found = [tokenizer(text, return_tensors="pt") for text in texts[:2]], []
    for bits in ({"load_in_8bit": True}, {"load_in_4bit": True, "bnb_4bit_compute_dtype": torch.float32}):
        settings = {"quantization_config": BitsAndBytesConfig(**bits), "device_map": "cpu", "dtype": torch.float32}
        model = AutoModel.from_pretrained(folder, trust_remote_code=remote, **settings).eval()
        with torch.no_grad():
            found += [model(**batch).last_hidden_state.float() for batch in batches]
    return found
