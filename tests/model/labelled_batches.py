"""Four sequences in every form of a batch, and a count of the tokens that a model computes."""

import torch

LENGTHS = torch.tensor([7, 1, 12, 9])


def batch(form: str, vocabulary: int) -> tuple[dict, torch.Tensor]:
    """The same four sequences, and a label at every third token; also on a first token, and none in the second."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, vocabulary, (4, 12), generator=generator)
    real = torch.arange(12) < LENGTHS[:, None]
    if form == "full":
        real = torch.ones_like(real)
    labels = torch.where(real & (torch.arange(12) % 3 == 0), ids, -100)
    labels[1] = -100
    if form == "left":
        ids, labels, real = ids.flip(1), labels.flip(1), real.flip(1)
    if form == "packed":
        bounds = torch.nn.functional.pad(LENGTHS.cumsum(0), (1, 0))
        return {"input_ids": ids[real][None], "cu_seq_lens_q": bounds, "max_length_q": 12}, labels[real][None]
    return {"input_ids": ids, "attention_mask": real.long()}, labels


def tokens_computed(model: torch.nn.Module, layer: int) -> list[int]:
    """Filled with the number of tokens in a layer's feed-forward, call by call; not by a hook, which adds padding."""
    counts = []
    output = getattr(model, "bert", model).encoder.layer[layer].output
    forward = output.forward

    def counted(hidden_states, residual):
        counts.append(hidden_states.shape[:-1].numel())
        return forward(hidden_states, residual)

    output.forward = counted
    return counts
