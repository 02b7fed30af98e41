"""Checks of a checkpoint before its model is built: its name, its files, and its configuration against its weights.

They import neither torch nor transformers, so that a mistake is reported at once.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mybert.common.error_messages import did_you_mean, short
from mybert.common.errors import UserError
from mybert.common.json_io import irregular, parse_json, read_json_object
from mybert.common.manifest import read_manifest

CONFIG, WEIGHTS = "config.json", "model.safetensors"
_READ = (".json", ".txt", ".py", ".safetensors", ".bin", ".onnx")
"""Suffixes of the files that are read from a checkpoint."""
_MOST_LABELS = 2**20
_LARGEST_HEADER = 100_000_000  # bytes, as in safetensors
_LAYER = re.compile(r"(.*?)encoder\.layer\.(\d+)\.")
_TABLE = "embeddings.word_embeddings.weight"
_FIELDS = {  # name of a weight after the prefix of the encoder: dimensions and the fields that they are
    _TABLE: ((0, "vocab_size"), (1, "hidden_size")),
    "embeddings.position_embeddings.weight": ((0, "max_position_embeddings"),),
    "embeddings.token_type_embeddings.weight": ((0, "type_vocab_size"),),
    "encoder.layer.0.intermediate.dense.weight": ((0, "intermediate_size"),),
}
Shapes = Mapping[str, Sequence[int]]


def check_checkpoint(name: str) -> None:
    """Rejects names that transformers would look up on the Hub by mistake, and folders without a model that fits."""
    check_name(name)
    if Path(name).is_dir():
        check_folder(name, Path(name))


def check_name(name: str) -> None:
    """Raises a UserError if `name` is a file, or neither a folder nor the name of a model that the Hub has."""
    path = Path(name)
    if path.is_file():
        raise UserError(f"checkpoint {name} cannot be used: it is a file; name its folder")
    if not os.path.lexists(path) and not is_hub_name(name):
        meant = did_you_mean(name) or "; name one, or a repository of the Hub as OWNER/NAME"
        raise UserError(f"checkpoint {name}: no such folder{meant}")
    if not path.is_dir():
        from mybert.common.hub import check_repository  # here, since its import takes half a second

        check_repository(name)


def check_tokenizer(name: str) -> None:
    """Raises a UserError if `name` is neither a folder with a tokenizer nor the name of a model that the Hub has."""
    path = Path(name)
    if not path.exists() and not is_hub_name(name):
        raise UserError(f"tokenizer {name}: no such folder{did_you_mean(name)}; make one by `mybert tokenizer`")
    if not path.exists():
        from mybert.common.hub import check_repository  # as in `check_name`

        check_repository(name)
    elif not any((path / file).is_file() for file in ("tokenizer.json", "vocab.txt")):
        kind = "a file" if path.is_file() else "a folder without tokenizer.json and vocab.txt"
        raise UserError(f"tokenizer {name} is {kind}; name a folder made by `mybert tokenizer`, or a checkpoint")


def is_hub_name(name: str) -> bool:
    """Whether `name` has the form of a name on the Hub; other names are paths."""
    return not name.startswith((".", "/", "~")) and name.count("/") < 2


def check_folder(name: str, path: Path) -> None:
    """Raises a UserError if the files of checkpoint `name` in `path` cannot be read, or do not fit together."""
    for file in sorted(path.iterdir()):
        if file.suffix in _READ and (kind := irregular(file)):
            raise UserError(f"checkpoint {name}: {file.name} is {kind}, not a regular file; replace or remove it")
    if not (path / CONFIG).is_file():
        manifest = read_manifest(path)
        if manifest.get("complete") is False:
            command = f"mybert {manifest.get('stage')} … --resume"
            raise UserError(f"checkpoint {name} is not finished; continue it with `{command}`")
        inner = path / "model"  # of a quickstart
        meant = f"did you mean {inner}?" if (inner / CONFIG).is_file() else "name a MyBERT or BERT checkpoint"
        raise UserError(f"checkpoint {name} cannot be used: no config.json; {meant}")
    check_shapes(name, read_json_object(path / CONFIG, "copy it again"), _stored_shapes(path))


class _Fact(NamedTuple):
    """The value of a field of the configuration according to a weight."""

    part: str
    field: str
    value: int
    weight: str


def check_shapes(name: str, config: Mapping[str, Any], shapes: Shapes, file: str = CONFIG) -> None:
    """Raises a UserError if the configuration of checkpoint `name` is that of another model than its weights.

    A model of the wrong size takes minutes and much memory before its weights do not fit. Fields of a wrong type are
    left to the configuration.

    Args:
        file: the configuration's, for messages.
    """
    for fact in _facts(config, shapes):
        found = _of_part(config, fact.part).get(fact.field)
        enough = fact.value >= found if fact.field == "num_hidden_layers" and _is_count(found) else fact.value == found
        if _is_count(found) and not enough:
            raise UserError(
                f"checkpoint {name}: {fact.part}{fact.field} in {file} is {short(found, 40)}, and the weights have "
                f"{fact.value} ({fact.weight}); restore {file}, or copy the checkpoint again"
            )
    for part in ("", "encoder.", "decoder."):
        values = _of_part(config, part)
        hidden, heads, labels = (values.get(key) for key in ("hidden_size", "num_attention_heads", "num_labels"))
        if _is_count(heads) and _is_count(hidden) and heads > hidden:
            raise UserError(
                f"checkpoint {name}: {part}num_attention_heads in {file} is {short(heads, 40)}, more than the hidden "
                f"size {hidden}; restore {file}"
            )
        if _is_count(labels) and labels > _MOST_LABELS:
            raise UserError(
                f"checkpoint {name}: {part}num_labels in {file} is {short(labels, 40)}; expected at most "
                f"{_MOST_LABELS:,}; restore {file}"
            )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _of_part(config: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    """The configuration of an encoder-decoder's part, such as `encoder.`; the whole one for ""."""
    values = config.get(part.removesuffix(".")) if part else config
    return values if isinstance(values, Mapping) else {}


def _facts(config: Mapping[str, Any], shapes: Shapes) -> Iterator[_Fact]:
    is_pair = all(isinstance(config.get(part), Mapping) for part in ("encoder", "decoder"))
    layers: dict[str, int] = {}
    for name in shapes:
        if match := _LAYER.match(name):
            layers[match[1]] = max(layers.get(match[1], 0), int(match[2]) + 1)
    for prefix in [name.removesuffix(_TABLE) for name in shapes if name.endswith(_TABLE)]:
        part = f"{prefix.partition('.')[0]}." if is_pair else ""
        for weight, fields in _FIELDS.items():
            shape = shapes.get(prefix + weight, ())
            for dimension, field in fields:
                if dimension < len(shape):
                    yield _Fact(part, field, shape[dimension], prefix + weight)
        if prefix in layers:
            weight = f"{prefix}encoder.layer.{layers[prefix] - 1}"
            yield _Fact(part, "num_hidden_layers", layers[prefix], f"the last is {weight}")
    head, shape = str(config.get("architectures")), shapes.get("classifier.weight", ())
    if shape and ("SequenceClassification" in head or "TokenClassification" in head):
        yield _Fact("", "num_labels", shape[0], "classifier.weight")


def _stored_shapes(folder: Path) -> dict[str, list[int]]:
    """Names and shapes in the headers of the safetensors files; empty if there are none, or one is damaged."""
    index = folder / f"{WEIGHTS}.index.json"
    names: Iterable[Any] = [WEIGHTS]
    if not (folder / WEIGHTS).is_file() and index.is_file():
        names = weight_files(index)
    shapes: dict[str, list[int]] = {}
    for name in sorted({str(name) for name in names}):
        if (folder / name).is_file():
            shapes |= _header_shapes(folder / name)
    return shapes


def weight_files(index: Path) -> list[str]:
    """The files that the index of sharded weights names."""
    found = read_json_object(index, "copy it again").get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
        raise UserError(f"{index} is damaged: expected a weight_map of names; copy it again")
    return list(found.values())


def _header_shapes(path: Path) -> dict[str, list[int]]:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        content = file.read(size) if size <= _LARGEST_HEADER else b""
    try:
        entries = parse_json(content)
        return {name: entry["shape"] for name, entry in entries.items() if name != "__metadata__"}
    except (ValueError, TypeError, LookupError, AttributeError):
        return {}  # safetensors reports the damage
