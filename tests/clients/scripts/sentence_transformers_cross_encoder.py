"""sentence-transformers: CrossEncoder."""

from sentence_transformers import CrossEncoder

PACKAGES = ["sentence-transformers==6.2.0", "datasets", "accelerate"]
MODEL = "BertForSequenceClassification"


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = CrossEncoder(folder, trust_remote_code=remote, device="cpu")
    return [model.predict(list(zip(texts, reversed(texts), strict=True)))]
