"""`mybert quantize`: a checkpoint with int8 weights, calibrated on texts."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from modeling_mybert import MyBertModel
from modeling_mybert.padding_mybert import RaggedLayout, packed_layout
from mybert.artifacts.staging import staged_folder
from mybert.common.errors import UserError
from mybert.common.progress import Bar
from mybert.common.quantities import with_unit
from mybert.inference.batches import batches, packed_inputs, token_limit
from mybert.inference.checkpoint import open_checkpoint
from mybert.inference.checkpoint_tokenizer import no_tokenizer, trained_tokens
from mybert.inference.cpu.int8 import int8_obstacle, int8_products, use_bfloat16_attention
from mybert.io.documents import read_documents
from mybert.release.convert.companions import finish, print_conversion, refuse_int8
from mybert.release.convert.int8_rounding import int8_linear
from mybert.release.settings import QuantizeSettings
from tokenization import MyBertTokenizer

OUTLIERS = 8


@torch.no_grad()
def quantize(settings: QuantizeSettings) -> Path:
    """Quantises the linear layers of an encoder for CPUs with int8 instructions (VNNI).

    Query, key and feed-forward products become int8; the rest of attention is computed in bfloat16.
    Embeddings, pooler and head stay as they are. The weights are rounded one layer after the other, with the inputs
    that each gets from the quantised layers before it.

    Returns:
        The folder: a MyBERT checkpoint, its tokenizer, modules of a sentence-transformers checkpoint, and a manifest.

    Raises:
        UserError: the checkpoint or a text cannot be used, or this machine has no int8 products. Nothing is written
            then.
    """
    if obstacle := int8_obstacle():
        raise UserError(f"mybert quantize: {obstacle}; run it on the machine that will use the model")
    inputs = [settings.model, *settings.texts]
    with staged_folder(settings.output, overwrite=settings.overwrite, stage="quantize", inputs=inputs) as folder:
        checkpoint = open_checkpoint(settings.model)
        model = checkpoint.model
        refuse_int8(checkpoint)
        model.float()  # of a checkpoint in half precision
        encoder = getattr(model, model.base_model_prefix, model)
        if not isinstance(encoder, MyBertModel):
            raise UserError(f"checkpoint {settings.model} is a {type(model).__name__}; expected an encoder")
        if checkpoint.tokenizer is None:
            raise no_tokenizer(settings.model)
        before = _bytes(model)
        sequences = _sequences(settings, checkpoint.tokenizer, trained_tokens(model.config, checkpoint.tokenizer))
        outliers = min(OUTLIERS, model.config.intermediate_size // 8)
        _quantise_layers(encoder, sequences, outliers)
        model.config.int8_outliers = outliers
        model.save_pretrained(folder)
        tokens = sum(map(len, sequences))
        finish(checkpoint, folder, settings, {"checkpoint": settings.model}, {"calibration_tokens": tokens})
    rows: list[tuple[str, Any]] = [("calibration texts", len(sequences)), ("calibration tokens", tokens)]
    rows += [
        (f"weights {when}", with_unit(size, "B")) for when, size in (("before", before), ("after", _bytes(model)))
    ]
    print_conversion(f"{settings.model} ({type(model).__name__}) to int8", checkpoint, rows)
    return Path(settings.output)


def _bytes(model: torch.nn.Module) -> int:
    return sum(tensor.nbytes for tensor in {x.data_ptr(): x for x in model.state_dict().values()}.values())


def _sequences(settings: QuantizeSettings, tokenizer: MyBertTokenizer, longest: int) -> list[np.ndarray]:
    """Token ids of the first texts, [CLS] and [SEP] included, until they have `tokens` tokens."""
    sequences, count = [], 0
    for document in read_documents(settings.texts, text_column=settings.text_column, errors=settings.errors):
        ids = tokenizer(document.text, truncation=True, max_length=longest)["input_ids"]
        if len(ids) > 2:
            sequences.append(np.array(ids))
            count += len(ids)
        if count >= settings.tokens:
            return sequences
    if not sequences:
        raise UserError("no document holds text; check the inputs and --text-column")
    return sequences


def _quantise_layers(encoder: MyBertModel, sequences: list[np.ndarray], outliers: int) -> None:
    """Replaces the layers of `encoder`, one after the other."""
    states, layouts = [], []
    device = torch.device("cpu")
    for batch in batches(sequences, len, token_limit(None, device)):
        inputs = packed_inputs(batch, device)
        ids = inputs["input_ids"][0]
        layouts.append(packed_layout(inputs["cu_seq_lens_q"], inputs["max_length_q"], len(ids)))
        states.append(encoder.embeddings(ids, None, inputs["position_ids"][0]))
    for layer in Bar(encoder.encoder.layer, desc="quantising", unit="layers"):
        _quantise_layer(layer, states, layouts, outliers)


def _quantise_layer(layer: Any, states: list[Tensor], layouts: list[RaggedLayout], outliers: int) -> None:
    """Replaces the products of one layer in the order of computation, and `states` by its outputs."""

    def replace(
        parent: torch.nn.Module, name: str, has_outliers: bool, inputs: list[Tensor], least: float | None = None
    ) -> None:
        linear, rows = getattr(parent, name), torch.cat(inputs)
        if not rows.isfinite().all():
            raise UserError("the checkpoint computes NaN or infinity; its weights are damaged; copy it again")
        setattr(parent, name, int8_linear(linear, rows, outliers if has_outliers else 0, least))

    query, key, first, second = int8_products(layer)
    replace(*query, states)
    replace(*key, states)
    use_bfloat16_attention(layer)
    attended = [layer.attention(x, layout)[0] for x, layout in zip(states, layouts, strict=True)]
    replace(*first, attended)
    activated = [layer.intermediate(x) for x in attended]
    replace(*second, activated, least_output(layer.intermediate.activation))
    states[:] = [layer.output(x, y) for x, y in zip(activated, attended, strict=True)]


def least_output(activation: torch.nn.Module) -> float | None:
    """The minimum of GELU, SiLU, ReLU and the like; None for functions with large negative outputs."""
    inputs = torch.cat([torch.linspace(-20, 20, 40_001), torch.tensor([-1e4])])  # Leaky ReLU has no minimum
    least = float(activation(inputs).min())
    return least if least > -0.3 else None
