"""model2vec: distillation to static vectors, and scores of texts with them."""

import re

from model2vec.distill import distill_from_model
from transformers import AutoModel, AutoTokenizer

PACKAGES = ["model2vec[distill,quantization]==0.10.0"]
REMARK = "Requires transformers < 5.4 for distillation; its static models need no transformers."


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = AutoModel.from_pretrained(folder, trust_remote_code=remote)
    words = set(re.findall(r"\w+", " ".join(texts).lower()))
    settings = {"pca_dims": None, "device": "cpu", "token_remove_pattern": rf"(?!({'|'.join(words)})$)"}
    static = distill_from_model(model, AutoTokenizer.from_pretrained(folder), **settings)
    vectors = static.encode(texts)
    return [static.embedding, vectors @ vectors.T]
