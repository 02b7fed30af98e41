"""MyBERT's models: the encoder and its pretraining heads, padded or packed in, transformers' outputs out.

Tensors are named and shaped as in transformers' BERT, so that checkpoints interchange both ways.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_outputs import BaseModelOutputWithPooling, MaskedLMOutput, NextSentencePredictorOutput
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from .attention_mybert import MyBertSelfAttention
from .configuration_mybert import AUTO_MAP, MyBertConfig
from .encoder_mybert import MyBertEmbeddings, MyBertEncoder
from .padding_mybert import packed_layout, padded_layout


class MyBertPooler(nn.Module):
    """A dense tanh layer on each sequence's first token."""

    def __init__(self, config: MyBertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, first_tokens: Tensor) -> Tensor:
        """(N, H) → (N, H)."""
        return torch.tanh(self.dense(first_tokens))


class MyBertPredictionHeadTransform(nn.Module):
    """dense → activation → norm, before the vocabulary projection."""

    def __init__(self, config: MyBertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(…, H) → (…, H)."""
        return self.LayerNorm(self.activation(self.dense(hidden_states)))


class MyBertLMPredictionHead(nn.Module):
    """The vocabulary projection: the word embedding transposed, with its own bias."""

    def __init__(self, config: MyBertConfig):
        super().__init__()
        self.transform = MyBertPredictionHeadTransform(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))  # tied to decoder.bias, BERT's name on disk

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(…, H) → (…, V)."""
        return self.decoder(self.transform(hidden_states))


class MyBertPreTrainingHeads(nn.Module):
    """The heads of pretraining; a model that has only one of them asks for that one."""

    def __init__(self, config: MyBertConfig, masked_lm: bool = True, next_sentence: bool = True):
        super().__init__()
        if masked_lm:
            self.predictions = MyBertLMPredictionHead(config)
        if next_sentence:
            self.seq_relationship = nn.Linear(config.hidden_size, 2)


class MyBertPreTrainedModel(PreTrainedModel):
    """Initialisation and what transformers may do with the models."""

    config: MyBertConfig
    config_class = MyBertConfig
    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _no_split_modules = ["MyBertEmbeddings", "MyBertLayer"]  # noqa: RUF012 - transformers' own convention
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True
    _can_record_outputs = {"attentions": MyBertSelfAttention}  # noqa: RUF012

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        """Normal weights cut at two standard deviations, zero biases (google-research/bert, `create_initializer`)."""
        super()._init_weights(module)  # norms, biases, the padding row
        std = self.config.initializer_range
        if isinstance(module, (nn.Linear, nn.Embedding)):
            init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
        elif isinstance(module, MyBertLMPredictionHead):
            init.zeros_(module.bias)


class MyBertModel(MyBertPreTrainedModel):
    """The BERT encoder. Work is done on real tokens only, whether the batch comes padded or packed.

    Example:
        >>> model = MyBertModel(MyBertConfig.from_size("tiny"))
        >>> model(input_ids=torch.tensor([[2, 7, 3]])).last_hidden_state.shape
        torch.Size([1, 3, 128])
    """

    def __init__(self, config: MyBertConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.embeddings = MyBertEmbeddings(config)
        self.encoder = MyBertEncoder(config)
        self.pooler = MyBertPooler(config) if add_pooling_layer else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding):
        self.embeddings.word_embeddings = value

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
        output_hidden_states: bool | None = None,
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
            kwargs: `cu_seq_lens_k`, `max_length_k`, the same again by transformers' convention, and `return_dict`.

        Returns:
            last_hidden_state: (B, S, H) with zeros at padding, or (1, T, H).
            pooler_output: (B, H) or (N, H), of each sequence's first real token.
            hidden_states, attentions: as transformers has them; attentions of a pack are (N, A, L, L).

        Raises:
            ValueError: the arguments contradict each other, or a sequence is longer than the position table.
        """
        inputs = input_ids if inputs_embeds is None else inputs_embeds
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        layout = self._layout(inputs, attention_mask, cu_seq_lens_q, max_length_q)
        packed = cu_seq_lens_q is not None
        if layout.grid[1] > self.config.max_position_embeddings and position_ids is None:
            raise ValueError(
                f"a sequence has {layout.grid[1]} positions, more than max_position_embeddings="
                f"{self.config.max_position_embeddings}; truncate it or train with more positions"
            )

        def ragged(x: Tensor | None) -> Tensor | None:
            if x is None:
                return None
            return x.flatten(0, 1) if packed else layout.from_grid(x.expand(*layout.grid, *x.shape[2:]))

        positions = layout.positions if position_ids is None else ragged(position_ids)
        hidden_states = self.embeddings(ragged(input_ids), ragged(token_type_ids), positions, ragged(inputs_embeds))
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        hidden_states, all_hidden_states, all_attentions = self.encoder(
            hidden_states, layout, output_hidden_states, output_attentions
        )

        def batched(x: Tensor) -> Tensor:
            return x[None] if packed else layout.to_grid(x)

        return BaseModelOutputWithPooling(
            last_hidden_state=batched(hidden_states),
            pooler_output=None if self.pooler is None else self.pooler(hidden_states[layout.first]),
            hidden_states=tuple(map(batched, all_hidden_states)) if output_hidden_states else None,
            attentions=tuple(all_attentions) if output_attentions else None,
        )

    def _layout(self, inputs, attention_mask, cu_seq_lens, max_length):
        if cu_seq_lens is None:
            return padded_layout(tuple(inputs.shape[:2]), attention_mask, inputs.device)
        if attention_mask is not None:
            raise ValueError("a packed batch (cu_seq_lens_q) has no padding: leave attention_mask out")
        if inputs.shape[0] != 1:
            raise ValueError(f"a packed batch has input_ids of shape (1, total_tokens), got {tuple(inputs.shape)}")
        if max_length is None:
            max_length = int(cu_seq_lens.diff().max())
        return packed_layout(cu_seq_lens, int(max_length), inputs.shape[1])


@dataclass
class MyBertForPreTrainingOutput(ModelOutput):
    """
    Attributes:
        loss: the sum of the losses below, when labels were given.
        prediction_logits: (B, S, V) or (1, T, V); with `sparse_logits` (n_labelled, V), in flat order.
        seq_relationship_logits: (N, 2); class 1 means a random next segment.
        mlm_loss: mean over labelled tokens.
        nsp_loss: mean over pairs.
    """

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    mlm_loss: Tensor | None = None
    nsp_loss: Tensor | None = None


class _MaskedLMMixin:
    """The vocabulary projection, on all positions or on the labelled ones alone."""

    _tied_weights_keys = {  # noqa: RUF012
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }

    def get_output_embeddings(self) -> nn.Linear:
        return self.cls.predictions.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear):
        self.cls.predictions.decoder = new_embeddings
        self.cls.predictions.bias = new_embeddings.bias

    def predict_tokens(
        self,
        sequence_output: Tensor,
        labels: Tensor | None,
        label_positions: Tensor | None,
        sparse_logits: bool | None,
        num_items_in_batch: Tensor | int | None,
    ) -> tuple[Tensor, Tensor | None]:
        """
        Returns:
            Logits, (B, S, V) or (n_labelled, V), and the loss when there are labels.
        """
        sparse = labels is not None and (self.training if sparse_logits is None else sparse_logits)
        if sparse:
            if label_positions is None:
                label_positions = (labels.flatten() != -100).nonzero().squeeze(1)
            sequence_output = sequence_output.flatten(0, 1)[label_positions]
            labels = labels.flatten()[label_positions]
        logits = self.cls.predictions(sequence_output)
        return logits, None if labels is None else mean_cross_entropy(logits, labels, num_items_in_batch)


class MyBertForPreTraining(_MaskedLMMixin, MyBertPreTrainedModel):
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
        label_positions: Tensor | None = None,
        sparse_logits: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        num_pairs_in_batch: Tensor | int | None = None,
        **kwargs,
    ) -> MyBertForPreTrainingOutput | tuple:
        """
        Args:
            input_ids … inputs_embeds, kwargs: see `MyBertModel.forward`.
            labels: like `input_ids`; the original id at masked positions, -100 elsewhere.
            next_sentence_label: (B,) or (N,); 0 for the true continuation, 1 for a random segment.
            label_positions: (n_labelled,) where `labels.flatten()` is not -100, if the collator knows (it spares a
                synchronisation on CUDA).
            sparse_logits: project labelled positions only; None means: when training with labels.
            num_items_in_batch, num_pairs_in_batch: labelled tokens and pairs of the whole optimizer step, over all
                accumulated batches and processes; each loss is a sum divided by them. Trainer gives the first. Where
                only the first is given, this batch's mean NSP loss counts by its share of the labelled tokens.

        Returns:
            Losses and logits; one loss alone when only one kind of label is given, finite even with nothing labelled.
        """
        outputs = self.bert(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs)
        logits, mlm_loss = self.predict_tokens(
            outputs.last_hidden_state, labels, label_positions, sparse_logits, num_items_in_batch
        )
        seq_relationship_logits = self.cls.seq_relationship(outputs.pooler_output)
        nsp_loss = None
        if next_sentence_label is not None:
            nsp_loss = mean_cross_entropy(seq_relationship_logits, next_sentence_label.flatten(), num_pairs_in_batch)
            if num_pairs_in_batch is None and num_items_in_batch is not None and labels is not None:
                nsp_loss = nsp_loss * ((labels != -100).sum() / num_items_in_batch)
        losses = [loss for loss in (mlm_loss, nsp_loss) if loss is not None]
        return MyBertForPreTrainingOutput(
            loss=sum(losses) if losses else None,
            prediction_logits=logits,
            seq_relationship_logits=seq_relationship_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            mlm_loss=mlm_loss,
            nsp_loss=nsp_loss,
        )


class MyBertForMaskedLM(_MaskedLMMixin, MyBertPreTrainedModel):
    """The masked language model alone."""

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
        label_positions: Tensor | None = None,
        sparse_logits: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs,
    ) -> MaskedLMOutput | tuple:
        """Arguments as in `MyBertForPreTraining.forward`; returns `loss`, `logits`, `hidden_states`, `attentions`."""
        outputs = self.bert(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs)
        logits, loss = self.predict_tokens(
            outputs.last_hidden_state, labels, label_positions, sparse_logits, num_items_in_batch
        )
        return MaskedLMOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class MyBertForNextSentencePrediction(MyBertPreTrainedModel):
    """Next-sentence prediction alone."""

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
        **kwargs,
    ) -> NextSentencePredictorOutput | tuple:
        """
        Args:
            labels: (B,) or (N,); 0 for the true continuation, 1 for a random segment.
            num_items_in_batch: pairs of the whole optimizer step (Trainer gives it).

        Returns:
            `loss`, `logits` (N, 2), `hidden_states`, `attentions`.
        """
        outputs = self.bert(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs)
        logits = self.cls.seq_relationship(outputs.pooler_output)
        loss = None if labels is None else mean_cross_entropy(logits, labels.flatten(), num_items_in_batch)
        return NextSentencePredictorOutput(loss, logits, outputs.hidden_states, outputs.attentions)


def mean_cross_entropy(logits: Tensor, labels: Tensor, count: Tensor | int | None = None) -> Tensor:
    """Cross-entropy summed over labels other than -100, divided by `count`, else by their number or 1 if none.

    Args:
        logits: (…, C).
        labels: (…), as many as rows of logits.
        count: how many labels the whole optimizer step has; dividing every batch's sum by it makes gradient
            accumulation and data parallelism equal to one big batch.
    """
    labels = labels.flatten()
    total = nn.functional.cross_entropy(logits.flatten(0, -2).float(), labels, reduction="sum")
    return total / ((labels != -100).sum().clamp(min=1) if count is None else count)


# transformers copies the code of a class so marked beside every checkpoint it saves.
for _auto, _name in AUTO_MAP.items():
    if _name.startswith("modeling_mybert."):
        globals()[_name.split(".")[1]].register_for_auto_class(_auto)
