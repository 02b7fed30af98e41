"""Checks of the files to publish. Each problem is one line with its remedy."""

import contextlib
import fnmatch
import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from mybert.artifacts.manifest import MANIFEST, inputs_of
from mybert.common.errors import UserError
from mybert.common.json_io import irregular, parse_json, read_json
from mybert.inference.checkpoint import head_of, open_checkpoint
from mybert.release.hub.handler import PIPELINES
from mybert.release.hub.secret_scan import as_text, find_paths, find_secrets
from tokenization.tokenization_mybert import read_pieces

# JSON files of MyBERT and transformers; the bundle holds them with absolute paths shortened to names.
RECORDS = ("config.json", "generation_config.json", "tokenizer_config.json", "manifest.json", "results.json")
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".dill", ".npy", ".npz", ".h5", ".keras")
_PICKLE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")  # torch.save writes a zip file
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "model-?????-of-?????.safetensors")
_PACKED = (".gz", ".tgz", ".zst", ".xz", ".bz2", ".zip", ".7z", ".parquet")
_PRINTABLE = re.compile(rb"[ -~]{6,}")
_NOT_ON_WINDOWS = re.compile(r'[<>:"|?*\\]|[. ](?=/|$)')
_NAMES = re.compile(r"[\w./+@-]{5,}")
_WITHOUT_MODEL = ("tokenizer", "corpus", "index", "evaluate", "compare")  # stages
_SPARE_ROWS = 128  # a vocabulary may be padded to a multiple of this


def file_problems(folder: Path, files: list[Path]) -> Iterator[str]:
    """Files that cannot be published: links out of the folder, invalid names, pickles and damaged records."""
    for path in files:
        name, source = path.as_posix(), folder / path
        exclude = f"leave it out: --exclude '{name}'"
        if problem := _link_problem(folder, path):
            yield f"{name} is {problem}; copy the file into the folder, or {exclude}"
            continue
        if not name.isprintable() or _NOT_ON_WINDOWS.search(name):
            yield f"{name!r} is not a valid file name on every system; rename it, or leave it out"
        if path.suffix in _PICKLES or _starts_like_a_pickle(source):
            yield f"{name} is a pickle, which can run code when loaded; save weights as safetensors, or {exclude}"
        if path.suffix in _PACKED:
            yield f"{name} is compressed, so that nobody sees what it publishes; {exclude}"
        if path.name in RECORDS:
            try:
                damage = None if isinstance(read_json(source), dict) else "expected a JSON object"
            except (OSError, ValueError) as error:
                damage = str(error)
            if damage:
                yield f"{name} is damaged: {damage}; restore it, or {exclude}"


def _link_problem(folder: Path, path: Path) -> str | None:
    """Links are followed within the folder and into the blobs of a Hub cache."""
    if kind := irregular(folder / path):
        return kind
    home, target = folder.resolve(), (folder / path).resolve()
    if target.is_relative_to(home) or target.is_relative_to(home.parent.parent / "blobs"):
        return None
    return "a link to a file outside the folder"


def _starts_like_a_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(9)
    # safetensors: the length of the header, which may look so too, and its JSON
    return start.startswith(_PICKLE_STARTS) and not (path.suffix == ".safetensors" and start[8:] == b"{")


def checkpoint_problems(folder: Path, left_out: list[str]) -> Iterator[str]:
    """Missing files, an unfinished run, and models other than BERT."""
    manifest = read_object(folder / MANIFEST) or {}
    if (stage := manifest.get("stage")) in _WITHOUT_MODEL:
        model = inputs_of(manifest).get("model", {}).get("path", "a trained model")
        yield f"it was made by `mybert {stage}` and is no model; push {model}"
        return
    if manifest.get("complete") is False:
        yield f"the run is not finished; continue it: `mybert {stage} … --resume`"
    for name in left_out:
        if name in ("config.json", "tokenizer.json") or any(fnmatch.fnmatch(name, pattern) for pattern in _WEIGHTS):
            yield f"--exclude leaves out {name}, which is needed to load the model"
    if not any((folder / name).is_file() for name in _WEIGHTS[:2]):
        yield "model.safetensors is missing; save the weights with model.save_pretrained"
    if not (folder / "tokenizer.json").is_file():
        yield "tokenizer.json is missing; save the tokenizer with tokenizer.save_pretrained"
    config = read_object(folder / "config.json")
    if config is None:
        yield "config.json is missing or is not a JSON object; save the model with model.save_pretrained"
    elif config.get("model_type") not in ("bert", "mybert"):
        yield f"the model type is {config.get('model_type')!r}, not that of a BERT; name a BERT or MyBERT checkpoint"
    elif not (config.get("architectures") and head_of(config) in PIPELINES):
        yield "config.json names no head of MyBERT (architectures); save the model with model.save_pretrained"


def loading_problems(folder: Path, source: Path) -> Iterator[str]:
    """Loads model and tokenizer of a bundle; messages name the checkpoint `source`."""
    try:
        checkpoint = open_checkpoint(str(folder))
        tokenizer, vocabulary = checkpoint.tokenizer, folder / "vocab.txt"
        rows = checkpoint.model.config.vocab_size
        if len(tokenizer) <= rows - _SPARE_ROWS:
            yield f"the tokenizer has {len(tokenizer):,} tokens, the model {rows:,}"
        if vocabulary.is_file() and tokenizer.convert_tokens_to_ids(pieces := read_pieces(vocabulary)) != [
            *range(len(pieces))
        ]:
            yield "vocab.txt and tokenizer.json differ; save the tokenizer with tokenizer.save_pretrained"
    except (UserError, ValueError) as error:
        yield str(error).replace(str(folder), str(source))


def content_problems(folder: Path, files: list[Path], private: Collection[str] = ()) -> Iterator[str]:
    """Credentials, absolute paths and the names in `private`, with their line in text files.

    Of weights, only the header is read.
    """
    for path in files:
        name, data = path.as_posix(), _header(folder / path)
        text = as_text(data)
        for number, kind in find_secrets(data if text is None else text.encode("utf-8", "replace")):
            yield f"{name}:{number} holds {kind}; remove it and revoke it"
        lines = None if path.suffix == ".safetensors" else text
        shown = _strings(path, data) if lines is None else lines
        for place, problem in _places_of_names(shown, set() if is_code(path) else private, text is None):
            line = "" if lines is None else f":{lines.count(chr(10), 0, place) + 1}"
            yield f"{name}{line} {problem}"


def _strings(path: Path, data: bytes) -> str:
    """The texts in a binary file: the metadata of weights, or all runs of printable characters."""
    if path.suffix == ".safetensors":
        with contextlib.suppress(ValueError, AttributeError):  # damaged headers are refused when the model is loaded
            return json.dumps(parse_json(data).get("__metadata__"))
    return "\n".join(run.decode() for run in _PRINTABLE.findall(data))


def _places_of_names(text: str, private: Collection[str], is_binary: bool) -> Iterator[tuple[int, str]]:
    """Position and description of the first local path and of the first private name."""
    if paths := list(find_paths(text, by_chance=is_binary)):
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        yield paths[0].start(), f"contains a local path ({paths[0][0]}{more}); replace it by a name"
    words = _NAMES.finditer(text) if private else ()
    if (match := next((word for word in words if word[0].rstrip(".") in private), None)) is not None:
        yield match.start(), f"names a local file ({match[0]}); remove the name, or publish all names: --name-sources"


def _header(path: Path) -> bytes:
    """The content of a file; of a safetensors file, the JSON at its start."""
    with path.open("rb") as file:
        if path.suffix != ".safetensors":
            return file.read()
        return file.read(min(int.from_bytes(file.read(8), "little"), path.stat().st_size))


def read_object(path: Path) -> dict[str, Any] | None:
    """A JSON object; None if the file is missing or holds something else."""
    try:
        value = read_json(path)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def is_code(path: Path) -> bool:
    """Whether the file is model code that travels with a checkpoint."""
    return re.fullmatch(r"\w+_mybert\.py", path.as_posix()) is not None
