"""FAISS: an index of the vectors of sentence-transformers."""

import faiss
from sentence_transformers import SentenceTransformer

PACKAGES = ["faiss-cpu==1.15.1", "sentence-transformers"]


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    vectors = SentenceTransformer(folder, trust_remote_code=remote, device="cpu").encode(texts)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return list(index.search(vectors, 3))
