"""Checks of a checkpoint before its model is built: its name, its files, and its configuration against its weights.

They import neither torch nor transformers, so that a mistake is reported at once.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from mybert.artifacts.manifest import read_manifest
from mybert.common.errors import UserError, did_you_mean, short
from mybert.common.json_io import irregular, read_json, read_json_object

CONFIG, WEIGHTS = "config.json", "model.safetensors"
_READ = (".json", ".txt", ".py", ".safetensors", ".bin", ".onnx")
"""Suffixes of the files that are read from a checkpoint."""
_MOST_LABELS = 2**20
_LAYER = re.compile(r"(.*?)encoder\.layer\.(\d+)(?=\.)")
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
    folder = Path(name)
    if folder.is_dir():
        inner = folder / _first_module(folder, "path")  # of a sentence-transformers checkpoint
        is_inner = (inner / CONFIG).is_file() and not (folder / CONFIG).is_file()
        check_folder(name, inner if is_inner else folder)


def check_trainable(name: str) -> None:
    """`check_checkpoint` that also rejects a folder with int8 weights."""
    check_checkpoint(name)
    config = Path(name) / CONFIG
    if config.is_file() and read_json_object(config, "copy it again").get("int8_outliers") is not None:
        raise UserError(
            f"checkpoint {name} has int8 weights, which cannot be trained; name the checkpoint that it was quantised "
            "from"
        )


def _first_module(folder: Path, field: str) -> str:
    """A field of the first module of a sentence-transformers checkpoint; empty of other checkpoints."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # reported when the modules are read
        return str(read_json(folder / "modules.json")[0][field])
    return ""


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
        if read_manifest(path).get("complete") is False:
            raise UserError(f"checkpoint {name} is not finished; run the command that started it again, with --resume")
        if module := _first_module(path, "type"):
            raise UserError(
                f"checkpoint {name} cannot be used: modules.json begins with {module}, expected Transformer with the "
                "config.json of a BERT; encode with sentence-transformers"
            )
        inner = path / "model"  # of a quickstart
        meant = f"did you mean {inner}?" if (inner / CONFIG).is_file() else "name a MyBERT or BERT checkpoint"
        raise UserError(f"checkpoint {name} cannot be used: no config.json; {meant}")
    check_shapes(name, read_json_object(path / CONFIG, "copy it again"), _stored_shapes(name, path))


def check_shapes(name: str, config: Mapping[str, Any], shapes: Shapes) -> None:
    """Raises a UserError if the configuration of checkpoint `name` is that of another model than its weights.

    A model of the wrong size takes minutes and much memory before its weights do not fit. Fields of a wrong type are
    left to the configuration.
    """
    for field in ("id2label", "label2id"):
        if not isinstance(config.get(field), dict | None):
            shown = short(config[field], 40)
            raise UserError(f"checkpoint {name}: {field} in {CONFIG} is {shown}, not an object; restore {CONFIG}")
    for field, value, weight in _sizes(config, shapes):
        given: Any = config.get(field)
        fewer = field == "num_hidden_layers" and _is_count(given) and given < value  # the first ones are read
        if _is_count(given) and given != value and not fewer:
            raise UserError(
                f"checkpoint {name}: {field} in {CONFIG} is {short(given, 40)}, and the weights have {value} "
                f"({weight}); restore {CONFIG}, or copy the checkpoint again"
            )
    hidden: Any = config.get("hidden_size")
    most: dict[str, int] = {
        "num_attention_heads": hidden if _is_count(hidden) else _MOST_LABELS,
        "num_labels": _MOST_LABELS,
    }
    for field, limit in most.items():
        if _is_count(given := config.get(field)) and given > limit:
            raise UserError(
                f"checkpoint {name}: {field} in {CONFIG} is {short(given, 40)}, more than {limit:,}; restore {CONFIG}"
            )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _sizes(config: Mapping[str, Any], shapes: Shapes) -> Iterator[tuple[str, int, str]]:
    """Fields of the configuration with their values according to a weight, which is named."""
    layers = [(int(match[2]) + 1, match[0]) for name in shapes if (match := _LAYER.match(name))]
    if layers:
        yield "num_hidden_layers", *max(layers)
    for prefix in [name.removesuffix(_TABLE) for name in shapes if name.endswith(_TABLE)][:1]:
        for weight, fields in _FIELDS.items():
            shape = shapes.get(prefix + weight, ())
            for dimension, field in fields:
                if dimension < len(shape):
                    yield field, shape[dimension], prefix + weight
    head, shape = str(config.get("architectures")), shapes.get("classifier.weight", ())
    if shape and ("SequenceClassification" in head or "TokenClassification" in head):
        yield "num_labels", shape[0], "classifier.weight"


def _stored_shapes(name: str, folder: Path) -> dict[str, list[int]]:
    """Names and shapes in the headers of the safetensors files; empty if there are none, or one is damaged."""
    index = folder / f"{WEIGHTS}.index.json"
    files = [WEIGHTS]
    if not (folder / WEIGHTS).is_file() and index.is_file():
        files = weight_files(index)
    shapes: dict[str, list[int]] = {}
    for file in sorted(set(files)):
        if (folder / file).is_file():
            shapes |= _header_shapes(folder / file)
        elif file != WEIGHTS:
            raise UserError(f"checkpoint {name} lacks {file}, which {index.name} names; copy it again")
    return shapes


def weight_files(index: Path) -> list[str]:
    """The files that the index of sharded weights names."""
    weight_map = read_json_object(index, "copy it again").get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise UserError(f"{index} is damaged: expected a weight_map of names; copy it again")
    for name in weight_map.values():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise UserError(f"{index} names {short(name)}, a file outside of its folder; use another copy")
    return list(weight_map.values())


def _header_shapes(path: Path) -> dict[str, list[int]]:
    try:
        with safe_open(path, "numpy") as file:
            return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118  # no mapping
    except SafetensorError:
        return {}  # reported when the model is loaded
