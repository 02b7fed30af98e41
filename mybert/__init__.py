"""Train, evaluate, apply and publish BERT models.

Each command is a function of this package. Modules are imported on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mybert.api import *  # noqa: F403
    from mybert.common.errors import UserError
    from mybert.embedding.embedder import Embedder
    from mybert.explanation.explainer import Explainer
    from mybert.inference.predictor import Predictor
    from mybert.retrieval.index import Index
    from mybert.scoring.scorer import Scorer

__all__ = [  # noqa: F405
    "Embedder",
    "Explainer",
    "Index",
    "Predictor",
    "Result",
    "Scorer",
    "UserError",
    "adapt",
    "build_corpus",
    "build_index",
    "compare",
    "distill",
    "doctor",
    "embed",
    "evaluate",
    "explain",
    "export",
    "finetune",
    "merge",
    "predict",
    "pretrain",
    "push",
    "quantize",
    "score",
    "search",
    "suggest",
    "train_tokenizer",
    "trim",
]
_MODULES = {
    "Embedder": "mybert.embedding.embedder",
    "Explainer": "mybert.explanation.explainer",
    "Index": "mybert.retrieval.index",
    "Predictor": "mybert.inference.predictor",
    "Scorer": "mybert.scoring.scorer",
    "UserError": "mybert.common.errors",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mybert' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES.get(name, "mybert.api")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
