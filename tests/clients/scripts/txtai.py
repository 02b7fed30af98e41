"""txtai: an index of vectors, and search."""

from txtai import Embeddings

PACKAGES = ["txtai==9.14.0"]
REMARK = 'Pass `vectors={"trust_remote_code": True}` for remote code.'


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    index = Embeddings(path=folder, method="transformers", vectors={"trust_remote_code": remote}, gpu=False)
    index.index(texts)
    return [index.batchtransform(texts), [index.search(text, 1)[0] for text in texts]]
