"""Haystack: embedders of sentence-transformers-haystack."""

from haystack import Document
from haystack.utils import ComponentDevice
from haystack_integrations.components.embedders.sentence_transformers import SentenceTransformersDocumentEmbedder

PACKAGES = ["sentence-transformers-haystack==2.0.0"]


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    device = ComponentDevice.from_str("cpu")
    embedder = SentenceTransformersDocumentEmbedder(model=folder, device=device, trust_remote_code=remote)
    if hasattr(embedder, "warm_up"):
        embedder.warm_up()
    found = embedder.run([Document(content=text) for text in texts])
    return [[document.embedding for document in found["documents"]]]
