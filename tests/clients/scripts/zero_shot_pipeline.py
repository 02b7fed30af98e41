"""transformers: the pipeline zero-shot-classification."""

from transformers import pipeline

PACKAGES = ["transformers"]
MODEL = "BertForSequenceClassification"


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    classify = pipeline("zero-shot-classification", folder, trust_remote_code=remote, device="cpu")
    labels = ["music", "medicine", "trade"]
    found = [dict(zip(row["labels"], row["scores"], strict=True)) for row in classify(texts, labels)]
    return [[row[label] for row in found for label in labels]]
