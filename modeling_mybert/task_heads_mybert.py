"""Fine-tuning heads: sequence and token classification, question answering, multiple choice.

Modules, arguments and outputs are named as in transformers' BERT; batches are padded or packed. Every loss is a sum
over labels divided by `num_items_in_batch` (default: by their number), so that accumulated batches equal one big
batch. Trainer passes it with `labels`, `mybert finetune` for answer spans too.
"""

from typing import Unpack

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import (
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import TransformersKwargs
from transformers.utils.generic import can_return_tuple

from .backbone_mybert import MyBertModel, MyBertPreTrainedModel
from .configuration_mybert import MyBertConfig
from .operations_mybert import (
    MyBertDropout,
    at_least_float32,
    at_least_one,
    can_read_without_sync,
    check_labels,
    mean_cross_entropy,
)
from .padding_mybert import packed_layout


def _dropout(config: MyBertConfig) -> MyBertDropout:
    own = config.classifier_dropout
    return MyBertDropout(config.hidden_dropout_prob if own is None else own)


class MyBertForSequenceClassification(MyBertPreTrainedModel):
    """A class, several labels or a number per sequence, from its pooled [CLS] (Devlin et al. 2019, 4.1)."""

    def __init__(self, config: MyBertConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = MyBertModel(config)
        self.dropout = _dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput | tuple:
        """
        Args:
            input_ids … inputs_embeds, kwargs: see `MyBertModel.forward`; B is N for a packed batch.
            labels: by `config.problem_type`: (B,) classes for `single_label_classification`; (B, num_labels) zeros and
                ones for `multi_label_classification`; (B,) or (B, num_labels) numbers for `regression`. If it is None,
                it is set by the first labels: regression for one label, else single for integers, multi for floats.
            num_items_in_batch: label values of the whole optimizer step.

        Returns:
            `loss`, `logits` (B, num_labels), `hidden_states`, `attentions`.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs = self.bert(*inputs, tokens_to_keep=(), return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None if labels is None else self._loss(logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)

    def _loss(self, logits: Tensor, labels: Tensor, count: Tensor | int | None) -> Tensor:
        problem = self.config.problem_type
        if problem is None:
            integers = not (labels.is_floating_point() or labels.is_complex())
            several = "single_label_classification" if integers else "multi_label_classification"
            problem = self.config.problem_type = "regression" if self.num_labels == 1 else several
        if problem == "single_label_classification":
            check_labels("labels", labels, self.num_labels, "num_labels", logits.shape[0], self.training)
            return mean_cross_entropy(logits, labels, count)
        if labels.numel() != logits.numel():
            raise ValueError(
                f"labels has shape {tuple(labels.shape)}, but {problem} with num_labels={self.num_labels} expects "
                f"{tuple(logits.shape)}"
            )
        distance = nn.functional.mse_loss
        if problem == "multi_label_classification":
            distance = nn.functional.binary_cross_entropy_with_logits
        logits = at_least_float32(logits)
        total = distance(logits, labels.reshape(logits.shape).to(logits.dtype), reduction="sum")
        return total / at_least_one(labels.numel() if count is None else count)


class MyBertForTokenClassification(MyBertPreTrainedModel):
    """A class per token, from its last hidden state (Devlin et al. 2019, 5.3)."""

    def __init__(self, config: MyBertConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = MyBertModel(config, add_pooling_layer=False)
        self.dropout = _dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TokenClassifierOutput | tuple:
        """
        Args:
            input_ids … inputs_embeds, kwargs: see `MyBertModel.forward`.
            labels: like `input_ids`, -100 for no label.
            num_items_in_batch: labelled tokens of the whole optimizer step.

        Returns:
            `loss`, `logits` (B, S, num_labels) or (1, T, num_labels), `hidden_states`, `attentions`.
        """
        outputs = self.bert(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None
        if labels is not None:
            check_labels("labels", labels, self.num_labels, "num_labels", logits.shape[:-1].numel(), self.training)
            loss = mean_cross_entropy(logits, labels, num_items_in_batch)
        return TokenClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class MyBertForQuestionAnswering(MyBertPreTrainedModel):
    """Start and end of an answer, two scores per token (Devlin et al. 2019, 4.2 and 4.3)."""

    def __init__(self, config: MyBertConfig):
        super().__init__(config)
        if config.num_labels != 2:  # start and end; transformers' BERT sizes this head by the number of labels
            config.num_labels = 2
        self.bert = MyBertModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> QuestionAnsweringModelOutput | tuple:
        """
        Args:
            input_ids … inputs_embeds, kwargs: see `MyBertModel.forward`; B is N for a packed batch.
            start_positions, end_positions: (B,) first and last token of the answer, counted from the first column of
                its sequence; positions beyond the sequence or at padding are ignored.
            num_items_in_batch: answers of the whole optimizer step.

        Returns:
            `loss`, the mean of both cross-entropies over the real tokens; `start_logits` and `end_logits`, (B, S) with
            the lowest number at padding, or (1, T); `hidden_states`, `attentions`.

        Raises:
            ValueError: the number of positions is not that of the sequences, or a position is negative.
        """
        outputs = self.bert(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        logits = self.qa_outputs(outputs.last_hidden_state)
        cu_seq_lens = kwargs.get("cu_seq_lens_q")
        real = None if attention_mask is None or attention_mask.dim() != 2 else attention_mask.bool()
        per_sequence = logits
        if cu_seq_lens is not None:
            layout = packed_layout(cu_seq_lens, kwargs.get("max_length_q"), logits.shape[1])
            per_sequence, real = layout.to_grid(logits[0]), None if layout.mask is None else layout.mask[:, 0, 0]
        if real is not None:
            per_sequence = per_sequence.masked_fill(~real[..., None], torch.finfo(logits.dtype).min)
        loss = None
        if start_positions is not None and end_positions is not None:
            starts, ends = per_sequence.unbind(-1)
            loss = self._loss("start_positions", starts, start_positions, real, num_items_in_batch)
            loss = (loss + self._loss("end_positions", ends, end_positions, real, num_items_in_batch)) / 2
        start_logits, end_logits = (logits if cu_seq_lens is not None else per_sequence).unbind(-1)
        return QuestionAnsweringModelOutput(
            loss, start_logits.contiguous(), end_logits.contiguous(), outputs.hidden_states, outputs.attentions
        )

    def _loss(self, name: str, scores: Tensor, positions: Tensor, real: Tensor | None, count) -> Tensor:
        """(N, L) scores, (N,) positions, (N, L) real tokens or None for all."""
        positions, (sequences, length) = positions.flatten(), scores.shape
        if positions.numel() != sequences:
            raise ValueError(f"{name} has {positions.numel()} positions for {sequences} sequences")
        if can_read_without_sync(positions, self.training) and (positions < 0).any():
            raise ValueError(f"{name} holds {int(positions.min())}; positions start at 0 (0, [CLS]: no answer)")
        inside = positions < length
        if real is not None:
            inside &= real.gather(1, positions.clamp(0, length - 1)[:, None]).squeeze(1)
        return mean_cross_entropy(scores, positions.where(inside, -100), count)


class MyBertForMultipleChoice(MyBertPreTrainedModel):
    """The best of several choices, one score per choice from its pooled [CLS] (Devlin et al. 2019, 4.4)."""

    def __init__(self, config: MyBertConfig):
        super().__init__(config)
        self.bert = MyBertModel(config)
        self.dropout = _dropout(config)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_choices: int | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MultipleChoiceModelOutput | tuple:
        """
        Args:
            input_ids … position_ids: (B, C, S) for C choices per question; or a packed batch (1, T) of N = B·C
                sequences, the choices of a question in order.
            inputs_embeds: (B, C, S, H) or (1, T, H).
            labels: (B,) the right choice, 0 to C - 1.
            num_choices: C of a packed batch (default: N / number of labels).
            num_items_in_batch: questions of the whole optimizer step.
            kwargs: see `MyBertModel.forward`.

        Returns:
            `loss`, `logits` (B, C), `hidden_states` and `attentions` of B·C sequences.
        """
        grid = (input_ids, attention_mask, token_type_ids, position_ids)
        cu_seq_lens = kwargs.get("cu_seq_lens_q")
        if cu_seq_lens is None:
            inputs = input_ids if inputs_embeds is None else inputs_embeds
            if inputs is not None and inputs.dim() != (3 if inputs_embeds is None else 4):
                raise ValueError(f"the input has shape {tuple(inputs.shape)}, expected (batch, choices, sequence, …)")
            num_choices = 0 if inputs is None else inputs.shape[1]
            grid = tuple(
                x if x is None else x.flatten(0, 1) if x.dim() > 3 else x.reshape(-1, x.shape[-1]) for x in grid
            )
            inputs_embeds = inputs_embeds if inputs_embeds is None else inputs_embeds.flatten(0, 1)
        else:
            num_choices = _choices(cu_seq_lens.numel() - 1, num_choices, labels)
        outputs = self.bert(*grid, inputs_embeds, tokens_to_keep=(), return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(outputs.pooler_output)).view(-1, num_choices)
        loss = None
        if labels is not None:
            check_labels("labels", labels, num_choices, "num_choices", logits.shape[0], self.training)
            loss = mean_cross_entropy(logits, labels, num_items_in_batch)
        return MultipleChoiceModelOutput(loss, logits, outputs.hidden_states, outputs.attentions)


def _choices(sequences: int, num_choices: int | None, labels: Tensor | None) -> int:
    if num_choices is None and labels is None:
        raise ValueError("a packed batch of choices needs num_choices (or labels)")
    num_choices = sequences // max(1, labels.numel()) if num_choices is None else num_choices
    if num_choices < 1 or sequences % num_choices:
        raise ValueError(f"a packed batch of {sequences} sequences is no multiple of num_choices={num_choices}")
    return num_choices
