"""The encoder as a transformers model: padded or packed in, transformers' outputs out; what every head builds on.

Tensors are named and shaped as in transformers' BERT, so that checkpoints interchange both ways.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import logging
from transformers.utils.generic import can_return_tuple

from .attention_mybert import MyBertSelfAttention, takes_fewer_queries
from .configuration_mybert import MyBertConfig
from .encoder_mybert import MyBertEmbeddings, MyBertEncoder, MyBertLayer
from .input_checks_mybert import check_ids, check_inputs, may_read
from .linear_mybert import takes_onednn
from .padding_mybert import RaggedLayout, packed_layout, padded_layout

logger = logging.get_logger(__name__)


class MyBertPooler(nn.Module):
    """A dense tanh layer on each sequence's first token."""

    def __init__(self, config: MyBertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, first_tokens: Tensor) -> Tensor:
        """(N, H) → (N, H)."""
        return torch.tanh(self.dense(first_tokens))


class MyBertPreTrainedModel(PreTrainedModel):
    """Initialisation and what transformers may do with the models."""

    config: MyBertConfig
    config_class = MyBertConfig
    base_model_prefix = "bert"
    _input_embed_layer = "word_embeddings"
    supports_gradient_checkpointing = True
    _no_split_modules = ["MyBertEmbeddings", "MyBertLayer"]  # noqa: RUF012 - transformers' own convention
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_record_outputs = {"hidden_states": MyBertLayer, "attentions": MyBertSelfAttention}  # noqa: RUF012

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        """Normal weights cut at two standard deviations, zero biases (google-research/bert, `create_initializer`)."""
        super()._init_weights(module)  # norms and biases
        std = self.config.initializer_range
        if isinstance(module, (nn.Linear, nn.Embedding)):
            init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)


class MyBertModel(MyBertPreTrainedModel):
    """The BERT encoder. Work is done on real tokens, not on padding, whether the batch comes padded or packed.

    Example:
        >>> model = MyBertModel(MyBertConfig.from_size("tiny"))
        >>> model(input_ids=torch.tensor([[2, 7, 3]])).last_hidden_state.shape
        torch.Size([1, 3, 128])
    """

    def __init__(self, config: MyBertConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        if config.is_decoder:
            logger.warning_once(
                "the configuration says is_decoder, but this model lets each token see those after it too; "
                "AutoModelForCausalLM (MyBertLMHeadModel) gives the causal one"
            )
        self.embeddings = MyBertEmbeddings(config)
        self.encoder = MyBertEncoder(config)
        self.pooler = MyBertPooler(config) if add_pooling_layer else None
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        max_length_q: int | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | int | list[int] | None = None,
        tokens_to_keep: Tensor | Sequence[int] | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPooling | tuple:
        """
        Args:
            input_ids: (B, S) padded on either side, or (1, T) packed.
            attention_mask: (B, S), nonzero for real tokens; None when all are. Not for packed batches.
            token_type_ids: like `input_ids`; None means segment 0.
            position_ids: like `input_ids`, or (1, S); None means the column in the padded batch, or counted from 0 in
                each sequence of a pack.
            inputs_embeds: (B, S, H) or (1, T, H) in place of `input_ids`.
            cu_seq_lens_q: (N + 1,) int32: the batch is packed; where each of its sequences starts, and T.
            max_length_q: the longest sequence of the pack; read from `cu_seq_lens_q` when not given.
            tokens_to_keep: (K,) places in the flattened batch, the only ones whose last hidden state is wanted; `()`
                for none. The last layer then computes no more than these and each sequence's first token.
            kwargs: `cu_seq_lens_k`, `max_length_k`, the same again by transformers' convention, and `return_dict`.

        Returns:
            last_hidden_state: (B, S, H) with zeros at padding, or (1, T, H); (K, H) of `tokens_to_keep`.
            pooler_output: (B, H) or (N, H), of each sequence's first real token.
            hidden_states, attentions: as transformers has them; attentions of a pack are (N, A, L, L).

        Raises:
            ValueError: arguments that contradict each other, wrong shapes, an empty batch, ids outside their tables, a
                sequence longer than the position table, a row of padding only.
        """
        inputs = check_inputs(self, input_ids, token_type_ids, position_ids, inputs_embeds)
        layout = self._layout(inputs, attention_mask, cu_seq_lens_q, max_length_q, position_ids)
        if layout.grid[1] > self.config.max_position_embeddings and position_ids is None:
            raise ValueError(
                f"a sequence has {layout.grid[1]} positions, more than max_position_embeddings="
                f"{self.config.max_position_embeddings}; truncate it or train with more positions"
            )

        def ragged(x: Tensor | None) -> Tensor | None:
            return None if x is None else layout.from_batch(x)

        positions = layout.positions if position_ids is None else ragged(position_ids)
        hidden_states = self.embeddings(ragged(input_ids), ragged(token_type_ids), positions, ragged(inputs_embeds))
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        kept = None
        if tokens_to_keep is not None:
            # Not of a Tensor: in a graph being compiled its length may be a number that is not known yet.
            pooled_alone = not isinstance(tokens_to_keep, Tensor) and len(tokens_to_keep) == 0
            tokens_to_keep = torch.as_tensor(tokens_to_keep, dtype=torch.long, device=inputs.device)
            places = inputs.shape[0] * inputs.shape[1]
            check_ids("tokens_to_keep", tokens_to_keep, places, "the batch's places", self.training, "see its shape")
            if not (output_hidden_states or output_attentions) and self._narrows(layout, tokens_to_keep):
                kept = layout.keep(None if pooled_alone else tokens_to_keep)
        hidden_states, all_hidden_states, all_attentions = self.encoder(
            hidden_states, layout, output_hidden_states, output_attentions, kept
        )
        computed = layout if kept is None else kept
        last_hidden_state = computed.to_batch(hidden_states)
        if tokens_to_keep is not None and kept is None:
            last_hidden_state = last_hidden_state.flatten(0, 1)[tokens_to_keep]
        return BaseModelOutputWithPooling(
            last_hidden_state=last_hidden_state,
            pooler_output=None if self.pooler is None else self.pooler(hidden_states[computed.first]),
            hidden_states=tuple(all_hidden_states) if output_hidden_states else None,
            attentions=tuple(all_attentions) if output_attentions else None,
        )

    def _narrows(self, layout: RaggedLayout, tokens: Tensor) -> bool:
        """Whether the last layer can leave tokens out, and has any to leave out."""
        if torch.jit.is_tracing() or torch.compiler.is_exporting() or not layout.is_ragged:
            return False
        if not (len(self.encoder.layer) and takes_fewer_queries(self.config._attn_implementation)):
            return False
        return torch.compiler.is_compiling() or tokens.numel() + layout.grid[0] < layout.total

    def _layout(self, inputs, attention_mask, cu_seq_lens, max_length, position_ids):
        if cu_seq_lens is None:
            one_row = position_ids is not None and attention_mask is None and inputs.shape[0] == 1
            if one_row and may_read(position_ids, self.training) and (position_ids[:, 1:] == 0).any():
                logger.warning_once(
                    "position_ids begin anew within a row, but its tokens all see each other; for a packed batch give "
                    "cu_seq_lens_q too, as DataCollatorWithFlattening(return_flash_attn_kwargs=True) does"
                )
            return padded_layout(tuple(inputs.shape[:2]), attention_mask, inputs.device, self._fills_up(inputs))
        if attention_mask is not None:
            raise ValueError("a packed batch (cu_seq_lens_q) has no padding: leave attention_mask out")
        if inputs.shape[0] != 1:
            raise ValueError(f"a packed batch has input_ids of shape (1, total_tokens), got {tuple(inputs.shape)}")
        return packed_layout(cu_seq_lens, max_length, inputs.shape[1], self._fills_up(inputs))

    def _fills_up(self, inputs: Tensor) -> bool:
        """Whether to round the number of tokens up: oneDNN, on the CPU, compiles its products for each."""
        if inputs.device.type != "cpu" or not may_read(inputs, self.training):
            return False
        half = torch.is_autocast_enabled("cpu") or self.dtype in (torch.bfloat16, torch.float16)
        return half or takes_onednn(inputs.device, self.dtype)
