"""bertviz: head view of the attentions."""

import json
import re

from bertviz import head_view
from transformers import AutoModel, AutoTokenizer

PACKAGES = ["bertviz==1.4.1"]
REMARK = 'Load the model with `attn_implementation="eager"`, as for BERT.'


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    settings = {"attn_implementation": "eager", "output_attentions": True}
    model = AutoModel.from_pretrained(folder, trust_remote_code=remote, **settings).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(texts[0], return_tensors="pt")
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    page = head_view(model(**inputs).attentions, tokens, html_action="return").data
    return [json.loads(found) for found in re.findall(r'"attn": (\[.*?\]), "left_text"', page)]
