"""Few labels: a sentence encoder that is trained contrastively, and a logistic regression (Tunstall et al. 2022).

The weights of the encoder are the mean of those before and after the training (Wortsman et al. 2022).

The result is a BERT: the mean of the hidden states is computed by one more layer.
"""

import contextlib
import copy
import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from transformers import TrainingArguments

from mybert.common.progress import Bar
from mybert.finetuning.settings import FinetuneSettings
from mybert.inference.logits import as_rows, inputs_of, logits_of_rows
from mybert.rows.labels import MULTI, SINGLE
from mybert.tasks.base import Task

FEW = 50
"""Rows a class."""
_SHARE = 0.03  # of a token's own hidden state in the mean
_ABSENT = -20.0  # logit of a label without a training row
LEARNING_RATE, BATCH, EPOCHS = 1e-4, 32, 8
_MOST_STEPS = 200
_TEMPERATURE = 0.1
_ORDINARY = (
    *("learning_rate", "num_train_epochs", "max_steps", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("optim", "weight_decay", "warmup_steps", "lr_scheduler_type", "label_smoothing_factor", "eval_strategy"),
    *("adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
)
"""Training arguments that have no effect here: another value asks for ordinary training."""
UNUSED = ("fp16", "report_to", "torch_compile", "gradient_checkpointing", "deepspeed", "fsdp")
"""Training arguments that have no effect here, and do not ask for ordinary training."""
_PENALTY = 30.0  # inverse strength of the regularisation, for vectors whose mean squared norm is 1


def may_be_few(settings: FinetuneSettings, arguments: TrainingArguments) -> bool:
    """Whether no option was chosen that only ordinary fine-tuning has."""
    names = ("freeze", "teacher", "sweep", "layers", "patience", "validation_share")
    chosen = settings.calibrate or any(getattr(settings, name) is not None for name in names)
    defaults = {field.name: field.default for field in dataclasses.fields(arguments)}
    return not chosen and all(getattr(arguments, name) == defaults[name] for name in _ORDINARY)


def has_few_labels(task: Task, rows: Dataset) -> bool:
    """Whether texts have classes, 8 rows or more (4 of each of two), and fewer than `FEW` of a class on average."""
    if task.name != "text-classification" or task.config.problem_type not in (SINGLE, MULTI):
        return False
    return 8 <= len(rows) < FEW * len(task.id2label)


def targets_of(labels: int, features: Dataset) -> np.ndarray:
    """(features, labels) zeros and ones."""
    label_ids = np.asarray(features["labels"][:])
    return label_ids.astype(np.float32) if label_ids.ndim == 2 else np.eye(labels, dtype=np.float32)[label_ids]


def planned_steps(rows: int) -> int:
    """The number of steps of the training on these rows."""
    return min(EPOCHS * math.ceil(rows / BATCH), _MOST_STEPS)


def append_mean_layer(model: Any) -> None:
    """Appends a layer after which each token has the mean of the hidden states, normed, and an identity as the pooler.

    Queries and keys are zero, so that attention is equal; values and output are identities; the feed-forward is zero.
    """
    bert, size = model.base_model, model.config.hidden_size
    layer = copy.deepcopy(bert.encoder.layer[-1])
    for parameter in layer.parameters():
        parameter.data.zero_()
    eye = torch.eye(size)
    layer.attention.self.value.weight.data.copy_(eye)
    layer.attention.output.dense.weight.data.copy_(eye / _SHARE)
    for norm in (layer.attention.output.LayerNorm, layer.output.LayerNorm):
        norm.weight.data.fill_(1.0)
    bert.encoder.layer.append(layer)
    model.config.num_hidden_layers += 1
    bert.pooler.dense.weight.data.copy_(eye * _SHARE)  # where tanh is nearly linear
    bert.pooler.dense.bias.data.zero_()


def train(
    model: Any,
    features: Dataset,
    collate: Callable[..., Any],
    seed: int,
    class_weights: bool = False,
    bf16: bool = False,
    after_step: Callable[[], object] = lambda: None,
) -> list[dict[str, Any]]:
    """Trains the encoder, with `bf16` in mixed precision, then the head. `after_step` may stop it by an exception.

    Returns:
        The log: an entry of each step, as Trainer logs it, and one of the end.
    """
    began, tokens, log = time.perf_counter(), 0, list[dict[str, Any]]()
    targets = targets_of(model.config.num_labels, features)
    encoder = model.base_model.encoder
    before = {name: weight.clone() for name, weight in encoder.state_dict().items()}
    with contextlib.closing(_contrastive_steps(model, features, targets, collate, seed, bf16)) as steps:
        for loss, count in steps:
            tokens += count
            seconds = time.perf_counter() - began
            log.append({"step": len(log) + 1, "loss": loss, "tokens": tokens, "seconds": seconds})
            after_step()
    encoder.load_state_dict({name: (before[name] + weight) / 2 for name, weight in encoder.state_dict().items()})
    model.eval()
    append_mean_layer(model)
    fit_head(model, features, targets, collate, class_weights)
    seconds = round(time.perf_counter() - began, 3)
    return [*log, {"step": len(log), "tokens": tokens, "seconds": seconds}]


def _contrastive_steps(
    model: Any, features: Dataset, targets: np.ndarray, collate: Callable[..., Any], seed: int, bf16: bool
) -> Generator[tuple[float, int], None, None]:
    """Trains the layers so that the mean hidden states of rows with the same labels are similar, and shows a bar.

    The loss is that of supervised contrastive learning (Khosla et al. 2020). A pair of rows with several labels
    weighs as the share of their labels that both have.

    Yields:
        Loss and number of tokens of each step.
    """
    bert, rows = model.base_model.train(), as_rows(inputs_of(model, features)[:])
    bert.embeddings.requires_grad_(False)  # a third of the time, and no better
    parameters = [*bert.encoder.parameters()]
    generator, labels = np.random.default_rng(seed), torch.from_numpy(targets)
    steps: list[list[int]] = []
    while len(steps) < planned_steps(len(rows)):
        steps += _batches(targets, generator)
    steps = steps[: planned_steps(len(rows))]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=len(steps) + 1, pct_start=0.1)
    torch.manual_seed(seed)
    for batch in Bar(steps, total=len(steps), desc="training", unit="steps", leave=False):
        inputs = {name: tensor.to(model.device) for name, tensor in collate([rows[row] for row in batch]).items()}
        with torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
            states = bert(**inputs).last_hidden_state.float()
        vectors = nn.functional.normalize(_mean(states, inputs["attention_mask"]), dim=1)
        loss = _contrastive_loss(vectors, labels[batch].to(vectors))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        yield float(loss.detach()), sum(len(rows[row]["input_ids"]) for row in batch)


def _mean(states: Tensor, mask: Tensor) -> Tensor:
    """(B, S, H), (B, S) → (B, H)."""
    mask = mask[..., None].to(states.dtype)
    return (states * mask).sum(1) / mask.sum(1)


def _contrastive_loss(vectors: Tensor, labels: Tensor) -> Tensor:
    """(B, H) of norm 1, (B, labels) → the mean over rows that have a positive."""
    own = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    log_probs = (vectors @ vectors.T / _TEMPERATURE).masked_fill(own, -1e9).log_softmax(1)
    both = labels @ labels.T
    weights = (both / (labels.sum(1)[:, None] + labels.sum(1) - both).clamp(min=1)).masked_fill(own, 0.0)
    total = weights.sum(1)
    return -((log_probs * weights).sum(1) / total.clamp(min=1e-6))[total > 0].sum() / max(int((total > 0).sum()), 1)


def _batches(targets: np.ndarray, generator: np.random.Generator) -> Iterator[list[int]]:
    """Batches of an epoch, of pairs of rows that share a label, in random order."""
    order = generator.permutation(len(targets))
    pairs: list[list[int]] = []
    for row in order[np.lexsort(targets[order].T)].tolist():  # stable: equal labels are together, in random order
        if pairs and len(pairs[-1]) == 1 and targets[row] @ targets[pairs[-1][0]]:
            pairs[-1].append(row)
        else:
            pairs.append([row])
    mixed = np.concatenate([pairs[place] for place in generator.permutation(len(pairs))])
    count = max(1, round(len(mixed) / BATCH))
    yield from (batch.tolist() for batch in np.array_split(mixed, count))


def fit_head(
    model: Any,
    features: Dataset,
    targets: np.ndarray,
    collate: Callable[..., Any],
    class_weights: bool = False,
) -> None:
    """Sets the classifier to the logistic regression of the pooled vectors."""
    head = model.classifier
    model.classifier = nn.Identity()
    try:
        vectors = np.stack(logits_of_rows(model, collate, as_rows(inputs_of(model, features)[:]))).astype(np.float64)
    finally:
        model.classifier = head
    centre = vectors.mean(0)
    scale = np.sqrt(((vectors - centre) ** 2).sum(1).mean()) or 1.0
    vectors = (vectors - centre) / scale
    fit = LogisticRegression(C=_PENALTY, max_iter=1000, class_weight="balanced" if class_weights else None).fit
    weight, bias = np.zeros(head.weight.shape), np.full(len(head.bias), _ABSENT)
    if model.config.problem_type == SINGLE and len({*targets.argmax(1).tolist()}) > 1:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The number of unique classes")  # is large beside few rows
            fitted = fit(vectors, targets.argmax(1))
        halves = np.array([[-0.5], [0.5]]) if len(fitted.classes_) == 2 else np.eye(len(fitted.classes_))
        weight[fitted.classes_], bias[fitted.classes_] = halves @ fitted.coef_, halves @ fitted.intercept_
    else:
        for label, has in enumerate(targets.T):
            if 0 < has.sum() < len(has):
                fitted = fit(vectors, has)
                weight[label], bias[label] = fitted.coef_[0], fitted.intercept_[0]
            elif has.all():
                bias[label] = -_ABSENT
    head.weight.data.copy_(torch.from_numpy(weight / scale))
    head.bias.data.copy_(torch.from_numpy(bias - weight @ centre / scale))
