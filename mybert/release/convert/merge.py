"""`mybert merge`: the weighted average of models of one shape."""

from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedConfig

from mybert.artifacts.manifest import fingerprint
from mybert.artifacts.staging import staged_folder
from mybert.common.errors import UserError
from mybert.common.tables import print_table
from mybert.inference.checkpoint import Checkpoint, open_checkpoint
from mybert.inference.checkpoint_tokenizer import no_tokenizer
from mybert.inference.sentence_modules import module_entries, modules_folder
from mybert.release.convert.companions import finish, refuse_int8
from mybert.release.settings import MergeSettings

_SETTINGS = (  # which no weight shows
    *("hidden_act", "num_attention_heads", "layer_norm_eps", "tie_word_embeddings", "problem_type", "tag_scheme"),
)
_WEIGHTS = (".safetensors", ".bin")


def merge(settings: MergeSettings) -> Path:
    """Averages the weights of models that were trained from the same checkpoint (Wortsman et al. 2022).

    Args:
        settings: models, their weights and the output.

    Returns:
        The folder: the model, the tokenizer and configuration of the first model, and a manifest with the weights.

    Raises:
        UserError: a checkpoint cannot be used, or two differ in shape, vocabulary, head, labels or task; nothing is
            written then.
    """
    output = Path(settings.output)
    with staged_folder(output, overwrite=settings.overwrite, stage=settings.command, inputs=settings.models) as folder:
        first = _average(settings)
        first.model.save_pretrained(folder)
        sources = {f"model-{number}": name for number, name in enumerate(settings.models)}
        finish(first, folder, settings, sources, {"weights": settings.shares})
    rows = [(name, f"{share:.3g}") for name, share in zip(settings.models, settings.shares, strict=True)]
    print_table("Merged models", rows, ("model", "weight"))
    return output


def _average(settings: MergeSettings) -> Checkpoint:
    """The first checkpoint, with the average of all weights."""
    first = open_checkpoint(settings.models[0])
    total: dict[str, Tensor] = {}
    for number, (name, share) in enumerate(zip(settings.models, settings.shares, strict=True)):
        checkpoint = open_checkpoint(name) if number else first
        refuse_int8(checkpoint)
        _refuse_different(first, checkpoint)
        for key, value in checkpoint.model.state_dict().items():
            total[key] = total.get(key, 0) + share * value.double() if value.is_floating_point() else value
    first.model.load_state_dict({key: total[key].to(value.dtype) for key, value in first.model.state_dict().items()})
    return first


def _weights_of_modules(name: str) -> list[str]:
    """Hashes of the weights that follow the encoder of a sentence-transformers checkpoint."""
    folder = modules_folder(name)
    paths = [folder / entry["path"] for entry in module_entries(folder)[1:] if entry["path"]] if folder else []
    return [fingerprint(file) for path in paths for file in sorted(path.glob("*")) if file.suffix in _WEIGHTS]


def _meaning(config: PreTrainedConfig) -> dict[str, Any]:
    """What the weights are computed with, and what the inputs and outputs of a task model mean, as far as it tells."""
    finetuned = getattr(config, "finetuned", None)
    record = finetuned if isinstance(finetuned, dict) else {}
    told = {name: getattr(config, name, None) for name in _SETTINGS}
    return told | {"finetuned.task": record.get("task"), "finetuned.inputs": record.get("inputs")}


def _refuse_different(first: Checkpoint, other: Checkpoint) -> None:
    """Raises unless the weights of both models have the same meaning."""
    pair = f"{first.name} and {other.name}"
    heads = [type(checkpoint.model).__name__ for checkpoint in (first, other)]
    if heads[0] != heads[1]:
        raise UserError(f"{pair} have different heads, {heads[0]} and {heads[1]}; merge models of one task")
    tokenizers = [checkpoint.tokenizer for checkpoint in (first, other)]
    if tokenizers.count(None) == 1:
        raise no_tokenizer((first, other)[tokenizers.index(None)].name)
    if None not in tokenizers and (different := tokenizers[0].difference_from(tokenizers[1])):
        raise UserError(f"{pair} differ in their {different}; merge models that were trained from one checkpoint")
    configs = [checkpoint.model.config for checkpoint in (first, other)]
    if configs[0].id2label != configs[1].id2label:
        raise UserError(f"{pair} have different labels or another order of them; fine-tune both on the same labels")
    meanings = [_meaning(config) for config in configs]
    for name, value in meanings[0].items():
        if None not in (value, meanings[1][name]) and value != meanings[1][name]:
            raise UserError(f"{pair} have different settings: {name} is {value} and {meanings[1][name]}")
    if _weights_of_modules(first.name) != _weights_of_modules(other.name):
        raise UserError(
            f"{pair} have different weights in the modules after the encoder (modules.json), which are not averaged; "
            "merge models in which they are equal"
        )
    shapes = [{key: tuple(x.shape) for key, x in one.model.state_dict().items()} for one in (first, other)]
    for key in sorted(shapes[0].keys() | shapes[1].keys()):
        mine, its = (model_shapes.get(key, "missing") for model_shapes in shapes)
        if mine != its:
            raise UserError(
                f"{pair} have different sizes: {key} is {mine} in {first.name} and {its} in {other.name}; "
                "merge models that were trained from one checkpoint"
            )
