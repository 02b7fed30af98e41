"""The decoder: causal BERT with cross-attention, a key-value cache and `generate`.

Tensors are named as in transformers' BERT with `is_decoder` and `add_cross_attention`, so that checkpoints interchange
both ways. For the letters of shapes see `decoder_layers_mybert`.
"""

from copy import copy
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache, GenerationMixin
from transformers.cache_utils import Cache
from transformers.integrations.executorch import register_dynamic_cache_export_support
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    CausalLMOutputWithCrossAttentions,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging
from transformers.utils.generic import TransformersKwargs, can_return_tuple
from transformers.utils.output_capturing import capture_outputs

from .attention_mybert import works_on_tokens
from .backbone_mybert import MyBertPreTrainedModel
from .configuration_mybert import MyBertConfig
from .decoder_layers_mybert import (
    MyBertCausalAttention,
    MyBertCrossAttention,
    MyBertDecoderLayer,
    MyBertDecoderStack,
)
from .encoder_mybert import MyBertEmbeddings
from .input_checks_mybert import check_inputs, check_labels, check_shape
from .losses_mybert import mean_cross_entropy
from .pretraining_heads_mybert import MyBertPreTrainingHeads, VocabularyHeadMixin

logger = logging.get_logger(__name__)

CACHE = "cache" if "cache" in CausalLMOutputWithCrossAttentions.__dataclass_fields__ else "past_key_values"
"""The name of the cache in transformers' arguments and outputs: `cache` since 5.24, where both names are accepted."""


class MyBertDecoder(MyBertPreTrainedModel):
    """Embeddings and decoder layers, without a head."""

    _no_split_modules = ["MyBertEmbeddings", "MyBertDecoderLayer"]  # noqa: RUF012 - transformers' own convention
    _can_record_outputs = {  # noqa: RUF012
        "hidden_states": MyBertDecoderLayer,
        "attentions": MyBertCausalAttention,
        "cross_attentions": MyBertCrossAttention,
    }

    def __init__(self, config: MyBertConfig):
        super().__init__(config)
        if config.int8_outliers is not None:
            raise ValueError("a causal model has no int8 form; use the checkpoint that this one was quantised from")
        self.embeddings = MyBertEmbeddings(config)
        self.encoder = MyBertDecoderStack(config)
        self.gradient_checkpointing = False
        self.post_init()

    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions | tuple[Any, ...]:
        """Arguments as in `MyBertLMHeadModel.forward`; returns `last_hidden_state` (B, S, H) and more.

        Raises:
            ValueError: contradicting arguments, wrong shapes, an empty batch, ids out of range, a sequence longer than
                the position table, a packed batch.
        """
        if kwargs.get("cu_seq_lens_q") is not None:
            raise ValueError("the decoder does not support packed batches (cu_seq_lens_q): pad them")
        past_key_values = kwargs.pop("cache", past_key_values)
        inputs = check_inputs(self, input_ids, token_type_ids, position_ids, inputs_embeds)
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if self.training and self.gradient_checkpointing and torch.is_grad_enabled():
            use_cache, past_key_values = False, None  # recomputed layers would fill it twice
        if use_cache and torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling():
            register_dynamic_cache_export_support()  # torch.export knows only registered types of outputs
        if use_cache and past_key_values is None:
            past_key_values = self._new_cache(encoder_hidden_states is not None)
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        self._check_against_past(inputs, attention_mask, position_ids, past)
        self._check_encoder(inputs, encoder_hidden_states, encoder_attention_mask)
        if position_ids is None:
            position_ids = torch.arange(inputs.shape[1], device=inputs.device)[None] + past
        hidden_states = self.embeddings(input_ids, token_type_ids, position_ids, inputs_embeds)

        if output_attentions is None:
            output_attentions = self.config.output_attentions
        config = self._config_of_backend(output_attentions)
        mask = create_causal_mask(config, hidden_states, attention_mask, past_key_values)
        if encoder_hidden_states is not None:
            encoder_attention_mask = create_bidirectional_mask(
                config, hidden_states, encoder_attention_mask, encoder_hidden_states
            )
        hidden_states = self.encoder(
            hidden_states,
            mask,
            encoder_hidden_states,
            encoder_attention_mask,
            config._attn_implementation,
            past_key_values,  # by position: recomputed layers of transformers 5.23 drop a keyword of this name
        )
        cache: dict[str, Any] = {CACHE: past_key_values if use_cache else None}
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden_states, **cache)

    def _new_cache(self, cross_attention: bool) -> Cache:
        cache = DynamicCache(config=self.config)
        return EncoderDecoderCache(cache, DynamicCache(config=self.config)) if cross_attention else cache

    def _check_against_past(
        self, inputs: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None, past: int | Tensor
    ) -> None:
        if isinstance(past, Tensor):
            return  # a static cache; reading its length waits for the device
        batch, columns = inputs.shape[0], past + inputs.shape[1]
        if attention_mask is not None and attention_mask.dim() == 2 and attention_mask.shape != (batch, columns):
            raise ValueError(
                f"attention_mask has shape {tuple(attention_mask.shape)}, expected {(batch, columns)}: "
                f"{past} cached and {inputs.shape[1]} new columns"
            )
        if position_ids is None and columns > self.config.max_position_embeddings:
            raise ValueError(
                f"a sequence has {columns} positions, more than max_position_embeddings="
                f"{self.config.max_position_embeddings}; generate fewer tokens or train with more positions"
            )

    def _check_encoder(
        self, inputs: Tensor, encoder_hidden_states: Tensor | None, encoder_attention_mask: Tensor | None
    ) -> None:
        if encoder_hidden_states is None:
            return
        if not self.config.add_cross_attention:
            raise ValueError("encoder_hidden_states needs cross-attention: set add_cross_attention=True")
        rows, columns, width = encoder_hidden_states.shape
        if rows != inputs.shape[0] or width != self.config.hidden_size:
            raise ValueError(
                f"encoder_hidden_states has shape {(rows, columns, width)}, expected "
                f"({inputs.shape[0]}, any, {self.config.hidden_size})"
            )
        check_shape("encoder_attention_mask", encoder_attention_mask, (rows, columns))

    def _config_of_backend(self, output_attentions: bool) -> MyBertConfig:
        """The configuration for attention: eager if probabilities are returned, sdpa for backends of ragged tokens."""
        wanted = self.config._attn_implementation
        able = "eager" if output_attentions else "sdpa" if works_on_tokens(wanted) else wanted
        if able == wanted:
            return self.config
        if not output_attentions:
            logger.warning_once(f"the decoder does not support attn_implementation={wanted!r}; using sdpa")
        config = copy(self.config)
        config._attn_implementation = able
        return config


class MyBertLMHeadModel(VocabularyHeadMixin, MyBertPreTrainedModel, GenerationMixin):
    """A causal language model; with `add_cross_attention` the decoder of a sequence-to-sequence model.

    It is causal whether or not `is_decoder` is set; if not, it uses a copy of the configuration with it set.

    Example:
        >>> model = MyBertLMHeadModel(MyBertConfig.from_size("tiny", is_decoder=True))
        >>> model.generate(torch.tensor([[2, 7, 3]]), max_new_tokens=4, min_new_tokens=4).shape
        torch.Size([1, 7])
    """

    def __init__(self, config: MyBertConfig):
        if not config.is_decoder:
            config = copy(config)
            config.is_decoder = True
        super().__init__(config)
        self.bert = MyBertDecoder(config)
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
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> CausalLMOutputWithCrossAttentions | tuple[Any, ...]:
        """
        Args:
            input_ids: (B, S), padded on either side; with a cache, the new columns only.
            attention_mask: (B, C + S), nonzero for real tokens; None: all are real.
            token_type_ids: (B, S); None: segment 0.
            position_ids: (B, S) or (1, S); None: the column. `generate` counts real tokens on left padding.
            inputs_embeds: (B, S, H) in place of `input_ids`.
            encoder_hidden_states: (B, K, H); None: no cross-attention.
            encoder_attention_mask: (B, K), nonzero for real tokens of the encoder.
            labels: (B, S), ids of `input_ids` or -100; the logits of a column predict the label of the next.
            past_key_values: `DynamicCache`, or `EncoderDecoderCache` to cache cross-attention too; also named `cache`.
            use_cache: return a cache (default: `config.use_cache`); off with labels and while training with gradient
                checkpointing.
            logits_to_keep: number of last columns that get logits (0: all), or the columns themselves.
            num_items_in_batch: predicted labels of the whole optimizer step (passed by Trainer).
            kwargs: `output_attentions`, `output_hidden_states`, `return_dict`; and `shift_labels` (B, S) in place of
                `labels`, already shifted. It is in kwargs because Trainer requires every label argument in the batch.

        Returns:
            `loss`, `logits` (B, S, V), `past_key_values`, `hidden_states`, `attentions` (B, A, S, C + S) and
            `cross_attentions` (B, A, S, K) of each layer.
        """
        shift_labels = kwargs.pop("shift_labels", None)
        outputs = self.bert(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            encoder_hidden_states,
            encoder_attention_mask,
            past_key_values,
            use_cache if labels is None and shift_labels is None else False,
            return_dict=True,
            **kwargs,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.cls.predictions(outputs.last_hidden_state[:, kept])
        loss = None
        if shift_labels is None and labels is not None:
            shift_labels = nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
        if shift_labels is not None:
            places = logits.shape[:-1].numel()
            check_labels("labels", shift_labels, self.config.vocab_size, "vocab_size", places, self.training)
            loss = mean_cross_entropy(logits, shift_labels, num_items_in_batch)
        return CausalLMOutputWithCrossAttentions(
            loss=loss,
            logits=logits,
            **{CACHE: outputs.get(CACHE)},
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            cross_attentions=outputs.cross_attentions,
        )


# Trainer's label smoothing shifts labels only for classes listed here.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[MyBertConfig.model_type] = MyBertLMHeadModel.__name__

__all__ = ["MyBertDecoder", "MyBertLMHeadModel"]
