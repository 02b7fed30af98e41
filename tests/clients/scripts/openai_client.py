"""openai: embeddings of `mybert serve`."""

from openai import OpenAI

PACKAGES = ["openai"]
READS = "service"


def outputs(address: str, texts: list[str], remote: bool) -> list:
    client = OpenAI(base_url=f"{address}/v1", api_key="none")
    return [[row.embedding for row in client.embeddings.create(model="model", input=texts).data]]
