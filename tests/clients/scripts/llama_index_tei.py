"""LlamaIndex: TextEmbeddingsInference on `mybert serve`."""

from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference

PACKAGES = ["llama-index-embeddings-text-embeddings-inference==0.6.0"]
READS = "service"


def outputs(address: str, texts: list[str], remote: bool) -> list:
    return [TextEmbeddingsInference(model_name="model", base_url=address).get_text_embedding_batch(texts)]
