"""Embeddings, layer and encoder; modules are named as in transformers' BERT.

Tokens are stored as the layout stores them: (T, …) in a ragged layout, (B, S, …) in a dense one. The docstrings below
give the shapes of the ragged one.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput

from .attention_mybert import MyBertSelfAttention
from .configuration_mybert import MyBertConfig
from .operations_mybert import MyBertDropout, linear
from .padding_mybert import AnyLayout, RaggedLayout, batch_layout


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
        input_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        """(T,) → (T, H); `inputs_embeds` (T, H) take the place of `input_ids`, and no segments mean segment 0."""
        words = self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        position_ids = batch_layout(None, words).positions if position_ids is None else position_ids
        # Called, not indexed by its weight: accelerate loads a table that it keeps on disk when it is called.
        segments = self.token_type_embeddings(position_ids.new_zeros(1) if token_type_ids is None else token_type_ids)
        return self.dropout(self.LayerNorm(words + segments + self.position_embeddings(position_ids)))


class MyBertResidual(nn.Module):
    """dense → dropout → add the residual → norm: the end of attention and of feed-forward in a post-norm layer."""

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
        layout: AnyLayout = None,
        output_attentions: bool = False,
        rows: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """(T, H) → (T, H), or (R, H) with `rows`; and the probabilities (N, A, L, L) if asked for."""
        layout = batch_layout(layout, hidden_states)
        context, probabilities = self.self(hidden_states, layout, output_attentions, rows)
        residual = hidden_states if rows is None else hidden_states.index_select(0, rows)
        return self.output(context, residual), probabilities


class MyBertIntermediate(nn.Module):
    """The first half of the feed-forward layer."""

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
        layout: AnyLayout = None,
        output_attentions: bool = False,
        rows: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(T, H) → (T, H), or (R, H) with `rows`; with `output_attentions` also (N, A, L, L)."""
        hidden_states, probabilities = self.attention(hidden_states, layout, output_attentions, rows)
        chunks = hidden_states.split(self.chunk, dim=-2) if self.chunk else (hidden_states,)
        outputs = [self.output(self.intermediate(chunk), chunk) for chunk in chunks]
        hidden_states = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-2)
        return hidden_states if probabilities is None else (hidden_states, probabilities)


class MyBertEncoder(nn.Module):
    """A stack of layers."""

    def __init__(self, config: MyBertConfig):
        super().__init__()
        self.layer = nn.ModuleList(MyBertLayer(config) for _ in range(config.num_hidden_layers))
        self.gradient_checkpointing = False
        self.prepacked: Any = None  # PrepackedEncoder, by `optimize_for_inference`

    def forward(
        self,
        hidden_states: Tensor,
        layout: AnyLayout = None,
        output_hidden_states: bool | int | list[int] = False,
        output_attentions: bool = False,
        rows: Tensor | None = None,
    ) -> BaseModelOutput:
        """
        Args:
            output_hidden_states: whether to return hidden states, or which ones, counted from either end.
            rows: (R,) the tokens that the last layer computes, ascending; None: all.

        Returns:
            last_hidden_state: (T, H), or (R, H) with `rows`.
            hidden_states: the input of each layer and the last output, in the form of the batch.
            attentions: (N, A, L, L) of each layer.
        """
        layout, count = batch_layout(layout, hidden_states), len(self.layer) + 1
        wanted = _wanted_indices(output_hidden_states, count)
        all_hidden_states: list[Tensor | None] = [None] * count
        all_attentions = []

        def record(index: int, hidden_states: Tensor) -> Tensor:
            if index not in wanted:
                return hidden_states
            batch = all_hidden_states[index] = layout.to_batch(hidden_states)
            return layout.from_batch(batch)  # so that the recorded tensor receives gradients, as in BERT

        hidden_states = record(0, hidden_states)
        layers: Any = self.layer
        if self.prepacked is not None and isinstance(layout, RaggedLayout) and not output_attentions:
            layers = self.prepacked.layers(self, hidden_states) or self.layer
        for index, layer in enumerate(layers, 1):
            output = layer(hidden_states, layout, output_attentions, rows if index + 1 == count else None)
            if output_attentions:
                output, probabilities = output
                all_attentions.append(probabilities)
            hidden_states = record(index, output)
        states: Any = None if output_hidden_states is False else tuple(all_hidden_states)
        return BaseModelOutput(hidden_states, states, tuple(all_attentions) if output_attentions else None)


def _wanted_indices(output_hidden_states: bool | int | list[int], count: int) -> set[int]:
    """Which of `count` hidden states to return, by transformers' meaning of the argument."""
    if isinstance(output_hidden_states, bool):
        return set(range(count)) if output_hidden_states else set()
    indices = [output_hidden_states] if isinstance(output_hidden_states, int) else output_hidden_states
    return {index % count for index in indices if -count <= index < count}
