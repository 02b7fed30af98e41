"""minicons: pseudo-log-likelihood."""

from minicons.scorer import MaskedLMScorer
from transformers import AutoModelForMaskedLM, AutoTokenizer

PACKAGES = ["minicons==0.3.39"]
MODEL = "BertForMaskedLM"
REMARK = "With transformers 5: `type(tokenizer).batch_encode_plus = type(tokenizer).__call__`, as for BERT."


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=remote)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    type(tokenizer).batch_encode_plus = type(tokenizer).__call__
    scorer = MaskedLMScorer(model, "cpu", tokenizer=tokenizer)
    return [scorer.sequence_score(texts, PLL_metric=metric) for metric in ("original", "within_word_l2r")]
