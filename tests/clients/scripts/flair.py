"""flair: TransformerWordEmbeddings and TransformerDocumentEmbeddings."""

from flair.data import Sentence
from flair.embeddings import TransformerDocumentEmbeddings, TransformerWordEmbeddings

PACKAGES = ["flair==0.15.1"]
REMARK = "Requires transformers < 5 ([flair #3691](https://github.com/flairNLP/flair/issues/3691))."


def outputs(folder: str, texts: list[str], remote: bool) -> list:
    sentences = [Sentence(text) for text in texts]
    TransformerWordEmbeddings(folder, layers="all", layer_mean=True).embed(sentences)
    words = [token.embedding.numpy() for sentence in sentences for token in sentence]
    documents = [Sentence(text) for text in texts]
    TransformerDocumentEmbeddings(folder).embed(documents)
    return [words, [document.embedding.detach().numpy() for document in documents]]
