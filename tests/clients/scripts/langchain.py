"""LangChain: HuggingFaceEmbeddings of langchain-huggingface."""

from langchain_huggingface import HuggingFaceEmbeddings

PACKAGES = ["langchain-huggingface==1.2.3", "sentence-transformers"]


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = HuggingFaceEmbeddings(model_name=folder, model_kwargs={"trust_remote_code": remote, "device": "cpu"})
    return [model.embed_documents(texts), model.embed_query(texts[0])]
