"""The teacher of a distillation, and the losses between its outputs and the student's.

Shapes: `T` tokens of all sequences, `N` sequences, `L` longest of them, `H` hidden size, `A` relation heads, `D` size
of a relation head.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import PartialState
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, kl_div, log_softmax, mse_loss, pad

from modeling_mybert import MyBertForMaskedLM, MyBertForPreTraining
from mybert.common.errors import UserError
from mybert.common.quantities import counted
from mybert.distillation.settings import WITH_HEAD, WITHOUT_HEAD, DistillSettings, weights
from mybert.inference.checkpoint import open_checkpoint
from mybert.inference.checkpoint_tokenizer import trained_tokens
from mybert.pretraining.data.masking import IGNORED
from mybert.training.objective import soft_loss
from tokenization import MyBertTokenizer

logger = logging.getLogger(__name__)

_INPUTS = ("input_ids", "token_type_ids", "position_ids", "cu_seq_lens_q", "max_length_q")
_RELATION_LAYER = {24: 21}
"""Layer whose relations are learned, by the teacher's number of layers; else the last (Wang et al. 2021, 4.1)."""
_LEAST = -1e4  # a score whose probability is zero, and finite so that zero times it is zero


def load_teacher(
    settings: DistillSettings, tokenizer: MyBertTokenizer, longest: int
) -> tuple[MyBertForMaskedLM, bool]:
    """The teacher, and whether it has a masked-language-model head; `longest` as in `build_model`."""
    name = settings.teacher
    opened = open_checkpoint(name, MyBertForMaskedLM, new_head=True)
    model, own = opened.model, opened.tokenizer
    if different := own.difference_from(tokenizer):
        raise UserError(
            f"--teacher {name} has another {different} than the corpus; build the corpus with "
            f"`mybert corpus … --tokenizer {name}`"
        )
    if longest > model.config.max_position_embeddings:
        raise UserError(
            f"the corpus has a sequence of {longest} tokens, but the teacher {name} has only "
            f"{model.config.max_position_embeddings} positions; build the corpus with a smaller --max-length"
        )
    if longest > (trained := trained_tokens(model.config, own)) and PartialState().is_main_process:
        logger.warning(
            "the corpus has a sequence of %d tokens, but the teacher %s was trained on sequences of at most %d "
            "tokens; its later position embeddings are untrained. Build the corpus with "
            "`mybert corpus … --max-length %d`",
            *(longest, name, trained, trained),
        )
    return model.requires_grad_(False), not opened.missing


@dataclass
class Comparison:
    """Computes the losses between a teacher, in evaluation mode, and a student for a batch."""

    teacher: MyBertForMaskedLM
    weights: dict[str, float]
    temperature: float
    relation_heads: int

    @classmethod
    def of(
        cls, settings: DistillSettings, teacher: MyBertForMaskedLM, has_head: bool, student: MyBertForPreTraining
    ) -> "Comparison":
        """Chooses default losses if none are given, and checks that they fit both models."""
        config, own = teacher.config, student.config
        if settings.losses is None:
            chosen = dict(WITH_HEAD if has_head else WITHOUT_HEAD)
            if own.hidden_size != config.hidden_size:
                chosen.pop("cosine", None)
        else:
            chosen = weights(settings.losses)
        if "soft" in chosen and not has_head:
            raise UserError(
                f"--losses soft: the teacher {settings.teacher} has no masked-language-model head; use relations"
            )
        for name in chosen.keys() & {"cosine", "mse"}:
            if own.hidden_size != config.hidden_size:
                raise UserError(
                    f"--losses {name}: the hidden size of the teacher is {config.hidden_size}, of the student "
                    f"{own.hidden_size}; use relations"
                )
        for option, name in (("relation_heads", "relations"), ("temperature", "soft")):
            if getattr(settings, option) != getattr(DistillSettings, option) and name not in chosen:
                raise UserError(f"--{option.replace('_', '-')} has no effect without the loss {name}; leave it out")
        heads = settings.relation_heads or config.num_attention_heads
        if "relations" in chosen and (config.hidden_size % heads or own.hidden_size % heads):
            raise UserError(
                f"--relation-heads {heads} must divide the hidden sizes {config.hidden_size} of the teacher and "
                f"{own.hidden_size} of the student"
            )
        return cls(teacher, chosen, settings.temperature, heads)

    def description(self, student: MyBertForPreTraining) -> str:
        """The lines about both models and the losses in the plan of a run."""
        models = [
            f"{name} {counted(model.config.num_hidden_layers, 'layer')} of {model.config.hidden_size}, "
            f"{model.num_parameters():,} parameters"
            for name, model in (("teacher:", self.teacher), ("student:", student))
        ]
        reason = "each epoch has new masks" if self.reads_masked else "the hidden states of a corpus are too large"
        return "\n".join(
            [
                *models,
                f"losses: {', '.join(f'{name} {weight:g}' for name, weight in self.weights.items())}",
                f"the teacher's outputs are computed with every batch and not stored: {reason}",
            ]
        )

    @property
    def names(self) -> list[str]:
        """The losses that compare with the teacher."""
        return [name for name in self.weights if name != "hard"]

    @property
    def reads_masked(self) -> bool:
        """Whether the inputs are masked. They are not if no loss uses the predictions of masked tokens."""
        return bool(self.weights.keys() & {"soft", "hard"})

    def student_states(self, student: MyBertForPreTraining) -> list[int]:
        """The layers whose hidden states the losses need, for `output_hidden_states`."""
        return self._states(student.config.num_hidden_layers, student.config.num_hidden_layers)

    def _states(self, layers: int, relation_layer: int) -> list[int]:
        wanted = set(range(1, layers + 1)) if "mse" in self.weights else set()
        wanted |= {layers} if "cosine" in self.weights else set()
        wanted |= {relation_layer - 1} if "relations" in self.weights else set()
        return sorted(wanted)

    def losses(
        self, student: nn.Module, inputs: dict[str, Any], logits: Tensor, states: Any
    ) -> tuple[dict[str, Tensor], Tensor | None]:
        """
        Args:
            student: the model itself, not its wrapper.
            inputs: of the student, with labels.
            logits: (n, V) of the student at `masked_lm_positions`.
            states: hidden states of the student, a tuple; None if no loss needs them.

        Returns:
            The mean of each loss over labelled or all real tokens, in the order of `names`; and the logits (n, V) of
            the teacher, None if no loss needs them.
        """
        depth = self.teacher.config.num_hidden_layers
        relation_layer = _RELATION_LAYER.get(depth, depth)
        batch = {name: inputs[name] for name in _INPUTS if name in inputs}
        labels = inputs["labels"].flatten()[inputs["masked_lm_positions"]]
        with torch.no_grad():
            wanted = self._states(depth, relation_layer) or False
            places = inputs["masked_lm_positions"] if "soft" in self.weights else ()
            output: Any = self.teacher.bert(**batch, output_hidden_states=wanted, tokens_to_keep=places)
        losses, expected = {}, None
        if "soft" in self.weights:
            with torch.no_grad():
                expected = self.teacher.cls.predictions(output.last_hidden_state)
            real = labels != IGNORED
            size = min(logits.shape[-1], expected.shape[-1])  # one of them may have rows beyond the vocabulary
            divergence = soft_loss(logits[:, :size], expected[:, :size], self.temperature)
            losses["soft"] = (divergence * real).sum() / real.sum().clamp(min=1)
        if "cosine" in self.weights:
            cosines = cosine_similarity(states[-1][0].float(), output.hidden_states[-1][0].float(), dim=-1)
            losses["cosine"] = 1 - cosines.mean()  # Sanh et al. 2019, section 3
        if "mse" in self.weights:
            layers = len(states) - 1
            pairs = [(layer, round(layer * depth / layers)) for layer in range(1, layers + 1)]
            errors = [mse_loss(states[i][0].float(), output.hidden_states[j][0].float()) for i, j in pairs]
            losses["mse"] = torch.stack(errors).mean()  # Jiao et al. 2020, section 3.1
        if "relations" in self.weights:
            own = _projections(student, len(states) - 1, states[-2][0])
            with torch.no_grad():
                other = _projections(self.teacher, relation_layer, output.hidden_states[relation_layer - 1][0])
            losses["relations"] = relation_loss(own, other, inputs["cu_seq_lens_q"].diff(), self.relation_heads)
        return {name: losses[name] for name in self.names}, expected

    def student_inputs(self, student: MyBertForPreTraining, inputs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the student: unmasked, without labels, if no loss uses masked tokens."""
        inputs = {**inputs, "sparse_logits": True}
        inputs["output_hidden_states"] = self.student_states(student) or False
        if not self.reads_masked:
            labels = inputs["labels"]
            inputs["input_ids"] = torch.where(labels == IGNORED, inputs["input_ids"], labels)
            inputs["labels"] = torch.full_like(labels, IGNORED)
            inputs["masked_lm_positions"] = inputs["masked_lm_positions"][:0]
            inputs.pop("next_sentence_label", None)
        return inputs

    def total(self, hard: Any, parts: Mapping[str, Any]) -> Any:
        """The weighted sum of the pretraining loss and the losses by name."""
        total = sum(self.weights[name] * part for name, part in parts.items())
        # no zero gradients, which weight decay follows
        return self.weights["hard"] * hard + total if "hard" in self.weights else total


def relation_loss(student: list[Tensor], teacher: list[Tensor], lengths: Tensor, heads: int) -> Tensor:
    """KL(teacher || student) of the self-attention relations: mean over positions, sum over queries, keys, values.

    A relation is softmax(X Xᵀ / √D) for the vectors X of a sequence in a relation head (Wang et al. 2021, section
    3.1). Hidden sizes of student and teacher may differ.

    Args:
        student, teacher: queries, keys and values, (T, H) each.
        lengths: (N,) of the sequences.
    """
    total = torch.zeros((), device=lengths.device)
    for own, other in zip(student, teacher, strict=True):
        relations, real = _relations(own, lengths, heads)
        expected, _ = _relations(other, lengths, heads)
        divergence = kl_div(relations, expected, reduction="none", log_target=True).sum(-1)  # (N, A, L)
        total = total + divergence.transpose(1, 2)[real].mean()
    return total


def _relations(vectors: Tensor, lengths: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """(N, A, L, L) log-probabilities, and (N, L) the real tokens."""
    longest = int(lengths.max())
    real = torch.arange(longest, device=vectors.device) < lengths.to(vectors.device)[:, None]
    sequences = vectors.float().split(lengths.tolist())
    grid = torch.stack([pad(sequence, (0, 0, 0, longest - len(sequence))) for sequence in sequences])
    x = grid.unflatten(-1, (heads, -1)).transpose(1, 2)  # (N, A, L, D)
    scores = x @ x.transpose(-1, -2) / x.shape[-1] ** 0.5
    return log_softmax(scores.masked_fill(~real[:, None, None], _LEAST), -1), real


def _projections(model: Any, layer: int, states: Tensor) -> list[Tensor]:
    """Queries, keys and values of layer number `layer` (from 1), computed from its input (T, H)."""
    attention = model.bert.encoder.layer[layer - 1].attention.self
    return [attention.query(states), attention.key(states), attention.value(states)]
