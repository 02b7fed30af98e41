"""Pretraining heads: masked language model and next-sentence prediction (Devlin et al. 2019, section 3.1)."""

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_outputs import BaseModelOutputWithPooling, MaskedLMOutput, NextSentencePredictorOutput
from transformers.utils import ModelOutput, TransformersKwargs
from transformers.utils.generic import can_return_tuple

from .backbone_mybert import MyBertModel, MyBertPreTrainedModel
from .configuration_mybert import MyBertConfig
from .operations_mybert import at_least_one, check_labels, check_places, linear, mean_cross_entropy


class MyBertPredictionHeadTransform(nn.Module):
    """dense → activation → norm, before the vocabulary projection."""

    def __init__(self, config: MyBertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(…, H) → (…, H)."""
        return self.LayerNorm(self.activation(linear(self.dense, hidden_states)))


class MyBertLMPredictionHead(nn.Module):
    """The vocabulary projection, tied to the word embedding, with its own bias."""

    def __init__(self, config: MyBertConfig):
        super().__init__()
        self.transform = MyBertPredictionHeadTransform(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))  # tied to decoder.bias, BERT's name on disk

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(…, H) → (…, V)."""
        return linear(self.decoder, self.transform(hidden_states))


class MyBertPreTrainingHeads(nn.Module):
    """Both pretraining heads, or one of them."""

    def __init__(self, config: MyBertConfig, masked_lm: bool = True, next_sentence: bool = True):
        super().__init__()
        if masked_lm:
            self.predictions = MyBertLMPredictionHead(config)
        if next_sentence:
            self.seq_relationship = nn.Linear(config.hidden_size, 2)

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Hidden states (…, H) → (…, V); pooled (N, H) → (N, 2); or both, one after the other."""
        outputs = tuple(head(x) for head, x in zip(self.children(), inputs, strict=True))
        return outputs[0] if len(outputs) == 1 else outputs


@dataclass
class MyBertForPreTrainingOutput(ModelOutput):
    """
    Attributes:
        prediction_logits: (B, S, V) or (1, T, V); with `sparse_logits` (n_labelled, V), in flat order.
        seq_relationship_logits: (N, 2); class 1: a random next segment.
        mlm_loss, nsp_loss: means over labelled tokens and over pairs; `loss` is their sum.
    """

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    mlm_loss: Tensor | None = None
    nsp_loss: Tensor | None = None

    def to_tuple(self) -> tuple:
        """The values that BERT's output has; without both means."""
        return tuple(value for name, value in self.items() if name not in ("mlm_loss", "nsp_loss"))


class MaskedLMMixin:
    """The masked-language-model loss, with logits at all positions or at the labelled ones only.

    The vocabulary projection is tied to the word embedding, under the names that transformers looks for.
    """

    _tied_weights_keys = {  # noqa: RUF012
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        super()._init_weights(module)
        if isinstance(module, MyBertLMPredictionHead):
            init.zeros_(module.bias)

    def get_output_embeddings(self) -> nn.Linear:
        return self.cls.predictions.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear):
        self.cls.predictions.decoder = new_embeddings
        # Untied, both biases are saved as in BERT; as one shared tensor, one of them would be missing on disk.
        bias = new_embeddings.bias
        self.cls.predictions.bias = bias if self.config.tie_word_embeddings else nn.Parameter(bias.detach().clone())

    def _places(
        self,
        inputs: Tensor | None,
        labels: Tensor | None,
        masked_lm_positions: Tensor | None,
        sparse_logits: bool | None,
    ) -> Tensor | None:
        """(n_labelled,) places in the flattened batch, (B, S, …) or (1, T, …), that get logits; None: all.

        Raises:
            ValueError: the labels do not fit the batch or the vocabulary.
        """
        if labels is None or inputs is None:
            return None
        places = inputs.shape[0] * inputs.shape[1]
        check_labels("labels", labels, self.config.vocab_size, "vocab_size", places, self.training)
        if not (masked_lm_positions is not None if sparse_logits is None else sparse_logits):
            return None
        if masked_lm_positions is None:
            return (labels.flatten() != -100).nonzero().squeeze(1)
        if masked_lm_positions.dim() != 1 or masked_lm_positions.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                f"masked_lm_positions is {masked_lm_positions.dtype} of shape {tuple(masked_lm_positions.shape)}, "
                "expected integers of shape (n_labelled,)"
            )
        remedy = "they are places in labels.flatten()"
        check_places("masked_lm_positions", masked_lm_positions, places, remedy, self.training)
        return masked_lm_positions

    def predict_tokens(
        self,
        inputs: tuple[Tensor | None, ...],
        labels: Tensor | None,
        masked_lm_positions: Tensor | None,
        sparse_logits: bool | None,
        num_items_in_batch: Tensor | int | None,
        **kwargs,
    ) -> tuple[BaseModelOutputWithPooling, Tensor, Tensor | None]:
        """`input_ids` … `inputs_embeds`, and `kwargs` of the encoder → its outputs, logits (B, S, V) or (n_labelled,
        V), and the loss; None without labels."""
        ids, *_, embeds = inputs
        places = self._places(embeds if ids is None else ids, labels, masked_lm_positions, sparse_logits)
        outputs = self.bert(*inputs, tokens_to_keep=places, return_dict=True, **kwargs)
        logits = self.cls.predictions(outputs.last_hidden_state)
        if labels is None:
            return outputs, logits, None
        labels = labels.flatten() if places is None else labels.flatten()[places]
        return outputs, logits, mean_cross_entropy(logits, labels, num_items_in_batch)


class MyBertForPreTraining(MaskedLMMixin, MyBertPreTrainedModel):
    """Both pretraining objectives: masked language model and next-sentence prediction (Devlin et al. 2019, 3.1)."""

    def __init__(self, config: MyBertConfig):
        super().__init__(config)
        self.bert = MyBertModel(config)
        self.cls = MyBertPreTrainingHeads(config)
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
        next_sentence_label: Tensor | None = None,
        masked_lm_positions: Tensor | None = None,
        sparse_logits: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        num_pairs_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MyBertForPreTrainingOutput | tuple:
        """
        Args:
            input_ids … inputs_embeds, kwargs: see `MyBertModel.forward`.
            labels: like `input_ids`; the original id at masked positions, -100 elsewhere.
            next_sentence_label: (B,) or (N,); 0 for the true continuation, 1 for a random segment.
            masked_lm_positions: (n_labelled,) places where `labels.flatten()` is not -100, from the collator; logits
                are computed there only, without a synchronisation on CUDA. Unlabelled places among them are ignored.
            sparse_logits: with labels, compute logits at labelled positions only, with the same losses (default: if
                `masked_lm_positions` is given).
            num_items_in_batch, num_pairs_in_batch: labelled tokens and pairs of the whole optimizer step, over all
                accumulated batches and processes; each loss is a sum divided by them. Trainer passes the first. With
                only the first, the mean NSP loss of a batch is weighted by its share of the labelled tokens.

        Returns:
            Losses and logits. Losses are finite even if nothing is labelled.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs, logits, mlm_loss = self.predict_tokens(
            inputs, labels, masked_lm_positions, sparse_logits, num_items_in_batch, **kwargs
        )
        seq_relationship_logits = self.cls.seq_relationship(outputs.pooler_output)
        nsp_loss = None
        if next_sentence_label is not None:
            pairs = len(seq_relationship_logits)
            check_labels("next_sentence_label", next_sentence_label, 2, "next or random", pairs, self.training)
            nsp_loss = mean_cross_entropy(seq_relationship_logits, next_sentence_label, num_pairs_in_batch)
            if num_pairs_in_batch is None and num_items_in_batch is not None and labels is not None:
                nsp_loss = nsp_loss * ((labels != -100).sum() / at_least_one(num_items_in_batch))
        losses = [loss for loss in (mlm_loss, nsp_loss) if loss is not None]
        loss, inside = sum(losses) if losses else None, (outputs.hidden_states, outputs.attentions)
        return MyBertForPreTrainingOutput(loss, logits, seq_relationship_logits, *inside, mlm_loss, nsp_loss)


class MyBertForMaskedLM(MaskedLMMixin, MyBertPreTrainedModel):
    """Masked language model only."""

    def __init__(self, config: MyBertConfig):
        super().__init__(config)
        self.bert = MyBertModel(config, add_pooling_layer=False)
        self.cls = MyBertPreTrainingHeads(config, next_sentence=False)
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
        masked_lm_positions: Tensor | None = None,
        sparse_logits: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MaskedLMOutput | tuple:
        """Arguments as in `MyBertForPreTraining.forward`; returns `loss`, `logits`, `hidden_states`, `attentions`."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs, logits, loss = self.predict_tokens(
            inputs, labels, masked_lm_positions, sparse_logits, num_items_in_batch, **kwargs
        )
        return MaskedLMOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class MyBertForNextSentencePrediction(MyBertPreTrainedModel):
    """Next-sentence prediction only."""

    def __init__(self, config: MyBertConfig):
        super().__init__(config)
        self.bert = MyBertModel(config)
        self.cls = MyBertPreTrainingHeads(config, masked_lm=False)
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
    ) -> NextSentencePredictorOutput | tuple:
        """As `MyBertForPreTraining`: `labels` are its `next_sentence_label`, and items are pairs."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs = self.bert(*inputs, tokens_to_keep=(), return_dict=True, **kwargs)
        logits = self.cls.seq_relationship(outputs.pooler_output)
        loss = None
        if labels is not None:
            check_labels("labels", labels, 2, "next or random", len(logits), self.training)
            loss = mean_cross_entropy(logits, labels, num_items_in_batch)
        return NextSentencePredictorOutput(loss, logits, outputs.hidden_states, outputs.attentions)
