"""Training of retrievers and rerankers."""
