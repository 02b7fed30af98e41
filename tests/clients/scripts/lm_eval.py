"""lm-evaluation-harness: log-likelihoods of the causal model."""

from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

PACKAGES = ["lm-eval==0.4.13"]
MODEL = "BertLMHeadModel"


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    settings = {"backend": "causal", "prefix_token_id": 101}  # [CLS]; the tokenizer has no token for a beginning
    model = HFLM(pretrained=folder, device="cpu", batch_size=4, trust_remote_code=remote, **settings)
    pairs = list(zip(texts, (f" {text}" for text in reversed(texts)), strict=True))
    requests = [Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(pairs)]
    return [model.loglikelihood(requests)]
