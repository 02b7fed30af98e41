"""What differs between the training of a retriever and of a reranker."""

import dataclasses
import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import CONFIG_NAME

from mybert.common.errors import UserError
from mybert.common.quantities import counted
from mybert.finetuning.arguments import FinetuningArguments
from mybert.finetuning.settings import BATCH, FinetuneSettings, default_learning_rate
from mybert.inference.checkpoint import checkpoint_file, refuse_not_finite
from mybert.inference.checkpoint_tokenizer import check_max_length, no_tokenizer
from mybert.inference.sentence_modules import module_entries, modules_folder
from mybert.retrieval import trainer as trainers
from mybert.retrieval.balance import LARGEST, balance, encoders_of, start_weight
from mybert.retrieval.collections import joined
from mybert.retrieval.documents import Miner, Passage, read_passages
from mybert.retrieval.latent_semantics import LatentSemantics
from mybert.retrieval.negatives import add_negatives, print_unused
from mybert.retrieval.pairs import Pairs
from mybert.retrieval.ranking import RERANKED
from mybert.retrieval.words_channel import (
    add_words_channel,
    beginnings,
    can_have_words,
    order_dimensions,
    planned_dimensions,
)
from mybert.settings.declare import flag_of
from mybert.tasks.options import TaskOptions
from mybert.tasks.reading import hash_of
from mybert.training.options import DECISIVE
from mybert.training.trainer import RunTrainer

_PASSAGES = 2000  # most passages among which held-out queries are answered
_MINED_PASSAGES = 500  # if their queries are mined, which says less
_RERANKED, _RERANKED_PASSAGES = 256, 30  # tokens, and passages of a held-out query
_MINED = {"retrieval": 12_000, "reranking": 2_000}  # pairs at most; reading both texts together costs more
_ENOUGH_DOCUMENTS = 256  # for their words to be analysed; of fewer, the passages are analysed
_LEAST_PASSAGES = 4  # for their words to be analysed
_ENCODED = 2000  # passages whose principal components order the dimensions
_UNLIMITED = 8.0  # weight of BM25 at which the words' part has no limit but `_MOST_WORDS`
_MOST_WORDS = 1.0  # times the rest of a vector; the best for German with an English model, whose vectors know little
_ALL_WORDS = 3.0  # of a model that knows nothing else of the documents, such as one that was only pretrained
_MOST_REGRESSED = 20_000  # passages by which the words of tokens are learned
_NEEDED = (
    "a BERT with GELU, ReLU or SiLU whose vectors are means of hidden states or those of [CLS], without further layers"
)
_OF_STEPS = (
    *(name for name in DECISIVE if name != "seed"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "gradient_checkpointing", "torch_compile"),
    *("logging_strategy", "logging_steps", "save_strategy", "save_steps", "save_total_limit"),
)
"""The training arguments that say something of steps only."""
_MEASURED, _LONGER = 500, 0.1  # documents whose tokens are counted, and the share of long ones that matters


class _Kind:
    model: Any

    def save(self, folder: Path) -> None:
        """Writes the model. Its card has no texts of the training rows, which the user may not want to publish."""
        for dataset in (*self.model.model_card_data.train_datasets, *self.model.model_card_data.eval_datasets):
            for name in ("examples", "examples_table"):
                dataset.pop(name, None)
        self.model._model_card_text = None  # of the start model, which is written again where no step was trained
        self.model.save_pretrained(str(folder))


class Retrieval(_Kind):
    """A `SentenceTransformer` that finds passages by the cosine of vectors.

    Attributes:
        model: the model that is trained.
        options: --columns and --max-length.
        learning_rate: the default.
        has_words: whether `add_words` adds a channel of words.
        trains_on_mined: whether mined pairs train the model; otherwise they show what documents are like.
        most_queries: held-out queries that are scored.
        has_start: whether the start model can do the task, so that it is scored too.
    """

    trains_on_mined, most_queries, has_start = False, 500, True

    def __init__(self, settings: FinetuneSettings, arguments: FinetuningArguments):
        self.options = TaskOptions.of(vars(settings), TaskOptions.defaults)
        self.model = SentenceTransformer(settings.model, **_loading_options(settings, arguments))
        self.model.model_card_data.ir_model = True  # its card shows how to encode queries and passages
        self._config = config = _prepared_config(self.model, settings)
        self._is_retriever = _is_retriever(settings.model)
        self._length = max(self.model.max_seq_length or config.max_position_embeddings, settings.max_length or 0)
        # A sentence encoder often reads less than its BERT was trained on; later positions of another are untrained.
        self._positions = config.max_position_embeddings if self._is_retriever else self._length
        self.model.max_seq_length = min(self.options.length, self._length)
        self.has_words = bool(settings.documents) and can_have_words(self.model)
        self._mines_only = not settings.train_files and settings.judgements is None
        if self._mines_only:
            _check_untrained(settings, arguments, self.has_words)
            size = sum(planned_dimensions(self.model))
            if settings.dimensions and (most := max(settings.dimensions)) > size:
                raise UserError(f"--dimensions {most}: vectors have {size} dimensions with their words; name fewer")
        elif settings.documents and not self.has_words:
            print(f"{settings.model}: the documents add no words to its vectors, which needs {_NEEDED}")
        self._ordered = self._mines_only and bool(settings.dimensions)
        self.learning_rate = 2e-5 if self._is_retriever else default_learning_rate(config.hidden_size, settings.task)

    def arguments(self, given: FinetuningArguments) -> FinetuningArguments:
        """`given` as arguments of the trainer."""
        model_prompts, passage = self.model.prompts, self._passage_prompt
        columns = ["positive", "passage", *(f"negative_{number + 1}" for number in range(self._negatives))]
        prompts = {"query": model_prompts.get("query")} | dict.fromkeys(columns, passage)
        prompts = {column: prompt for column, prompt in prompts.items() if prompt}
        return trainers.with_fields_of(trainers.RetrievalArguments, given, prompts=prompts or None)

    @property
    def _passage_prompt(self) -> str | None:
        names = ("document", "passage", "corpus")  # the order of `SentenceTransformer.encode_document`
        return next((self.model.prompts[name] for name in names if self.model.prompts.get(name)), None)

    def mine(self, settings: FinetuneSettings, seed: int) -> tuple[Pairs, list[str], int]:
        """Pairs from the documents, all passages of the documents, and the number of documents."""
        pairs, passages = mine(settings, self.options.given_columns(), seed)
        parts = (list(group) for _, group in groupby(passages, lambda passage: passage.document))
        documents = [(part[0].title, " ".join(passage.body for passage in part)) for part in parts]
        if settings.max_length is None:
            self._read_more([joined(*document) for document in documents])
        texts = [passage.text for passage in passages]
        if self._mines_only and 0 < len(texts) < _LEAST_PASSAGES:
            count = counted(len(texts), "passage")
            raise UserError(f"--documents hold {count}, and {_LEAST_PASSAGES} are needed; name more documents")
        if passages:
            weight, least = LARGEST, start_weight(self._config)
            if self._is_retriever:
                titles, bodies = [title for title, _ in documents], [text for _, text in documents]
                weight = balance(titles, bodies, *encoders_of(self.model), least)
            self._config.words_weight = weight  # for `mybert index`
            whole = [joined(*document) for document in documents]
            self._words = LatentSemantics(whole if len(whole) >= _ENOUGH_DOCUMENTS else texts, seed)
        self.has_words &= bool(pairs.pairs)
        if self.has_words:
            self._mined, self._documents = pairs.pairs, whole
        return pairs, texts, len(documents)

    def add_words(self, seed: int) -> None:
        """Gives the model its channel of words. Rows are trained on before: training would blur it."""
        length, self.model.max_seq_length = self.model.max_seq_length, self._length
        draw = random.Random(seed)
        passages = [*(pair.positive for pair in self._mined), *self._documents]
        passages = draw.sample(passages, min(len(passages), _MOST_REGRESSED))
        prompts = self.model.prompts.get("query"), self._passage_prompt
        queries = [pair.query for pair in self._mined]
        add_words_channel(self.model, queries, passages, self._words, self.ratio, *prompts)
        if self._ordered:
            order_dimensions(self.model, draw.sample(passages, min(len(passages), _ENCODED)))
        self.model.max_seq_length = length

    @property
    def ratio(self) -> float:
        """The length of the words' part of a vector, as a multiple of the rest: as BM25 beside the model."""
        weight = self._config.words_weight
        if weight == LARGEST:
            return _ALL_WORDS
        return min(weight / max(_UNLIMITED - weight, 1e-6), _MOST_WORDS)

    def _read_more(self, texts: Sequence[str]) -> None:
        """Lets the finished model read as many tokens as it has positions if many documents are longer."""
        sample = beginnings(texts[:: max(len(texts) // _MEASURED, 1)], self._length)
        encoded = self.model.tokenizer(sample, truncation=False, verbose=False)["input_ids"] if sample else []
        longer = sum(len(ids) > self._length for ids in encoded)
        if self._length < self._positions and longer > _LONGER * len(encoded):
            share, before, self._length = longer / len(encoded), self._length, self._positions
            print(
                f"{share:.0%} of the documents have more than {before} tokens: the finished model reads {self._length}"
            )

    def with_negatives(self, pairs: Pairs, passages: Sequence[str], settings: FinetuneSettings, seed: int) -> Pairs:
        """The pairs, of which those of rows have hard negatives."""
        rows, mined = pairs.by_origin()
        count = 1 if settings.hard_negatives is None else settings.hard_negatives
        filled = add_negatives(Pairs(rows), passages, count, seed, self.model, among=4 * count).pairs
        if count:  # each is a column, which all rows have
            filled = [pair._replace(negatives=tuple(islice(cycle(pair.negatives), count))) for pair in filled]
        self._negatives = min((len(pair.negatives) for pair in filled), default=0)
        print_unused(rows, self._negatives)
        return dataclasses.replace(pairs, pairs=filled + mined)

    def evaluator(self, held_out: Pairs, train: Pairs, arguments: FinetuningArguments) -> trainers.HeldOutRetrieval:
        """Scores the model on the held-out queries."""
        relevant = dict(list(held_out.relevant().items())[: self.most_queries])
        answers = dict.fromkeys(text for answers in relevant.values() for text in answers)
        passages = list(dict.fromkeys([*answers, *train.passages()]))
        most = max(_PASSAGES if train.by_origin()[0] else _MINED_PASSAGES, len(answers))
        texts = _shuffled(passages[:most])
        return trainers.HeldOutRetrieval(relevant, texts, arguments.per_device_eval_batch_size)

    def trainer(self, pairs: Pairs, settings: FinetuneSettings, **arguments: Any) -> RunTrainer:
        """The trainer of the model."""
        batch_size = arguments["args"].per_device_train_batch_size
        loss = trainers.retrieval_loss(self.model, pairs, batch_size, settings.dimensions)
        own, data = trainers.MeanOverRows(), trainers.retrieval_data(pairs)
        return trainers.RetrievalTrainer(model=self.model, objective=own, train_dataset=data, loss=loss, **arguments)

    def save(self, folder: Path) -> None:
        self.model.max_seq_length = self._length
        super().save(folder)


class Reranking(_Kind):
    """A `CrossEncoder` that scores a query and a passage together, with one logit; attributes as in `Retrieval`."""

    has_words = False
    trains_on_mined, most_queries = True, 100  # each is read with 30 passages

    def __init__(self, settings: FinetuneSettings, arguments: FinetuningArguments):
        self.options = TaskOptions.of(vars(settings), {"max_length": _RERANKED})
        options = _loading_options(settings, arguments)
        outputs = _outputs(settings.model)
        if outputs > 1:
            print(f"{settings.model}: its head has other outputs, so the reranker gets a new one")
            options["model_kwargs"] |= {"ignore_mismatched_sizes": True}
        self.model = CrossEncoder(settings.model, num_labels=1, max_length=self.options.length, **options)
        config = _prepared_config(self.model, settings)
        config.problem_type = None  # of another head
        if config.type_vocab_size == 1:  # both texts of a pair are of the only type
            tokenizer = self.model.tokenizer
            names = [name for name in tokenizer.model_input_names if name != "token_type_ids"]
            tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names
        vars(config).pop("words_weight", None)  # of a retriever
        self.model.max_seq_length = min(self.options.length, config.max_position_embeddings)
        config.finetuned = {"task": "text-classification", "max_length": self.model.max_seq_length}
        self.has_start = outputs == 1  # otherwise its head is new
        self.learning_rate = 2e-5 if self.has_start else default_learning_rate(config.hidden_size, settings.task)
        self._retriever = None
        if settings.hard_negatives != 0 and _is_retriever(settings.model):
            self._retriever = SentenceTransformer(settings.model, device=str(arguments.device))

    def arguments(self, given: FinetuningArguments) -> FinetuningArguments:
        return trainers.with_fields_of(trainers.RerankingArguments, given)

    def mine(self, settings: FinetuneSettings, seed: int) -> tuple[Pairs, list[str], int]:
        pairs, passages = mine(settings, self.options.given_columns(), seed)
        return pairs, [passage.text for passage in passages], len({passage.document for passage in passages})

    def with_negatives(self, pairs: Pairs, passages: Sequence[str], settings: FinetuneSettings, seed: int) -> Pairs:
        count = 4 if settings.hard_negatives is None else settings.hard_negatives
        if count:
            print_unused(pairs.pairs, count)
        filled = add_negatives(pairs, passages, count, seed, self._retriever, among=RERANKED)
        trainers.check_reranking(filled)
        return filled

    def evaluator(self, held_out: Pairs, train: Pairs, arguments: FinetuningArguments) -> trainers.HeldOutReranking:
        relevant = dict(list(held_out.relevant().items())[: self.most_queries])
        texts = _shuffled({*held_out.passages(), *train.passages()})
        return trainers.HeldOutReranking(relevant, texts, _RERANKED_PASSAGES, arguments.per_device_eval_batch_size)

    def trainer(self, pairs: Pairs, settings: FinetuneSettings, **arguments: Any) -> RunTrainer:
        data = trainers.reranking_data(pairs, self.model.max_seq_length)
        loss = trainers.reranking_loss(self.model, data)
        own = trainers.MeanOverRows()
        return trainers.RerankingTrainer(model=self.model, objective=own, train_dataset=data, loss=loss, **arguments)


Kind = Retrieval | Reranking


def kind_of(settings: FinetuneSettings, arguments: FinetuningArguments) -> Kind:
    """Loads the model of the task."""
    return (Retrieval if settings.task == "retrieval" else Reranking)(settings, arguments)


def mine(settings: FinetuneSettings, columns: Mapping[str, str], seed: int) -> tuple[Pairs, list[Passage]]:
    """Pairs from the documents, and all their passages."""
    count = settings.mined_pairs
    if count is None:
        count = 0 if settings.judgements else _MINED[settings.task]
    if not count:
        return Pairs(), []
    passages = read_passages(settings.documents, columns, settings.errors)
    return Miner(passages, seed).pairs(count), passages


def _shuffled(texts: Iterable[str]) -> list[str]:
    """In an order that says nothing: of equal scores, such as those without a word of the query, the first count."""
    return sorted(texts, key=hash_of)


def _is_retriever(name: str) -> bool:
    """Whether a checkpoint is a sentence encoder; a cross-encoder has one module."""
    folder = modules_folder(name)
    return folder is not None and len(module_entries(folder)) > 1


def _outputs(name: str) -> int:
    """The number of outputs of a classifier of texts or tokens; 0 for another checkpoint."""
    if checkpoint_file(name, CONFIG_NAME) is None:  # in a folder of its own
        return 0
    config = AutoConfig.from_pretrained(name)
    return config.num_labels if "Classification" in str(config.architectures) else 0


def _check_untrained(settings: FinetuneSettings, arguments: FinetuningArguments, has_words: bool) -> None:
    """Raises a UserError for what documents alone cannot do: they change a model without a training step."""
    usual = FinetuningArguments(output_dir=arguments.output_dir, per_device_train_batch_size=BATCH)
    for name in _OF_STEPS:
        if getattr(arguments, name) != getattr(usual, name):
            raise UserError(
                f"{flag_of(name)} has no effect with --documents alone, which need no training steps; leave it out, "
                "or name --train"
            )
    if not has_words:
        raise UserError(f"{settings.model}: --documents alone need {_NEEDED}; name --train")


def _prepared_config(model: SentenceTransformer | CrossEncoder, settings: FinetuneSettings) -> PreTrainedConfig:
    """The configuration of the BERT, without what an earlier fine-tuning has left in it."""
    card: Any = model.model_card_data
    card.generate_widget_examples = False  # their vectors, which cost time
    card.set_widget_examples = lambda dataset: None  # texts of the training rows
    bert = next(module for module in model.modules() if isinstance(module, PreTrainedModel))
    check_max_length(settings.max_length, bert.config, settings.model)
    refuse_not_finite(settings.model, bert)
    if len(model.tokenizer) <= len(model.tokenizer.all_special_tokens):  # what transformers makes of no files
        raise no_tokenizer(settings.model)
    for name in ("finetuned", "label_threshold", "tag_scheme", "word_rules"):
        vars(bert.config).pop(name, None)
    return bert.config


def _loading_options(settings: FinetuneSettings, arguments: FinetuningArguments) -> dict[str, Any]:
    dropouts, backend = ("hidden_dropout_prob", "attention_probs_dropout_prob"), settings.attn_implementation
    return {
        "device": str(arguments.device),
        "model_kwargs": {"dtype": torch.float32} | ({"attn_implementation": backend} if backend else {}),
        "config_kwargs": {} if settings.dropout is None else dict.fromkeys(dropouts, settings.dropout),
    }
