"""BERTopic."""

from bertopic import BERTopic
from bertopic.dimensionality import BaseDimensionalityReduction
from sentence_transformers import SentenceTransformer
from sklearn.cluster import KMeans

PACKAGES = ["bertopic==0.17.4"]


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    model = BERTopic(
        embedding_model=SentenceTransformer(folder, trust_remote_code=remote, device="cpu"),
        umap_model=BaseDimensionalityReduction(),
        hdbscan_model=KMeans(2, random_state=0),
    )
    topics, _ = model.fit_transform(texts)
    return [topics, model.topic_embeddings_]
