"""huggingface_hub: InferenceClient on `mybert serve`."""

from huggingface_hub import InferenceClient, constants

PACKAGES = ["huggingface_hub"]
READS = "service"


def outputs(address: str, texts: list[str], remote: bool) -> list:
    constants.HF_HUB_OFFLINE = False  # or it makes no requests
    return [InferenceClient(address).feature_extraction(texts, normalize=True)]
