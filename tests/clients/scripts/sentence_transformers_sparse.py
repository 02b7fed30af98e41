"""sentence-transformers: SparseEncoder (SPLADE) from the masked-language-model head."""

from sentence_transformers import SparseEncoder

PACKAGES = ["sentence-transformers==6.2.0", "datasets", "accelerate"]
MODEL = "BertForMaskedLM"


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = SparseEncoder(folder, trust_remote_code=remote, device="cpu")
    return [model.encode(texts).to_dense()]
