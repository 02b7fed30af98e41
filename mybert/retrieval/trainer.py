"""sentence-transformers' trainers with the checkpoints, logs and exact resume of `RunTrainer`."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss, ListNetLoss
from sentence_transformers.cross_encoder.trainer import CrossEncoderTrainer
from sentence_transformers.cross_encoder.training_args import CrossEncoderTrainingArguments
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
from mybert.common.quantities import counted
from mybert.finetuning.arguments import FinetuningArguments
from mybert.retrieval.balance import encoders_of
from mybert.retrieval.pairs import Pairs
from mybert.retrieval.ranking import reranked, score_ranking
from mybert.retrieval.words import Words, best_rows
from mybert.retrieval.words_channel import beginnings
from mybert.training.objective import Objective
from mybert.training.trainer import RunTrainer

AT_ONCE = 64
"""Rows of a batch whose gradients are computed together; larger batches cache the gradients of vectors."""
METRIC = "ndcg@10"
_SURE = 8.0
"""The label of the best answers beside 0 of others, as logits: together they have nearly all of the probability."""


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


def with_fields_of(kind: type[FinetuningArguments], given: FinetuningArguments, **changes: Any) -> FinetuningArguments:
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
        tables["scored"] = Dataset.from_list([pair._asdict() for pair in pairs.scored])
    return DatasetDict(tables)


def retrieval_loss(
    model: SentenceTransformer, pairs: Pairs, batch_size: int, dimensions: Sequence[int]
) -> dict[str, nn.Module]:
    """The loss of each data set: contrastive over the passages of a batch, CoSENT for scores."""
    cached: dict[str, Any] = {"mini_batch_size": AT_ONCE} if batch_size > AT_ONCE else {}
    losses: dict[str, nn.Module] = {}
    if pairs.pairs:
        kind = CachedMultipleNegativesRankingLoss if cached else MultipleNegativesRankingLoss
        losses["pairs"] = kind(model, **cached)
    if pairs.scored:
        losses["scored"] = CoSENTLoss(model)
    if dimensions:
        width = model.get_embedding_dimension()
        assert width is not None  # the pooling has one
        sizes = sorted({width, *dimensions}, reverse=True)
        losses = {name: MatryoshkaLoss(model, loss, sizes) for name, loss in losses.items()}
    return losses


def check_reranking(pairs: Pairs) -> None:
    """Raises a UserError for pairs of which a reranker learns nothing."""
    if alone := sum(not pair.negatives for pair in pairs.pairs):
        raise UserError(
            f"{counted(alone, 'row')} without a passage that does not answer the query; give negatives, or leave "
            "out --hard-negatives 0"
        )
    if pairs.scored and (top := max(pair.score for pair in pairs.scored)) <= 0:
        raise UserError(f"the highest score is {top:g}, so that no passage answers its query; give scores above 0")


def reranking_data(pairs: Pairs, tokens: int) -> DatasetDict:
    """Of pairs the columns query, passages and labels: the passage that answers, then its negatives, whose label is 0.

    The label of an answer is `_SURE`, times its grade, if it has one, divided by the highest. Of scored pairs the
    columns query, passage and label, the score divided by the highest.

    Args:
        tokens: what the model reads; of more, the tokenizers library stores the truncated tokens of a pair in every
            combination of their parts, which takes gigabytes for a giant query and a giant passage.
    """
    tables = {}
    if chosen := pairs.pairs:
        given = [pairs.grades.get((pair.query, pair.positive)) for pair in chosen]
        highest = max((grade for grade in given if grade), default=1)
        tables["pairs"] = Dataset.from_dict(
            {
                "query": beginnings([pair.query for pair in chosen], tokens),
                "passages": [beginnings([pair.positive, *pair.negatives], tokens) for pair in chosen],
                "labels": [
                    [_SURE * (grade or highest) / highest] + [0.0] * len(pair.negatives)
                    for pair, grade in zip(chosen, given, strict=True)
                ],
            }
        )
    if scored := pairs.scored:
        top = max(pair.score for pair in scored)
        tables["scored"] = Dataset.from_dict(
            {
                "query": beginnings([pair.query for pair in scored], tokens),
                "passage": beginnings([pair.passage for pair in scored], tokens),
                "label": [min(max(pair.score / top, 0.0), 1.0) for pair in scored],
            }
        )
    return DatasetDict(tables)


def reranking_loss(model: CrossEncoder, data: DatasetDict) -> dict[str, nn.Module]:
    """The loss of each data set: cross-entropy over the passages of a query (Gao, Dai and Callan 2021, LCE), and
    binary cross-entropy for scores, in which relevant and other passages have the same weight.
    """
    losses: dict[str, nn.Module] = {}
    if "pairs" in data:
        losses["pairs"] = ListNetLoss(model, mini_batch_size=-1)  # all passages at once
    if "scored" in data:
        total, relevant = len(data["scored"]), max(sum(data["scored"]["label"]), 1.0)
        weight = torch.tensor(max((total - relevant) / relevant, 1.0))
        losses["scored"] = BinaryCrossEntropyLoss(model, pos_weight=weight)
    return losses


class HeldOutRetrieval(BaseEvaluator):
    """nDCG@10, MRR@10, recall@100 and MAP of held-out queries.

    Attributes:
        of_queries: (queries,) nDCG@10 of each, from the last call.
    """

    def __init__(self, relevant: dict[str, dict[str, int]], passages: Sequence[str], batch_size: int):
        super().__init__()
        self._relevant, self._passages, self._batch_size = relevant, list(passages), batch_size

    def __call__(self, model: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
        queries, passages = encoders_of(model, self._batch_size)
        cosines = queries([*self._relevant]) @ passages(self._passages).T
        scores = [_scores(self._passages, *query) for query in zip(cosines, self._relevant.values(), strict=True)]
        self.of_queries = np.array([one[METRIC] for one in scores])
        metrics = _means(scores, (METRIC, "mrr@10", "recall@100", "map"))
        self.store_metrics_in_model_card_data(model, metrics)
        return metrics


class HeldOutReranking(BaseEvaluator):
    """nDCG@10, MRR@10 and MAP of the passages that BM25 finds for held-out queries, in the order of `reranked`.

    Attributes:
        of_queries: (queries,) nDCG@10 of each, from the last call.
        beside: the same for "bm25", the order before, and for "alone", that of the model without BM25.
    """

    def __init__(self, relevant: dict[str, dict[str, int]], passages: Sequence[str], count: int, batch_size: int):
        super().__init__()
        self._relevant, self._batch_size = relevant, batch_size
        words = Words.of(passages)
        by_words = [words.scores(query) for query in relevant]
        rows = [best_rows(scores, count) for scores in by_words]
        self._texts = [[passages[row] for row in best.tolist()] for best in rows]
        self._first = [scores[best] for scores, best in zip(by_words, rows, strict=True)]

    def __call__(self, model: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
        queries = beginnings([*self._relevant], model.max_seq_length)
        passages = [beginnings(texts, model.max_seq_length) for texts in self._texts]
        pairs = [(query, text) for query, texts in zip(queries, passages, strict=True) for text in texts]
        options = {"batch_size": self._batch_size, "activation_fn": nn.Identity(), "show_progress_bar": False}
        logits = np.split(model.predict(pairs, **options), np.cumsum([len(texts) for texts in self._texts])[:-1])
        orders = {"bm25": self._first, "alone": logits, "both": list(map(reranked, self._first, logits))}
        metrics = {
            name: list(map(_scores, self._texts, scores, self._relevant.values())) for name, scores in orders.items()
        }
        of_queries = {name: np.array([one[METRIC] for one in scores]) for name, scores in metrics.items()}
        self.of_queries, self.beside = of_queries.pop("both"), of_queries
        return _means(metrics["both"], (METRIC, "mrr@10", "map"))


def _scores(texts: Sequence[str], scores: np.ndarray, grades: Mapping[str, int]) -> dict[str, float]:
    """The metrics of a query whose passages are sorted by their scores."""
    return score_ranking([texts[place] for place in np.argsort(-scores, kind="stable")], grades)


def _means(scores: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, float]:
    return {name: float(np.mean([one[name] for one in scores])) for name in names}
