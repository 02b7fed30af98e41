"""sentence-transformers' trainers with the checkpoints, logs and exact resume of `RunTrainer`."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from sentence_transformers.cross_encoder.trainer import CrossEncoderTrainer
from sentence_transformers.cross_encoder.training_args import CrossEncoderTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    CoSENTLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.sentence_transformer.trainer import SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.training_args import (
    BatchSamplers,
    SentenceTransformerTrainingArguments,
)
from torch import nn

from mybert.common.errors import UserError
from mybert.finetuning.arguments import FinetuningArguments
from mybert.retrieval.pairs import Pairs
from mybert.retrieval.ranking import score_ranking
from mybert.training.objective import Objective
from mybert.training.trainer import RunTrainer

AT_ONCE = 64
"""Rows of a batch whose gradients are computed together; larger batches cache the gradients of vectors."""
METRIC = "ndcg@10"


class MeanOverRows(Objective):
    """Losses that are means over the rows of a batch, so that no step is divided by its labels."""

    def begin(self, trainer: RunTrainer) -> None:
        super().begin(trainer)
        trainer.model_accepts_loss_kwargs = False


class RetrievalTrainer(RunTrainer, SentenceTransformerTrainer):
    """Trains a `SentenceTransformer`."""


class RerankingTrainer(RunTrainer, CrossEncoderTrainer):
    """Trains a `CrossEncoder`."""


@dataclasses.dataclass
class RetrievalArguments(FinetuningArguments, SentenceTransformerTrainingArguments):
    """Arguments of `RetrievalTrainer`. No batch has equal texts: an equal passage would be a wrong negative."""

    batch_sampler: BatchSamplers = BatchSamplers.NO_DUPLICATES


@dataclasses.dataclass
class RerankingArguments(FinetuningArguments, CrossEncoderTrainingArguments):
    """Arguments of `RerankingTrainer`."""


def with_fields_of(kind: type[FinetuningArguments], given: FinetuningArguments, **changes) -> FinetuningArguments:
    """`given` as arguments of another kind."""
    names = (field.name for field in dataclasses.fields(FinetuningArguments) if field.init)
    chosen_later = {"metric_for_best_model": None, "greater_is_better": None}  # transformers has filled them in
    return kind(**{name: getattr(given, name) for name in names} | chosen_later | changes)


def retrieval_data(pairs: Pairs) -> DatasetDict:
    """Columns query, positive and negative_1 …; of scored pairs query, passage and score."""
    tables = {}
    if chosen := pairs.pairs:
        columns = {"query": [pair.query for pair in chosen], "positive": [pair.positive for pair in chosen]}
        for number in range(min(len(pair.negatives) for pair in chosen)):
            columns[f"negative_{number + 1}"] = [pair.negatives[number] for pair in chosen]
        tables["pairs"] = Dataset.from_dict(columns)
    if pairs.scored:
        names = ("query", "passage", "score")
        tables["scored"] = Dataset.from_dict(dict(zip(names, map(list, zip(*pairs.scored, strict=True)), strict=True)))
    return DatasetDict(tables)


def retrieval_loss(
    model: SentenceTransformer, pairs: Pairs, batch_size: int, dimensions: Sequence[int]
) -> dict[str, nn.Module]:
    """The loss of each data set: contrastive over the passages of a batch, CoSENT for scores."""
    cached = {"mini_batch_size": AT_ONCE} if batch_size > AT_ONCE else {}
    losses: dict[str, nn.Module] = {}
    if pairs.pairs:
        kind = CachedMultipleNegativesRankingLoss if cached else MultipleNegativesRankingLoss
        losses["pairs"] = kind(model, **cached)
    if pairs.scored:
        losses["scored"] = CoSENTLoss(model)
    if dimensions:
        sizes = sorted({model.get_embedding_dimension(), *dimensions}, reverse=True)
        losses = {name: MatryoshkaLoss(model, loss, sizes) for name, loss in losses.items()}
    return losses


def reranking_data(pairs: Pairs) -> Dataset:
    """Columns query, passage and label: a grade or score divided by the highest, and 0 for negatives."""
    rows = [(p.query, p.positive, float(pairs.grades.get((p.query, p.positive), 1))) for p in pairs.pairs]
    highest = max((label for *_, label in rows), default=1.0)
    rows = [(query, passage, label / highest) for query, passage, label in rows]
    rows += dict.fromkeys((pair.query, negative, 0.0) for pair in pairs.pairs for negative in pair.negatives)
    if not pairs.scored and all(label > 0 for *_, label in rows):
        raise UserError("no row has a passage that does not answer its query; give negatives, or more hard negatives")
    top = max((pair.score for pair in pairs.scored), default=1.0)
    if top <= 0:
        raise UserError(f"the highest score is {top:g}, so that no passage answers its query; give scores above 0")
    rows += [(pair.query, pair.passage, min(max(pair.score / top, 0.0), 1.0)) for pair in pairs.scored]
    return Dataset.from_dict(dict(zip(("query", "passage", "label"), map(list, zip(*rows, strict=True)), strict=True)))


def reranking_loss(model: CrossEncoder, data: Dataset) -> nn.Module:
    """Binary cross-entropy, in which relevant and other passages have the same weight."""
    total, relevant = len(data), max(sum(data["label"]), 1.0)
    return BinaryCrossEntropyLoss(model, pos_weight=torch.tensor(max((total - relevant) / relevant, 1.0)))


class HeldOutRetrieval(InformationRetrievalEvaluator):
    """nDCG@10, MRR@10, recall@100 and MAP of held-out queries, under these names.

    Attributes:
        of_queries: (queries,) nDCG@10 of each, from the last call.
    """

    def __init__(self, relevant: dict[str, dict[str, int]], passages: Sequence[str], batch_size: int):
        corpus = {str(number): text for number, text in enumerate(passages)}
        number_of = {text: number for number, text in corpus.items()}
        super().__init__(
            {str(number): text for number, text in enumerate(relevant)},
            corpus,
            {str(i): {number_of[text] for text in answers} for i, answers in enumerate(relevant.values())},
            accuracy_at_k=[1],
            precision_recall_at_k=[100],
            batch_size=batch_size,
            write_csv=False,
        )

    def __call__(self, model: SentenceTransformer, *args, **kwargs) -> dict[str, float]:
        scores = super().__call__(model, None)
        named = {name.rpartition("_")[2]: float(value) for name, value in scores.items()}
        return {name: named[name] for name in (METRIC, "mrr@10", "recall@100", "map@100")}

    def compute_metrics(self, queries_result_list: list[list[dict[str, Any]]]) -> dict[str, Any]:
        scores = []
        for key, hits in zip(self.queries_ids, queries_result_list, strict=True):
            best = sorted(hits, key=lambda hit: (-hit["score"], hit["corpus_id"]))
            grades = dict.fromkeys(self.relevant_docs[key], 1)
            scores.append(score_ranking([hit["corpus_id"] for hit in best], grades)[METRIC])
        self.of_queries = np.array(scores)
        return super().compute_metrics(queries_result_list)


class HeldOutReranking(CrossEncoderRerankingEvaluator):
    """nDCG@10, MRR@10 and MAP of the passages retrieved for held-out queries, reranked.

    Attributes:
        of_queries: (queries,) nDCG@10 of each, from the last call; first 0 for those of which nothing was retrieved.
    """

    def __init__(self, relevant: dict[str, dict[str, int]], retrieved: dict[str, list[str]], batch_size: int):
        samples = [
            {"query": query, "positive": list(answers), "documents": retrieved[query]}
            for query, answers in relevant.items()
        ]
        super().__init__(samples, at_k=10, always_rerank_positives=False, batch_size=batch_size, write_csv=False)

    def __call__(self, model: CrossEncoder, *args, **kwargs) -> dict[str, float]:
        self._computed: list[float] = []
        scores = super().__call__(model, None)
        reranked = self._computed[len(self._computed) // 2 :]  # those before are of the order of BM25
        self.of_queries = np.array([0.0] * (len(self.samples) - len(reranked)) + reranked)
        return {name.rpartition("_")[2]: float(value) for name, value in scores.items() if "base_" not in name}

    def compute_metrics(self, *given: Any) -> tuple[float, float, float]:
        scores = super().compute_metrics(*given)
        self._computed.append(float(scores[1]))
        return scores
