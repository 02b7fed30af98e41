"""Data for the model card, read from the files of a bundle; unknown values are left out of the card."""

from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from safetensors import safe_open

from mybert.artifacts.manifest import MANIFEST, RESULTS
from mybert.inference.checkpoint import SENTENCE_SETTINGS, head_of
from mybert.inference.sentence_modules import MODULES
from mybert.io.sources import is_python_docs
from mybert.release.hub.bundle_checks import read_object
from mybert.release.hub.handler import PIPELINES
from mybert.release.hub.public_records import NOT_NAMED, PROVENANCE
from mybert.tasks.options import TaskOptions

PARENT = "parent"
"""Entry of results.json with the scores of the model that `mybert trim` read."""
_PARENTS = ("model", "checkpoint", "init_from", "teacher")  # `mybert merge` numbers its models
_TEXTS = ("input-", "replay-", "task_data-", "train", "unlabelled")
_TRAINING = ("pretrain", "adapt", "distill", "finetune")
_SIMILARITIES = {
    "cosine": "cosine",
    "dot": "dot product",
    "euclidean": "Euclidean distance",
    "manhattan": "Manhattan distance",
}


@dataclass
class CardData:
    """
    Attributes:
        config: config.json.
        manifest, results: of the checkpoint; empty if it has none.
        chain: manifests of its inputs (see `manifest_chain`).
        files: names in the bundle.
        tokenizer: tokenizer_config.json.
        sentence_settings: the settings of sentence-transformers.
        of_parent: the results are those of the model before its vocabulary was trimmed.
    """

    config: dict[str, Any]
    parameters: int
    manifest: dict[str, Any]
    results: dict[str, Any]
    chain: dict[str, dict[str, Any]]
    files: set[str] = field(default_factory=set)
    tokenizer: dict[str, Any] = field(default_factory=dict)
    sentence_settings: dict[str, Any] = field(default_factory=dict)
    of_parent: bool = False

    @classmethod
    def of(cls, folder: Path) -> "CardData":
        """Reads the files of a bundle."""
        results = read_object(folder / RESULTS) or {}
        return cls(
            config=read_object(folder / "config.json") or {},
            parameters=_count_weights(folder),
            manifest=read_object(folder / MANIFEST) or {},
            results=results.get(PARENT) or results,
            of_parent=PARENT in results,
            chain=read_object(folder / PROVENANCE) or {},
            files={path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()},
            tokenizer=read_object(folder / "tokenizer_config.json") or {},
            sentence_settings=read_object(folder / SENTENCE_SETTINGS) or {},
        )

    @property
    def head(self) -> str:
        """The class of the saved head."""
        head = head_of(self.config)
        return head if head in PIPELINES else "MyBertModel"

    @property
    def search_task(self) -> str | None:
        """`retrieval` of a sentence encoder, `reranking` of a cross-encoder with one score; None of other models."""
        if MODULES not in self.files:
            return None
        has_one_score = len(self.config.get("id2label") or (0, 1)) == 1  # the default of the configuration is two
        if self.head == "MyBertForSequenceClassification" and has_one_score:
            return "reranking"
        return "retrieval" if self.head == "MyBertModel" else None

    @property
    def reads_pairs(self) -> bool:
        """Whether it is a cross-encoder, or a classifier that was fine-tuned on pairs of texts."""
        finetuned = self.config.get("finetuned")
        inputs = finetuned.get("inputs") if isinstance(finetuned, dict) else None
        return self.search_task == "reranking" or inputs == ["text", "text_pair"]

    @property
    def similarity(self) -> str:
        """What the vectors of a sentence encoder are compared by."""
        name = self.sentence_settings.get("similarity_fn_name") or "cosine"
        return _SIMILARITIES.get(str(name), "similarity")

    @property
    def held_out_queries(self) -> str:
        """What the scores of a retriever or reranker were measured on."""
        settings, count = self.results.get("settings") or {}, (self.results.get("pairs") or {}).get("held_out_queries")
        has_rows = any(settings.get(name) for name in ("train", "judgements", "validation"))
        number = f"{count:,}" if isinstance(count, int) else "the"
        queries = f"{number} held-out {'query' if count == 1 else 'queries'}"
        origin = "" if has_rows else ", mined from its documents"
        return f"{queries}{origin}{', together with BM25' * (self.results.get('task') == 'reranking')}"

    @property
    def hub_task(self) -> str | None:
        """The task on the Hub."""
        tasks = {"retrieval": "sentence-similarity", "reranking": "text-ranking"}
        return tasks[self.search_task] if self.search_task else PIPELINES[self.head]

    @property
    def labels(self) -> list[str]:
        """The names of the labels of a classifier, if they were given."""
        labels = [str(label) for label in (self.config.get("id2label") or {}).values()]
        named = "Classification" in self.head and not all(label.startswith("LABEL_") for label in labels)
        return labels if named else []

    @property
    def mask(self) -> str:
        """The mask token."""
        token = self.tokenizer.get("mask_token")
        return str(token.get("content")) if isinstance(token, dict) else str(token or "[MASK]")

    @property
    def training(self) -> dict[str, Any]:
        """The manifest of the last training: of this model, or of the model that it was converted from."""
        manifests = (self.manifest, *self.chain.values())
        return next((manifest for manifest in manifests if manifest.get("stage") in _TRAINING), {})

    @property
    def has_steps(self) -> bool:
        """Whether a training is known, other than that of a retriever on documents alone, which has no step."""
        return bool(self.training) and (self.results.get("best") or {}).get("steps") != 0

    @property
    def max_length(self) -> int | None:
        """Tokens of the longest sequence that tokenizer and model take."""
        lengths = [self.tokenizer.get("model_max_length"), self.config.get("max_position_embeddings")]
        return min((length for length in lengths if isinstance(length, int)), default=None)

    @property
    def trained_length(self) -> int | None:
        """Tokens of the longest sequence of the training; a retriever may read more afterwards."""
        if self.results.get("task") != "retrieval" or self.max_length is None:
            return self.max_length
        chosen = (self.results.get("settings") or {}).get("max_length")
        return min(self.max_length, chosen or TaskOptions.defaults["max_length"])

    @property
    def predicts_next_sentences(self) -> bool:
        """Whether the next sentence head is trained, as far as the manifests say; `adapt` does not train it."""
        if self.head == "MyBertForPreTraining":
            own = (manifest for name, manifest in self.chain.items() if "teacher" not in name.split("/"))
            corpora = [manifest for manifest in own if manifest.get("stage") == "corpus"]
            single = corpora and all(corpus.get("settings", {}).get("nsp") is False for corpus in corpora)
            return self.training.get("stage") != "adapt" and not single and self._trained_by("hard")
        return self.head == "MyBertForNextSentencePrediction"

    @property
    def predicts_masked_tokens(self) -> bool:
        """Whether the masked-language-model head is trained, as far as the manifests say."""
        has_head = self.head in ("MyBertForPreTraining", "MyBertForMaskedLM")
        return has_head and self._trained_by("hard", "soft")

    @property
    def trained_head(self) -> str:
        """The class with those pretraining heads that are trained; `head` of a model with another head."""
        if self.head not in ("MyBertForPreTraining", "MyBertForMaskedLM") or self.predicts_next_sentences:
            return self.head
        return "MyBertForMaskedLM" if self.predicts_masked_tokens else "MyBertModel"

    @property
    def untrained_heads(self) -> list[str]:
        """The pretraining heads of the checkpoint that the last training did not include."""
        pretraining = self.head in ("MyBertForPreTraining", "MyBertForMaskedLM")
        masked = pretraining and not self.predicts_masked_tokens
        next_sentence = self.head == "MyBertForPreTraining" and not self.predicts_next_sentences
        return ["masked language modelling"] * masked + ["next sentence prediction"] * next_sentence

    def _trained_by(self, *losses: str) -> bool:
        """Whether the model was distilled with one of `losses`, or not distilled."""
        if self.training.get("stage") != "distill":
            return True
        recorded = (self.training.get("settings") or {}).get("losses") or ()
        return any(loss.partition("=")[0] in losses for loss in recorded)

    def base_model(self) -> str | None:
        """The model on the Hub that this model, or a parent of it, was trained from."""
        names = (_hub_name(entry) for name, entry in self._inputs() if name.startswith(_PARENTS))
        return next(filter(None, names), None)

    def datasets(self) -> list[str]:
        """Data sets on the Hub that were used for this model or its parents."""
        names = (_hub_name(entry) for name, entry in self._inputs() if name.startswith(_TEXTS))
        return list(dict.fromkeys(name.split(":")[0] for name in names if name))

    def _inputs(self) -> list[tuple[str, dict[str, Any]]]:
        manifests = [self.manifest, *self.chain.values()]
        return [item for manifest in manifests for item in (manifest.get("inputs") or {}).items()]

    def is_cross_validated(self, split: str) -> bool:
        """Whether the scores of a split are those of the models of the folds."""
        return split == "validation" and bool(self.results.get("folds"))

    def source_of(self, split: str) -> str:
        """File or data set of a split, as far as it is named."""
        if self.is_cross_validated(split):
            return "cross-validation of the training rows"
        source = str(((self.results.get("data") or {}).get(split) or {}).get("source", split))
        return source.replace(NOT_NAMED, "a local source")


def _hub_name(entry: Any) -> str | None:
    """The name of an input on the Hub: manifests hold a fingerprint of all other inputs."""
    if isinstance(entry, dict) and "sha256" not in entry:
        name = entry.get("path")
        if name not in (None, "-") and not is_python_docs(str(name)):
            return str(name)
    return None


def _count_weights(folder: Path) -> int:
    """Number of weights and biases, which int8 layers store with other tensors."""
    count, whole = 0, folder / "model.safetensors"
    for path in [whole] if whole.is_file() else folder.glob("model-*-of-*.safetensors"):
        with safe_open(path, "np") as file:
            names = (name for name in file.keys() if name.endswith((".weight", ".bias")))  # noqa: SIM118
            count += sum(prod(file.get_slice(name).get_shape()) for name in names)
    return count
