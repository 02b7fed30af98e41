"""Published ideas for faster pretraining that `recipe_search.py` compares; MyBERT uses those that won."""

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from modeling_mybert import MyBertConfig, MyBertForPreTraining
from modeling_mybert.encoder_mybert import MyBertLayer
from modeling_mybert.padding_mybert import packed_layout, places_in_grid
from mybert.pretraining.data.batching import ExampleDataset
from mybert.pretraining.data.masking import IGNORED, Masker

_BUCKETS = 10
_SPAN = 0.2  # parameter of the geometric distribution of span lengths (Joshi et al. 2020)


class Lamb(torch.optim.AdamW):
    """AdamW whose step of each matrix has the length of the matrix times the rate (You et al. 2020)."""

    @torch.no_grad()
    def step(self, closure=None) -> None:
        matrices = [p for group in self.param_groups for p in group["params"] if p.ndim > 1 and p.grad is not None]
        before = [p.clone() for p in matrices]
        super().step()
        rate = self.param_groups[0]["lr"]
        for parameter, old in zip(matrices, before, strict=True):
            change = parameter - old
            ratio = rate * old.norm() / change.norm().clamp_min(1e-12)
            parameter.copy_(old + change * ratio)


class NorMuon(torch.optim.Muon):
    """Muon whose updates have neurons of equal root mean square over time (Li et al. 2025, "NorMuon")."""

    @torch.no_grad()
    def step(self, closure=None) -> None:
        parameters = [p for group in self.param_groups for p in group["params"]]
        rate, decay = self.param_groups[0]["lr"], self.param_groups[0]["weight_decay"]
        before = [p * (1 - rate * decay) for p in parameters]
        super().step()
        for parameter, old in zip(parameters, before, strict=True):
            change = parameter - old
            state = self.state[parameter]
            moment = state.setdefault("row_moment", torch.zeros(len(parameter), 1))
            count = state["count"] = state.get("count", 0) + 1
            if rate:
                moment.lerp_((change / rate).square().mean(1, keepdim=True), 0.05)
                even = change / (moment / (1 - 0.95**count)).sqrt().clamp_min(1e-12)
                parameter.copy_(old + even * (change.norm() / even.norm().clamp_min(1e-12)))


def stack_layers(model: MyBertForPreTraining, layers: int) -> None:
    """Repeats the layers (Gong et al. 2019, "Efficient training of BERT by progressively stacking")."""
    old = model.bert.encoder.layer
    model.bert.encoder.layer = nn.ModuleList(copy.deepcopy(old[i % len(old)]) for i in range(layers))
    model.config.num_hidden_layers = layers


def scale_width(config: MyBertConfig, factor: float) -> None:
    """Changes the width in the configuration; heads keep their size."""
    for name in ("hidden_size", "num_attention_heads", "intermediate_size"):
        setattr(config, name, round(getattr(config, name) * factor))


def double_width(model: MyBertForPreTraining) -> MyBertForPreTraining:
    """A model of twice the width with the same outputs (Chen et al. 2016, "Net2Net"; Chen et al. 2022, "bert2BERT").

    Every neuron exists twice. Random numbers that cancel in the sum over the two copies let the copies diverge.
    """
    config = copy.deepcopy(model.config)
    scale_width(config, 2)
    wide = MyBertForPreTraining(config).train(model.training)
    old, new = model.state_dict(), wide.state_dict()
    for name, value in old.items():
        columns = new[name].shape[-1] // value.shape[-1]
        if value.ndim == 2 and columns == 2 and "embeddings" not in name and "decoder" not in name:
            value = value.repeat(new[name].shape[0] // value.shape[0], 1) / 2
            noise = torch.randn_like(value) * config.initializer_range / 2
            value = torch.cat([value + noise, value - noise], 1)
        else:
            value = torch.cat([value] * columns, -1)
        halved = "transform.LayerNorm" in name  # the product with both copies of the word embeddings is twice as large
        new[name].copy_(value / 2 if halved else value)
    return wide


def skip_layers(model: MyBertForPreTraining, probability: float) -> None:
    """Skips a layer at random in training, deeper ones more often (Zhang and He 2020, progressive layer dropping)."""
    layers = model.bert.encoder.layer
    for index, layer in enumerate(layers[:-1], 1):  # the last one selects the masked tokens
        forward, share = layer.forward, probability * index / len(layers)

        def skipped(hidden_states, *rest, layer=layer, forward=forward, share=share):
            if layer.training and torch.rand(()) < share:
                return hidden_states
            return forward(hidden_states, *rest)

        layer.forward = skipped


def skip_tokens(model: MyBertForPreTraining, share: float) -> None:
    """Some tokens skip the layers between the first and the last (Hou et al. 2022, "Token dropping").

    The first token of each sequence is never skipped; the others are drawn at random, as in the paper's baseline.
    """
    layers = model.bert.encoder.layer
    for layer in layers[1:-1]:

        def on_some(hidden_states, layout, *rest, layer=layer, forward=layer.forward):
            real = layout.total - layout.padding_to_multiple
            if not layer.training or real < len(hidden_states):
                return forward(hidden_states, layout, *rest)
            keep = torch.rand(real) >= share
            keep[layout.cu_seq_lens[:-1].long()] = True
            rows = keep.nonzero().squeeze(1)
            rows = rows[: len(rows) // 16 * 16]
            ends = torch.searchsorted(rows, layout.cu_seq_lens.long(), out_int32=True)
            longest = int(ends.diff().max())
            grid = (layout.grid[0], longest)
            mask = (torch.arange(longest) < ends.diff()[:, None])[:, None, None, :]
            fewer = replace(
                layout, grid=grid, indices=places_in_grid(ends, longest, len(rows)), cu_seq_lens=ends, mask=mask
            )
            return hidden_states.index_copy(0, rows, forward(hidden_states[rows], fewer, *rest))

        layer.forward = on_some


def causal(batch: dict, shifted: bool) -> dict:
    """A padded batch as a causal language model reads it: each token sees itself and the tokens before it.

    With `shifted`, no token is masked, and each label is predicted at the token before it (Charpentier and Samuel
    2024, "GPT or BERT: why not both?"). Otherwise masked tokens are predicted in their own places. The first token
    sees nothing else, so there is no next-sentence label.
    """
    labels, ids = batch["labels"], batch["input_ids"]
    if shifted:
        ids = torch.where(labels == IGNORED, ids, labels)
        labels = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], IGNORED)], 1)
    earlier = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
    seen = batch["attention_mask"].bool()[:, None, None, :] & earlier
    return {"input_ids": ids, "token_type_ids": batch["token_type_ids"], "attention_mask": seen, "labels": labels}


class SpanMasker(Masker):
    """Masks spans of tokens of geometric length, at most `longest` (Joshi et al. 2020, SpanBERT)."""

    longest = 10

    def _choose(self, input_ids, lengths, priority, probability):
        rng = np.random.default_rng(int(priority[0]))
        budget = np.maximum(np.rint(lengths * probability), 1).astype(np.int64)
        chosen = np.zeros(len(input_ids), dtype=bool)
        maskable = self.maskable[input_ids]
        for start, length, left in zip(np.cumsum(lengths) - lengths, lengths, budget, strict=True):
            for _ in range(20 * left):
                size = min(rng.geometric(_SPAN), self.longest, left)
                first = start + rng.integers(length)
                span = np.arange(first, min(first + size, start + length))
                span = span[maskable[span] & ~chosen[span]]
                chosen[span] = True
                left -= len(span)
                if left <= 0:
                    break
        return chosen


class DifficultyMasker(Masker):
    """Masks tokens more often the less often the model predicts them (Edman and Fraser 2025, "Mask and you shall
    receive"); as many as otherwise. The share of right predictions of each token is a moving average."""

    def learn(self, labels: np.ndarray, right: np.ndarray) -> None:
        """Takes note of predictions (P,) of tokens (P,)."""
        counts = np.bincount(labels, minlength=len(self.maskable))
        hits = np.bincount(labels, weights=right, minlength=len(self.maskable))
        shares = self.__dict__.setdefault("shares", np.zeros(len(self.maskable)))
        shares += (1 - 0.98**counts) * (hits / np.maximum(counts, 1) - shares)

    def _choose(self, input_ids, lengths, priority, probability):
        weights = 1 - 0.9 * self.__dict__.get("shares", np.zeros(len(self.maskable)))
        times = -np.log((priority + 1.0) / 2.0**64) / weights[input_ids]  # the first ones are chosen
        return super()._choose(input_ids, lengths, times, probability)


def order_by_frequency(examples: ExampleDataset, order: np.ndarray, counts: np.ndarray, keep: float) -> np.ndarray:
    """Examples with frequent tokens first, in ten groups; or, with `keep` below 1, only the share with the most
    frequent tokens, in the given order."""
    logs = np.log((counts + 1) / (counts + 1).sum())
    scores = np.empty(len(order))
    for start in range(0, len(order), 5000):
        batch = examples.__getitems__([(0, int(index)) for index in order[start : start + 5000]])
        ends = np.cumsum(batch.lengths)
        sums = np.add.reduceat(logs[batch.input_ids], ends - batch.lengths)
        scores[start : start + 5000] = sums / batch.lengths
    if keep < 1:
        return order[scores >= np.quantile(scores, 1 - keep)]
    groups = np.searchsorted(np.quantile(-scores, np.arange(1, _BUCKETS) / _BUCKETS), -scores)
    return np.concatenate([order[groups == group] for group in range(_BUCKETS)])


class ReplacedTokenDetection(nn.Module):
    """ELECTRA (Clark et al. 2020) beside masked tokens: a small generator replaces them, the encoder finds which.

    The generator has one layer of 64 and its own masked-language-model loss.
    """

    def __init__(self, model: MyBertForPreTraining, weight: float = 10.0):
        super().__init__()
        config = MyBertConfig.from_size("tiny", vocab_size=model.config.vocab_size, initializer_range=0.08)
        config.hidden_size, config.num_hidden_layers, config.num_attention_heads = 64, 1, 1
        config.intermediate_size, config.hidden_dropout_prob, config.attention_probs_dropout_prob = 256, 0.0, 0.0
        self.generator, self.weight = MyBertForPreTraining(config), weight
        self.head = nn.Linear(model.config.hidden_size, 1)

    def forward(self, model: MyBertForPreTraining, batch: dict) -> torch.Tensor:
        inputs = {name: value for name, value in batch.items() if name != "next_sentence_label"}
        made = self.generator(**inputs, sparse_logits=True)
        places, labels = batch["masked_lm_positions"], batch["labels"].flatten()
        known = labels[places] >= 0
        places = places[known]
        with torch.no_grad():
            logits = made.prediction_logits[known].float()
            noise = -torch.empty_like(logits).exponential_().log()
            sampled = (logits + noise).argmax(-1)
        ids = batch["input_ids"].flatten().clone()
        ids[places] = sampled
        wrong = torch.zeros_like(ids, dtype=torch.float32)
        wrong[places] = (sampled != labels[places]).float()
        names = ("token_type_ids", "position_ids", "cu_seq_lens_q", "max_length_q")
        hidden = model.bert(ids[None], **{name: batch[name] for name in names}).last_hidden_state[0]
        found = self.head(hidden).squeeze(-1).float()
        return made.mlm_loss + self.weight * nn.functional.binary_cross_entropy_with_logits(found, wrong)


class Bottleneck(nn.Module):
    """RetroMAE (Xiao et al. 2022) beside masked tokens: one more layer predicts half of the tokens from the others and
    the encoder's last state of [CLS], with the same head."""

    MASKED = 0.5

    def __init__(self, model: MyBertForPreTraining, mask_token_id: int, weight: float):
        super().__init__()
        self.layer, self.mask_token_id, self.weight = MyBertLayer(model.config), mask_token_id, weight
        self.first_tokens: torch.Tensor | None = None
        self.layer.apply(model._init_weights)
        model.bert.pooler.register_forward_pre_hook(lambda _, inputs: setattr(self, "first_tokens", inputs[0]))

    def forward(self, model: MyBertForPreTraining, batch: dict) -> torch.Tensor:
        """The loss times the weight; the encoder has just read the same batch."""
        masked, labels = batch["input_ids"][0], batch["labels"][0]
        ids = torch.where(labels == IGNORED, masked, labels)
        starts = batch["cu_seq_lens_q"][:-1].long()
        chosen = torch.rand(len(ids)) < self.MASKED
        chosen[starts] = False
        layout = packed_layout(batch["cu_seq_lens_q"], batch["max_length_q"], len(ids))
        inputs = ids.masked_fill(chosen, self.mask_token_id)
        hidden = model.bert.embeddings(inputs, batch["token_type_ids"][0], batch["position_ids"][0])
        hidden = self.layer(hidden.index_copy(0, starts, self.first_tokens.to(hidden.dtype)), layout)
        logits = model.cls.predictions(hidden[chosen])
        return self.weight * nn.functional.cross_entropy(logits.float(), ids[chosen])
