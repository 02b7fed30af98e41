"""model2vec: distillation to static vectors."""

from model2vec.distill import distill_from_model
from transformers import AutoModel, AutoTokenizer

PACKAGES = ["model2vec[distill,quantization]==0.10.0"]
REMARK = "Requires transformers < 5.4 for distillation; its static models need no transformers."


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = AutoModel.from_pretrained(folder, trust_remote_code=remote)
    settings = {"pca_dims": None, "device": "cpu", "token_remove_pattern": r"[^a-e]"}  # a few hundred tokens
    return [distill_from_model(model, AutoTokenizer.from_pretrained(folder), **settings).embedding]
