"""transformers' token-classification pipeline with the words and the tags of the training rows."""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

from transformers import TokenClassificationPipeline
from transformers.pipelines.token_classification import AggregationStrategy

from .entities_mybert import TagSet, entity_spans, read_tags
from .words_mybert import AddedTokens, WordSplitter


class MyBertTokenClassificationPipeline(TokenClassificationPipeline):
    """`TokenClassificationPipeline` that splits texts as training did, and groups tags in every scheme.

    With `aggregation_strategy="first"` it finds the entities of `mybert predict`. Models other than MyBERT's are read
    as in transformers.
    """

    @functools.cached_property
    def _splitter(self) -> WordSplitter | None:
        """Splits texts into words; None if BERT's words are those of training."""
        rules = getattr(self.model.config, "word_rules", None) if self._is_mybert else None
        return WordSplitter(rules, AddedTokens(self.tokenizer)) if rules else None  # type: ignore[arg-type]

    @functools.cached_property
    def _tag_set(self) -> TagSet | None:
        """The meaning of the labels; None for tags that do not name entities."""
        config = self.model.config
        has_entities = self._is_mybert and getattr(config, "tag_scheme", "") is not None
        return read_tags(dict.fromkeys((config.id2label or {}).values(), 1)) if has_entities else None

    @property
    def _is_mybert(self) -> bool:
        return type(self.model).__name__.startswith("MyBert")

    def preprocess(  # type: ignore[override]
        self, sentence: Any, offset_mapping: Any = None, **params: Any
    ) -> Iterator[dict[str, Any]]:
        places = [] if self._splitter is None or not isinstance(sentence, str) else self._splitter(sentence)
        if not places or offset_mapping is not None:
            yield from super().preprocess(sentence, offset_mapping, **params)
            return
        split = {"is_split_into_words": True, "delimiter": " "}
        params = {**params, **split, "tokenizer_params": {**params.get("tokenizer_params", {})}}  # which it changes
        for inputs in super().preprocess([sentence[start:end] for start, end in places], **params):
            text = None if inputs["sentence"] is None else sentence
            yield {**inputs, "sentence": text, "word_to_chars_map": places}

    def postprocess(  # type: ignore[override]
        self, all_outputs: Any, aggregation_strategy: Any = AggregationStrategy.NONE, ignore_labels: Any = None
    ) -> list[dict[str, Any]]:
        if ignore_labels is None and self._tag_set is not None:
            ignore_labels = [self._tag_set.outside]
        return super().postprocess(all_outputs, aggregation_strategy, ignore_labels)

    def gather_pre_entities(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        pre_entities, word_ids = super().gather_pre_entities(*args, **kwargs), kwargs.get("word_ids")
        if word_ids is not None and self._splitter is not None:
            before = None
            for token in pre_entities:
                token["is_subword"] = word_ids[token["index"]] == before
                before = word_ids[token["index"]]
        return pre_entities

    def group_entities(self, entities: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self._tag_set is None:
            return super().group_entities(entities)
        tags = [entity["entity"] for entity in entities]
        kinds: list[tuple[Any, str]] = [(("", tag), tag) for tag in tags]  # outside, equal tags are one group
        for start, end, kind in entity_spans(tags, self._tag_set.marks):
            kinds[start:end] = [(start, kind)] * (end - start)
        groups = []
        pairs = itertools.groupby(zip(kinds, entities, strict=True), key=lambda pair: pair[0])
        for (_, kind), some in pairs:
            groups.append({**self.group_sub_entities([entity for _, entity in some]), "entity_group": kind})
        return groups


__all__ = ["MyBertTokenClassificationPipeline"]
