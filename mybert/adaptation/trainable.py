"""Choose the trainable weights: embeddings and heads, rows of new words, or low-rank updates (LoRA)."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from modeling_mybert import MyBertForPreTraining
from mybert.common.errors import needing


def freeze_encoder(model: MyBertForPreTraining) -> None:
    """Freezes the encoder layers; embeddings and heads are trained."""
    model.bert.encoder.requires_grad_(False)


def new_rows_only(new_ids: Sequence[int], new_head: bool) -> Callable[..., Any]:
    """Trains the rows of the new words in the embedding and the output bias, and a new masked-language-model head."""

    def adjust(model: MyBertForPreTraining) -> None:
        model.requires_grad_(False)
        _train_rows(model, new_ids, new_head)

    return adjust


def low_rank(rank: int, new_ids: Sequence[int], new_head: bool) -> Callable[..., Any]:
    """Low-rank updates of all linear layers of the encoder (Hu et al. 2021), trained together with the new rows and
    merged at the end.
    """
    with needing("lora", "--lora-rank"):
        from peft import LoraConfig, LoraModel

    def adjust(model: MyBertForPreTraining) -> Callable[[], object]:
        linear = [name for name, module in model.bert.encoder.named_modules() if isinstance(module, torch.nn.Linear)]
        config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=[f"bert.encoder.{name}" for name in linear])
        adapters = LoraModel(model, config, "default")
        _train_rows(model, new_ids, new_head)
        return adapters.merge_and_unload

    return adjust


def _train_rows(model: MyBertForPreTraining, new_ids: Sequence[int], new_head: bool) -> None:
    chosen = torch.zeros(model.config.vocab_size, dtype=torch.bool)
    chosen[list(new_ids)] = True
    head, tables = model.cls.predictions, [model.bert.embeddings.word_embeddings.weight]
    if new_head:
        head.transform.requires_grad_(True)
        head.bias.requires_grad_(True)
    else:
        tables.append(head.bias)
    for table in tables if len(new_ids) else ():
        table.requires_grad_(True).register_hook(lambda gradient: _only(gradient, chosen))


def _only(gradient: Tensor, chosen: Tensor) -> Tensor:
    keep = chosen.to(gradient.device)
    return torch.where(keep if gradient.dim() == 1 else keep[:, None], gradient, 0)
