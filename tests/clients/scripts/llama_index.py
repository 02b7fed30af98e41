"""LlamaIndex: HuggingFaceEmbedding."""

from llama_index.embeddings.huggingface import HuggingFaceEmbedding

PACKAGES = ["llama-index-embeddings-huggingface==0.8.0"]


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = HuggingFaceEmbedding(folder, trust_remote_code=remote, device="cpu")
    return [model.get_text_embedding_batch(texts), model.get_query_embedding(texts[0])]
