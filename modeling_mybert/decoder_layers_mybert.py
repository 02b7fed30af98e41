"""Decoder layers: causal self-attention, cross-attention, feed-forward; named as in transformers' BERT.

Batches are padded (B, S), since a cache stores columns. Two more shape letters: C cached columns, K encoder columns.
"""

from torch import Tensor, nn
from transformers import EncoderDecoderCache
from transformers.cache_utils import Cache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .attention_mybert import MyBertSelfAttention, eager_attention_forward
from .configuration_mybert import MyBertConfig
from .encoder_mybert import MyBertIntermediate, MyBertLayer, MyBertResidual


class _CachedAttention(MyBertSelfAttention):
    """Attention of padded batches, with an optional cache of keys and values."""

    def __init__(self, config: MyBertConfig, layer_index: int):
        super().__init__(config)
        self.layer_index = layer_index

    def split(self, x: Tensor) -> Tensor:
        """(B, S, H) → (B, A, S, D)."""
        return x.unflatten(-1, (-1, self.head_size)).transpose(1, 2)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, backend: str):
        """(B, A, S, D), twice (B, A, K, D) → (B, S, H); the probabilities (B, A, S, K) if the backend returns them."""
        attention = ALL_ATTENTION_FUNCTIONS.get_interface(backend, eager_attention_forward)
        dropout = self.config.attention_probs_dropout_prob if self.training else 0.0
        context, probabilities = attention(self, query, key, value, mask, scaling=self.scaling, dropout=dropout)
        return context.flatten(2), probabilities


class MyBertCausalAttention(_CachedAttention):
    """Self-attention of each token to itself and earlier ones."""

    is_causal = True

    def forward(self, hidden_states: Tensor, mask: Tensor | None, cache: Cache | None, backend: str):
        """(B, S, H) → (B, S, H), and the probabilities (B, A, S, C + S) if the backend returns them."""
        query, key, value = (self.split(project(hidden_states)) for project in (self.query, self.key, self.value))
        if isinstance(cache, EncoderDecoderCache):
            cache = cache.self_attention_cache
        if cache is not None:
            key, value = cache.update(key, value, self.layer_index)
        return self.attend(query, key, value, mask, backend)


class MyBertCrossAttention(_CachedAttention):
    """Attention to the encoder's tokens; their keys and values are computed once per generation."""

    def forward(
        self, hidden_states: Tensor, encoder_states: Tensor, mask: Tensor | None, cache: Cache | None, backend: str
    ):
        """(B, S, H), (B, K, H) → (B, S, H), and the probabilities (B, A, S, K) if the backend returns them."""
        query = self.split(self.query(hidden_states))
        kept = cache if isinstance(cache, EncoderDecoderCache) else None
        if kept is not None and kept.is_updated.get(self.layer_index):
            layer = kept.cross_attention_cache.layers[self.layer_index]
            return self.attend(query, layer.keys, layer.values, mask, backend)
        key, value = (self.split(project(encoder_states)) for project in (self.key, self.value))
        if kept is not None:
            key, value = kept.cross_attention_cache.update(key, value, self.layer_index)
            kept.is_updated[self.layer_index] = True
        return self.attend(query, key, value, mask, backend)


class MyBertDecoderAttention(nn.Module):
    """Self- or cross-attention, and its residual."""

    def __init__(self, config: MyBertConfig, attention: _CachedAttention):
        super().__init__()
        self.self = attention
        self.output = MyBertResidual(config, config.hidden_size)

    def forward(self, hidden_states: Tensor, *args) -> Tensor:
        """(B, S, H) → (B, S, H)."""
        return self.output(self.self(hidden_states, *args)[0], hidden_states)


class MyBertDecoderLayer(GradientCheckpointingLayer):
    """One post-norm decoder layer: causal attention, attention to the encoder, feed-forward (Vaswani et al. 2017)."""

    def __init__(self, config: MyBertConfig, layer_index: int):
        super().__init__()
        self.attention = MyBertDecoderAttention(config, MyBertCausalAttention(config, layer_index))
        if config.add_cross_attention:
            self.crossattention = MyBertDecoderAttention(config, MyBertCrossAttention(config, layer_index))
        self.intermediate = MyBertIntermediate(config)
        self.output = MyBertResidual(config, config.intermediate_size)
        self.chunk = config.chunk_size_feed_forward

    def forward(
        self,
        hidden_states: Tensor,
        mask: Tensor | None,
        encoder_states: Tensor | None,
        encoder_mask: Tensor | None,
        backend: str,
        past_key_values: Cache | None = None,
    ) -> Tensor:
        """(B, S, H), and optionally the encoder's (B, K, H) → (B, S, H)."""
        hidden_states = self.attention(hidden_states, mask, past_key_values, backend)
        if encoder_states is not None:
            hidden_states = self.crossattention(hidden_states, encoder_states, encoder_mask, past_key_values, backend)
        return self.feed_forward(hidden_states)  # type: ignore[misc]

    feed_forward = MyBertLayer.feed_forward  # which reads the same attributes


class MyBertDecoderStack(nn.Module):
    """The layers, under BERT's name on disk (`encoder.layer`)."""

    def __init__(self, config: MyBertConfig):
        super().__init__()
        self.layer = nn.ModuleList(MyBertDecoderLayer(config, index) for index in range(config.num_hidden_layers))

    def forward(self, hidden_states: Tensor, *args) -> Tensor:
        """(B, S, H) → (B, S, H)."""
        for layer in self.layer:
            hidden_states = layer(hidden_states, *args)
        return hidden_states
