"""Ray Serve: a pipeline as a deployment."""

import contextlib

import ray
from ray import serve

PACKAGES = ["ray[train,serve]==2.60.0"]
MODEL = "BertForSequenceClassification"


@serve.deployment
class Classifier:
    def __init__(self, folder: str, remote: bool):
        with contextlib.suppress(ImportError):
            import modeling_mybert  # noqa: F401 - registers itself where it is installed
        from transformers import pipeline

        self.classify = pipeline("text-classification", folder, trust_remote_code=remote, top_k=None, device="cpu")

    def __call__(self, texts: list[str]) -> list[list[float]]:
        return [[entry["score"] for entry in sorted(row, key=lambda x: x["label"])] for row in self.classify(texts)]


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    ray.init(address="local", num_cpus=3, include_dashboard=False)
    handle = serve.run(Classifier.bind(folder, remote))
    scores = handle.remote(texts).result()
    serve.shutdown()
    ray.shutdown()
    return [scores]
