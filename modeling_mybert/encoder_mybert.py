"""Embeddings, layer and encoder, on ragged tokens; modules named as in transformers' BERT."""

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention_mybert import MyBertSelfAttention
from .configuration_mybert import MyBertConfig
from .dropout_mybert import MyBertDropout
from .linear_mybert import linear
from .padding_mybert import KeptTokens, RaggedLayout


class MyBertEmbeddings(nn.Module):
    """Word + segment + position embeddings, normed (Devlin et al. 2019, section 3)."""

    def __init__(self, config: MyBertConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = MyBertDropout(config.hidden_dropout_prob)

    def forward(
        self,
        input_ids: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        """
        Args:
            input_ids, token_type_ids, position_ids: (T,); no segment ids means segment 0.
            inputs_embeds: (T, H) in place of `input_ids`.

        Returns:
            (T, H).
        """
        words = self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        # By a call, not by its weight: a table that accelerate keeps on disk is loaded when it is called.
        segments = self.token_type_embeddings(position_ids.new_zeros(1) if token_type_ids is None else token_type_ids)
        return self.dropout(self.LayerNorm(words + segments + self.position_embeddings(position_ids)))


class MyBertResidual(nn.Module):
    """dense → dropout → add the residual → norm: how attention and feed-forward end in a post-norm layer."""

    def __init__(self, config: MyBertConfig, in_features: int):
        super().__init__()
        self.dense = nn.Linear(in_features, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = MyBertDropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: Tensor, residual: Tensor) -> Tensor:
        """(T, in_features), (T, H) → (T, H)."""
        return self.LayerNorm(self.dropout(linear(self.dense, hidden_states)) + residual)


class MyBertAttention(nn.Module):
    """Self-attention and its residual."""

    def __init__(self, config: MyBertConfig):
        super().__init__()
        self.self = MyBertSelfAttention(config)
        self.output = MyBertResidual(config, config.hidden_size)

    def forward(
        self,
        hidden_states: Tensor,
        layout: RaggedLayout,
        output_attentions: bool = False,
        kept: KeptTokens | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """(T, H) → (T, H), or (R, H) of `kept` alone, and the probabilities (N, A, L, L) when asked for."""
        query_states = hidden_states if kept is None else hidden_states.index_select(0, kept.rows)
        context, probabilities = self.self(hidden_states, layout, output_attentions, query_states, kept)
        return self.output(context, query_states), probabilities


class MyBertIntermediate(nn.Module):
    """The widening half of the feed-forward layer."""

    def __init__(self, config: MyBertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACT2FN[config.hidden_act]

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(T, H) → (T, intermediate_size)."""
        return self.activation(linear(self.dense, hidden_states))


class MyBertLayer(GradientCheckpointingLayer):
    """One post-norm encoder layer: attention, then feed-forward."""

    def __init__(self, config: MyBertConfig):
        super().__init__()
        self.attention = MyBertAttention(config)
        self.intermediate = MyBertIntermediate(config)
        self.output = MyBertResidual(config, config.intermediate_size)
        self.chunk = config.chunk_size_feed_forward

    def forward(
        self,
        hidden_states: Tensor,
        layout: RaggedLayout,
        output_attentions: bool = False,
        kept: KeptTokens | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """(T, H) → (T, H), or (R, H) of `kept` alone, and the probabilities (N, A, L, L) when asked for."""
        hidden_states, probabilities = self.attention(hidden_states, layout, output_attentions, kept)
        parts = hidden_states.split(self.chunk) if self.chunk else (hidden_states,)
        parts = [self.output(self.intermediate(part), part) for part in parts]
        return torch.cat(parts) if len(parts) > 1 else parts[0], probabilities


class MyBertEncoder(nn.Module):
    """A stack of layers."""

    def __init__(self, config: MyBertConfig):
        super().__init__()
        self.layer = nn.ModuleList(MyBertLayer(config) for _ in range(config.num_hidden_layers))
        self.gradient_checkpointing = False

    def forward(
        self,
        hidden_states: Tensor,
        layout: RaggedLayout,
        output_hidden_states: bool | int | list[int] = False,
        output_attentions: bool = False,
        kept: KeptTokens | None = None,
    ) -> tuple[Tensor, list[Tensor | None], list[Tensor]]:
        """
        Args:
            output_hidden_states: whether to return them; or which ones, counted from either end.
            kept: all that the last layer computes; not with hidden states or probabilities.

        Returns:
            (T, H), or (R, H) of `kept`, the last layer's output; the input of each layer and the last output in the
            batch's own form, (B, S, H) or (1, T, H), None where not asked for; each layer's probabilities
            (N, A, L, L), when asked for.
        """
        all_hidden_states, all_attentions = [], []
        wanted = _wanted(output_hidden_states, len(self.layer) + 1)

        def recorded(hidden_states: Tensor) -> Tensor:
            if len(all_hidden_states) not in wanted:
                all_hidden_states.append(None)
                return hidden_states
            all_hidden_states.append(layout.to_batch(hidden_states))
            return layout.from_batch(all_hidden_states[-1])  # what is handed out receives gradients, as in BERT

        hidden_states = recorded(hidden_states)
        for number, layer in enumerate(self.layer, 1):
            last = number == len(self.layer)
            hidden_states, probabilities = layer(hidden_states, layout, output_attentions, kept if last else None)
            hidden_states = recorded(hidden_states)
            all_attentions.append(probabilities)
        return hidden_states, all_hidden_states, all_attentions


def _wanted(output_hidden_states: bool | int | list[int], count: int) -> set[int]:
    """Which of `count` hidden states to return; transformers' own meaning of the argument."""
    if isinstance(output_hidden_states, bool):
        return set(range(count)) if output_hidden_states else set()
    indices = [output_hidden_states] if isinstance(output_hidden_states, int) else output_hidden_states
    return {index % count for index in indices if -count <= index < count}
