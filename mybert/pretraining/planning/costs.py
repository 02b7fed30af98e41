"""Cost of pretraining by formulas; docs/guides/scale-out.md has the sources and compares them with measurements.

Operations are floating point ones, 2 for each multiply-add. The useful ones are matrix products on real tokens, in the
last layer and the heads on those that are read, the backward pass counted as twice the forward pass (Kaplan et al.
2020, section 2.1). Sizes are bytes.
"""

from dataclasses import dataclass

from transformers import PreTrainedConfig

from mybert.corpus.disk_budget import BYTES_A_ROW, BYTES_A_TOKEN

COPIES_IN_A_CHECKPOINT = 3
"""It holds each parameter and Adam's two moments."""
_FLOAT, _HALF = 4, 2


def count_parameters(config: PreTrainedConfig) -> dict[str, int]:
    """Parameters by part; the vocabulary projection is the word embedding, and counted there."""
    hidden, wide = config.hidden_size, config.intermediate_size
    norm, square = 2 * hidden, hidden * hidden + hidden
    rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    layer = 4 * square + (hidden * wide + wide) + (wide * hidden + hidden) + 2 * norm
    return {
        "embeddings": rows * hidden + norm,
        "encoder": config.num_hidden_layers * layer,
        "masked-token head": square + norm + config.vocab_size,
        "next-sentence head": square + 2 * hidden + 2,
    }


@dataclass(frozen=True)
class Costs:
    """Of training one model on sequences of one shape.

    Attributes:
        config: of the model.
        length: mean tokens of a sequence.
        attended: mean number of tokens that a token attends to; above `length` where lengths differ.
        mlm_probability: share of tokens labelled.
        has_pairs: whether there is a next-sentence loss.
    """

    config: PreTrainedConfig
    length: float
    attended: float
    mlm_probability: float
    has_pairs: bool

    @property
    def parameters(self) -> int:
        return sum(count_parameters(self.config).values())

    @property
    def read(self) -> float:
        """Share of tokens whose last hidden state is read: those labelled, and each sequence's first."""
        return min(1, self.mlm_probability + 1 / self.length)

    # Operations

    def flops_by_part(self) -> dict[str, float]:
        """Useful operations of a training step for each token, by part."""
        c = self.config
        layers = c.num_hidden_layers - 1 + self.read  # but for keys and values, which the last one has of all tokens
        matrices = layers * (4 * c.hidden_size**2 + 2 * c.hidden_size * c.intermediate_size)
        matrices += (1 - self.read) * 2 * c.hidden_size**2
        scores = layers * 2 * c.hidden_size * self.attended  # and the sum weighted by them
        masked = self.mlm_probability * (c.hidden_size**2 + c.hidden_size * c.vocab_size)
        pair = self.has_pairs * (c.hidden_size**2 + 2 * c.hidden_size) / self.length
        products = {"encoder": matrices, "attention": scores, "masked-token head": masked, "next-sentence head": pair}
        return {part: 6 * count for part, count in products.items()}

    @property
    def flops_per_token(self) -> float:
        return sum(self.flops_by_part().values())

    @property
    def recomputed_per_token(self) -> float:
        """Operations that gradient checkpointing adds: the layers' forward pass once more."""
        parts = self.flops_by_part()
        return (parts["encoder"] + parts["attention"]) / 3

    def executed_per_token(self, checkpointing: bool) -> float:
        return self.flops_per_token + (self.recomputed_per_token if checkpointing else 0)

    # Memory of a device

    def memory(
        self,
        tokens: float,
        *,
        devices: int = 1,
        sharded: bool = False,
        checkpointing: bool = False,
        half: bool = False,
        keeps_scores: bool = False,
    ) -> dict[str, float]:
        """The peak of a training step, by component.

        Args:
            tokens: in one forward pass of the device.
            devices: that train one model.
            sharded: by FSDP, which leaves each device its share; else each holds a whole copy (DDP).
            checkpointing: layers keep their input alone and are computed again.
            half: the forward pass runs in 16 bits (autocast), weights stay in 32.
            keeps_scores: attention is not fused: on the CPU, or eager.
        """
        shards = devices if sharded else 1
        return {
            "weights": _FLOAT * self.parameters / shards,
            "gradients": _FLOAT * self.parameters / shards,
            "optimizer": 2 * _FLOAT * self.parameters / shards,
            "copies": self._copies(devices, sharded, half),
            "activations": tokens * self._activations(checkpointing, half, keeps_scores),
            "logits": tokens * self._logits(half),
        }

    def _copies(self, devices: int, sharded: bool, half: bool) -> float:
        """FSDP's gathered weights and gradients, or autocast's 16-bit weights and DDP's buckets of gradients."""
        parts = count_parameters(self.config)
        if sharded and devices > 1:
            layers = 2 * parts["encoder"] / self.config.num_hidden_layers  # the next one is gathered ahead
            return 2 * (_HALF if half else _FLOAT) * (self.parameters - parts["encoder"] + layers)
        buckets = _FLOAT * self.parameters if devices > 1 else 0
        return buckets + (_HALF * self.parameters if half else 0)

    def _activations(self, checkpointing: bool, half: bool, keeps_scores: bool) -> float:
        """What the backward pass needs, for each token, with dropout on; counted from what autograd keeps."""
        c, value = self.config, _HALF if half else _FLOAT
        around = 11 * c.hidden_size  # embeddings and heads
        layer = (44 if half else 72) * c.hidden_size
        layer += value * (3 * c.num_attention_heads * self.attended if keeps_scores else c.hidden_size)
        if not checkpointing:
            keys_and_values = 8 * c.hidden_size  # in 16 bits with a copy of their input for each
            return around + (c.num_hidden_layers - 1 + self.read) * layer + (1 - self.read) * keys_and_values
        computed_again = layer + value * (c.intermediate_size + c.hidden_size)  # with the gradients on their way
        kept = around + c.num_hidden_layers * _FLOAT * c.hidden_size
        return kept + max(0, computed_again - self._logits(half))  # the logits have gone by then

    def _logits(self, half: bool) -> float:
        """Of the labelled positions, for each token: log-probabilities and two gradients, each in float32."""
        return self.mlm_probability * self.config.vocab_size * (3 * _FLOAT + (_HALF if half else 0))

    # Network and disk

    def traffic(self, devices: int, sharded: bool, half: bool = False, forwards: int = 1) -> float:
        """Bytes that a device sends in an optimizer step (and receives as many).

        Args:
            forwards: batches accumulated; DDP averages gradients once a step, FSDP gathers weights twice for each.
        """
        share = (devices - 1) / devices
        if sharded:
            return share * (_HALF if half else _FLOAT) * self.parameters * (2 * forwards + 1)
        return share * 2 * _FLOAT * self.parameters

    @property
    def checkpoint_bytes(self) -> int:
        return COPIES_IN_A_CHECKPOINT * _FLOAT * self.parameters

    def examples_bytes(self, tokens: float) -> float:
        """Of stored examples with so many real tokens."""
        return tokens * (BYTES_A_TOKEN + BYTES_A_ROW / self.length)
