"""KeyBERT."""

from keybert import KeyBERT
from sentence_transformers import SentenceTransformer

PACKAGES = ["keybert==0.9.0"]


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = KeyBERT(SentenceTransformer(folder, trust_remote_code=remote, device="cpu"))
    words = [sorted(found) for found in model.extract_keywords(texts, top_n=3)]
    return [[score for found in words for _, score in found], [ord(word[0]) for found in words for word, _ in found]]
