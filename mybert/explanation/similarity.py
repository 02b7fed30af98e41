"""`Similarity`: an encoder as a task whose rows are pairs of texts and whose prediction is their cosine similarity."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from modeling_mybert import MyBertConfig
from mybert.common.errors import UserError
from mybert.embedding.embedder import Embedder
from mybert.embedding.settings import EncodingSettings
from mybert.inference.checkpoint import Checkpoint, explain_unreadable
from mybert.inference.checkpoint_tokenizer import check_max_length
from mybert.inference.predictor import Predictor
from mybert.inference.sentence_modules import MODULES, TextVectors, module_entries
from mybert.inference.task_checkpoint import Finetuned
from mybert.tasks import task_of_architecture
from mybert.tasks.base import Prediction
from mybert.tasks.features import CUT, ROW, map_rows
from mybert.tasks.options import TextClassificationOptions
from mybert.tasks.settings import PredictorSettings
from mybert.tasks.text_classification import TextClassification


class Similarity(TextClassification):
    """The cosine of the vectors of two texts, as `Embedder` computes them."""

    name = "similarity"

    def features(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase, training: bool) -> Dataset:
        """Two features for each row, one for each text."""

        def encode(batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
            texts = [text for pair in zip(batch["text"], batch["text_pair"], strict=True) for text in pair]
            encoded = tokenizer(texts, truncation=True, max_length=self.options.max_length, split_special_tokens=True)
            cut = [bool(encoding.overflowing) for encoding in encoded.encodings]
            return {**encoded, ROW: [index for index in indices for _ in range(2)], CUT: cut}

        return map_rows(rows, encode)

    def decode(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> list[Prediction]:
        """`similarity`, from -1 to 1."""
        unit = np.array(logits, dtype=np.float64).reshape(len(rows), 2, -1)
        unit /= np.linalg.norm(unit, axis=2, keepdims=True)
        return [{"similarity": one} for one in (unit[:, 0] * unit[:, 1]).sum(1).tolist()]


class SimilarityPredictor(Predictor):
    """A `Predictor` for an encoder; see `Similarity`. `embedder` has the same model."""

    def __init__(self, settings: PredictorSettings, checkpoint: Checkpoint | None = None):
        self._checkpoint = checkpoint
        super().__init__(settings)

    def _load(self, settings: PredictorSettings) -> Finetuned:
        encoding = EncodingSettings(
            settings.model, long_texts="truncate", device=settings.device, dtype=settings.dtype
        )
        self.embedder = embedder = Embedder(encoding, checkpoint=self._checkpoint)
        embedder.check_pooling()
        if embedder.default_prompt or embedder.modules.lower_case:
            raise UserError(
                f"{settings.model} changes texts first (prompt, do_lower_case); similarities cannot show that"
            )
        options = TextClassificationOptions.of(vars(settings), {"max_length": embedder.max_length})
        check_max_length(options.max_length, embedder.model.config, settings.model)
        task = Similarity(options, embedder.model.config, trained_inputs=("text", "text_pair"))
        vectors = TextVectors(embedder.model, embedder.modules, settings.model).eval()
        return Finetuned(vectors, embedder.tokenizer, task)


def make_predictor(settings: PredictorSettings) -> Predictor:
    """A predictor of the checkpoint's task, or of similarities if the checkpoint is an encoder."""
    return (SimilarityPredictor if settings.task is None and is_encoder(settings.model) else Predictor)(settings)


def is_encoder(name: str) -> bool:
    """Whether a checkpoint lacks the head of a task."""
    if (Path(name) / MODULES).is_file() and len(module_entries(Path(name))) > 1:  # a cross-encoder has one module
        return True
    with explain_unreadable(name):
        config = MyBertConfig.from_pretrained(name)
    try:
        task_of_architecture(config.architectures, name)
    except UserError:
        return True
    return False
