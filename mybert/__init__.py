"""Train, evaluate, apply and publish BERT models.

Each command of `mybert` is a function of this package. Their modules are imported when they are used.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mybert.api import (
        Result,
        build_corpus,
        embed,
        evaluate,
        export,
        finetune,
        import_bert,
        predict,
        pretrain,
        push,
        search,
        train_tokenizer,
    )
    from mybert.common.errors import UserError
    from mybert.embedding.embedder import Embedder
    from mybert.finetuning.evaluation.predictor import Predictor

__all__ = [
    "Embedder",
    "Predictor",
    "Result",
    "UserError",
    "build_corpus",
    "embed",
    "evaluate",
    "export",
    "finetune",
    "import_bert",
    "predict",
    "pretrain",
    "push",
    "search",
    "train_tokenizer",
]
_MODULES = {
    "Embedder": "mybert.embedding.embedder",
    "Predictor": "mybert.finetuning.evaluation.predictor",
    "UserError": "mybert.common.errors",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mybert' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES.get(name, "mybert.api")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
