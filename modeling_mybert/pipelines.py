"""Pipelines that truncate long texts to the trained length, the tokenizer's `model_max_length`.

transformers' own classes do not truncate unless told to, and the model then raises or reads positions that it was not
trained on. Pass `truncation=False` to get that. Importing `modeling_mybert` registers these classes; without the
package, pass `truncation=True`.
"""

from typing import Any

from transformers import FeatureExtractionPipeline, FillMaskPipeline, TextClassificationPipeline


def _is_mybert(kwargs: dict[str, Any]) -> bool:
    return type(kwargs.get("model")).__name__.startswith("MyBert")  # also that of a folder's own code


class MyBertTextClassificationPipeline(TextClassificationPipeline):
    """`TextClassificationPipeline` with `truncation=True` by default."""

    def __init__(self, *args: Any, **kwargs: Any):
        if _is_mybert(kwargs):
            kwargs.setdefault("truncation", True)
        super().__init__(*args, **kwargs)


class MyBertFeatureExtractionPipeline(FeatureExtractionPipeline):
    """`FeatureExtractionPipeline` with `truncation=True` by default."""

    def __init__(self, *args: Any, **kwargs: Any):
        if _is_mybert(kwargs) and "truncation" not in (kwargs.get("tokenize_kwargs") or {}):
            kwargs.setdefault("truncation", True)
        super().__init__(*args, **kwargs)


class MyBertFillMaskPipeline(FillMaskPipeline):
    """`FillMaskPipeline` with `tokenizer_kwargs={"truncation": True}` by default."""

    def __init__(self, *args: Any, **kwargs: Any):
        if _is_mybert(kwargs):
            kwargs["tokenizer_kwargs"] = {"truncation": True, **(kwargs.get("tokenizer_kwargs") or {})}
        super().__init__(*args, **kwargs)


__all__ = ["MyBertFeatureExtractionPipeline", "MyBertFillMaskPipeline", "MyBertTextClassificationPipeline"]
