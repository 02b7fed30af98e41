"""transformers-interpret: SequenceClassificationExplainer."""

from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers_interpret import SequenceClassificationExplainer

PACKAGES = ["transformers-interpret==0.10.0"]
MODEL = "BertForSequenceClassification"


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=remote).eval()
    explain = SequenceClassificationExplainer(model, AutoTokenizer.from_pretrained(folder))
    return [[value for _, value in explain(text, index=1)] for text in texts[:2]]
