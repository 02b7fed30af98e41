"""The encoder as a transformers model, and the base class of every head.

It takes padded or packed batches and returns transformers' outputs. Tensors are named and shaped as in transformers'
BERT, so that checkpoints interchange both ways.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import logging
from transformers.utils.generic import can_return_tuple

from .attention_mybert import MyBertSelfAttention
from .configuration_mybert import MyBertConfig
from .encoder_mybert import MyBertEmbeddings, MyBertEncoder, MyBertLayer
from .operations_mybert import can_read_without_sync, check_places, checks, round_up, use_int8
from .padding_mybert import Layout, RaggedLayout, packed_layout, padded_layout

logger = logging.get_logger(__name__)


class MyBertPooler(nn.Module):
    """A dense tanh layer on each sequence's first token."""

    def __init__(self, config: MyBertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, first_tokens: Tensor) -> Tensor:
        """(N, H), or (N, S, H) whose first column is read, → (N, H)."""
        return torch.tanh(self.dense(first_tokens[:, 0] if first_tokens.dim() == 3 else first_tokens))


class MyBertPreTrainedModel(PreTrainedModel):
    """Weight initialisation and the features that transformers may use."""

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
    def _init_weights(self, module: nn.Module) -> None:
        """Normal weights truncated at two standard deviations, zero biases (google-research/bert)."""
        super()._init_weights(module)  # norms and biases
        std = self.config.initializer_range
        if isinstance(module, (nn.Linear, nn.Embedding)):
            init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)


class MyBertModel(MyBertPreTrainedModel):
    """The BERT encoder. It computes real tokens only, whether the batch is padded or packed.

    While a module inside has a hook, as attribution tools register, padding is computed too, so that every module
    takes and returns the padded form (B, S, H). Packed batches keep their ragged form (T, H) inside.

    Example:
        >>> model = MyBertModel(MyBertConfig.from_size("tiny"))
        >>> model(input_ids=torch.tensor([[2, 7, 3]])).last_hidden_state.shape
        torch.Size([1, 3, 128])
    """

    def __init__(self, config: MyBertConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        if config.is_decoder:
            logger.warning_once("is_decoder is set, but MyBertModel attends in both directions; load BertLMHeadModel")
        self.embeddings = MyBertEmbeddings(config)
        self.encoder = MyBertEncoder(config)
        if config.int8_outliers is not None:
            use_int8(self.encoder, config.int8_outliers)
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
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling | tuple[Any, ...]:
        """
        Args:
            input_ids: (B, S) padded on either side, or (1, T) packed.
            attention_mask: (B, S), nonzero for real tokens; None: all are real. Not for packed batches.
            token_type_ids: like `input_ids`; None: segment 0.
            position_ids: like `input_ids`, (1, S) or (S,); None: the column in a padded batch, and counted from 0 in
                each sequence of a packed one.
            inputs_embeds: (B, S, H) or (1, T, H) in place of `input_ids`.
            cu_seq_lens_q: (N + 1,) int32, for a packed batch: where each of its sequences starts, and T.
            max_length_q: length of the longest sequence of a packed batch; None: read it from `cu_seq_lens_q`.
            tokens_to_keep: (K,) places in the flattened batch whose last hidden states to return; `()` for none. The
                last layer then computes only these and each sequence's first token.
            kwargs: `return_dict`; `cu_seq_lens_k` and `max_length_k` are accepted and ignored.

        Returns:
            last_hidden_state: (B, S, H) with zeros at padding, or (1, T, H); (K, H) with `tokens_to_keep`.
            pooler_output: (B, H) or (N, H), from each sequence's first real token.
            hidden_states, attentions: as in transformers; attentions of a packed batch are (N, A, L, L).

        Raises:
            ValueError: contradicting arguments, wrong shapes, an empty batch, ids out of range, a sequence longer than
                the position table, a row with no real token.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        if kwargs.get("is_causal"):
            raise ValueError("is_causal: MyBertModel attends in both directions; load MyBertLMHeadModel")
        inputs: Any = inputs_embeds if input_ids is None else input_ids
        if checks is not None:
            given = input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, cu_seq_lens_q
            checks.check_inputs(self.config, *given, lambda x: can_read_without_sync(x, self.training))
        layout = self._layout(inputs, attention_mask, cu_seq_lens_q, max_length_q)
        embeddings = self._embed(layout, input_ids, token_type_ids, position_ids, inputs_embeds)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if tokens_to_keep is not None:
            tokens_to_keep = torch.as_tensor(tokens_to_keep, dtype=torch.long, device=inputs.device)
            places = inputs.shape[0] * inputs.shape[1]
            check_places("tokens_to_keep", tokens_to_keep, places, "see its shape", self.training)
        kept = _KeptTokens(layout, tokens_to_keep, output_hidden_states is not False or bool(output_attentions))
        outputs = self.encoder(embeddings, layout, output_hidden_states, output_attentions, kept.rows)
        first_tokens, last_hidden_state = kept.states(outputs.last_hidden_state)
        pooled = None if self.pooler is None else self.pooler(first_tokens)
        return BaseModelOutputWithPooling(last_hidden_state, pooled, outputs.hidden_states, outputs.attentions)

    def _layout(
        self, inputs: Tensor, attention_mask: Tensor | None, cu_seq_lens: Tensor | None, max_length: int | None
    ) -> Layout:
        layout: Layout
        if cu_seq_lens is None:
            dense = _has_hooks(self.embeddings) or _has_hooks(self.encoder)
            layout = padded_layout((inputs.shape[0], inputs.shape[1]), attention_mask, inputs.device, dense)
        elif attention_mask is not None:
            raise ValueError("a packed batch (cu_seq_lens_q) has no padding: leave attention_mask out")
        elif inputs.shape[0] != 1:
            raise ValueError(f"a packed batch has input_ids of shape (1, total_tokens), got {tuple(inputs.shape)}")
        else:
            layout = packed_layout(cu_seq_lens, max_length, inputs.shape[1])
        return round_up(layout, inputs.device, self.dtype) if isinstance(layout, RaggedLayout) else layout

    def _embed(
        self, layout: Layout, ids: Tensor | None, types: Tensor | None, positions: Tensor | None, embeds: Tensor | None
    ) -> Tensor:
        """The embeddings of a batch, (T, H), or (B, S, H) in a dense layout."""
        if layout.grid[1] > self.config.max_position_embeddings and positions is None:
            raise ValueError(
                f"a sequence has {layout.grid[1]} positions, more than max_position_embeddings="
                f"{self.config.max_position_embeddings}; truncate it or train with more positions"
            )
        given = ids, types, positions, embeds
        ids, types, positions, embeds = (None if x is None else layout.from_batch(x) for x in given)
        return self.embeddings(ids, types, layout.positions if positions is None else positions, embeds)


class _KeptTokens:
    """The tokens whose last hidden states are asked for: those at `places`, (K,) in the flattened batch; None: all.

    `rows`, (R,), are what the last layer computes: each first token and these tokens, ascending; None: all.
    """

    def __init__(self, layout: Layout, places: Tensor | None, compute_all: bool):
        self.layout, self.places = layout, places
        self.rows: Tensor | None = None
        if places is None or compute_all or not isinstance(layout, RaggedLayout):
            return
        if len(places) + layout.grid[0] < layout.total or torch.compiler.is_compiling():
            rows, self.padding = layout.rows_of(places)
            self.rows, order = torch.cat([layout.cu_seq_lens[:-1].to(rows), rows]).sort()
            self.order = order.argsort()

    def states(self, computed: Tensor) -> tuple[Tensor, Tensor]:
        """The last layer's output → first tokens (N, H), and the states asked for, (B, S, H), (1, T, H) or (K, H)."""
        if self.rows is None:
            first_tokens, states = self.layout.first_tokens(computed), self.layout.to_batch(computed)
            return first_tokens, states if self.places is None else states.flatten(0, 1)[self.places]
        first_tokens, states = computed.index_select(0, self.order).tensor_split([self.layout.grid[0]])
        return first_tokens, states if self.padding is None else states.masked_fill(self.padding[:, None], 0)


_LIBRARIES = {"torch", "transformers", "accelerate", "peft"}  # their hooks work with tensors of any shape
_NEFTUNE = "neftune_post_forward_hook"  # transformers' exception: its noise depends on the padded length


def _has_hooks(module: nn.Module | None) -> bool:
    """Whether a user or an attribution tool has registered a hook on the module or inside it."""
    if torch.compiler.is_compiling():
        return False
    remaining = [module]
    while remaining:
        module = remaining.pop()
        if module is None:
            continue
        hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
        if (hooks or module._backward_pre_hooks) and _has_user_hook(module):
            return True
        if module._modules:
            remaining += module._modules.values()
    return False


def _has_user_hook(module: nn.Module) -> bool:
    forward = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    backward = [*module._backward_hooks.values(), *module._backward_pre_hooks.values()]
    names = {(getattr(hook, "__module__", None) or "", getattr(hook, "__name__", "")) for hook in forward + backward}
    return any(owner.split(".")[0] not in _LIBRARIES or name == _NEFTUNE for owner, name in names)
