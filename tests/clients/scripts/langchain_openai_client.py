"""LangChain: OpenAIEmbeddings on `mybert serve`."""

from langchain_openai import OpenAIEmbeddings

PACKAGES = ["langchain-openai==1.7.4"]
READS = "service"
REMARK = "Needs `check_embedding_ctx_length=False`: otherwise it sends token ids of an OpenAI model."


def outputs(address: str, texts: list[str], remote: bool) -> list:
    settings = {"base_url": f"{address}/v1", "api_key": "none", "check_embedding_ctx_length": False}
    return [OpenAIEmbeddings(model="model", **settings).embed_documents(texts)]
