"""Why a folder may not be published: everything that would not work for a stranger, or would say too much."""

import fnmatch
import json
import re
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from mybert.release.paths_and_secrets import find_paths, find_secrets

INDEX = "model.safetensors.index.json"
_PICKLES = (
    "*.bin",
    "*.pt",
    "*.pth",
    "*.pkl",
    "*.pickle",
    "*.ckpt",
    "*.joblib",
    "*.dill",
    "*.npy",
    "*.npz",
    "*.h5",
    "*.keras",
)
_PICKLE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")  # torch.save: a zip of pickles
_STATES = (
    *("optimizer*", "scheduler*", "scaler*", "rng_state*", "trainer_state.json", "training_args.bin"),
    *("pytorch_model_fsdp*", "global_step*", "events.out.tfevents*"),
)
_SPARE_ROWS = 128  # a vocabulary may be filled up to a multiple of this, which suits the hardware


def problems_of_names(folder: Path, files: list[Path]) -> Iterator[str]:
    """What the names of the files that are to travel say against them; each line a reason with its remedy."""
    for path in files:
        name = path.as_posix()
        if any(fnmatch.fnmatch(part, "checkpoint-[0-9]*") for part in path.parts[:-1]):
            continue  # one line for the whole checkpoint, below
        if _any(path.name, _STATES):
            yield f"{name} belongs to a training run, which others cannot go on with; leave it out: --exclude '{name}'"
        elif _any(path.name, _PICKLES) or _starts_like_a_pickle(folder / path):
            yield (
                f"{name} is a pickle (or may hold one), which runs code when it is read; the Hub warns of it and many "
                f"refuse it. Save weights as safetensors, or leave it out: --exclude '{name}'"
            )
    for part in sorted({path.parts[0] for path in files if fnmatch.fnmatch(path.parts[0], "checkpoint-[0-9]*")}):
        yield f"{part}/ is a checkpoint of the training run; leave such folders out: --exclude 'checkpoint-*'"


def problems_of_sizes(folder: Path, files: list[Path], limit: int) -> Iterator[str]:
    for path in files:
        size = (folder / path).stat().st_size
        if size > limit and path.name != "model.safetensors":
            yield (
                f"{path.as_posix()} has {size / 1e9:.2f} GB, above --max-file-size; raise that, or leave it out: "
                f"--exclude '{path.as_posix()}'"
            )


def problems_of_model(folder: Path) -> Iterator[str]:
    """Weights, configuration and tokenizer: all there, readable, and of one model."""
    if not (folder / "config.json").is_file():
        yield "config.json is missing: this is not the folder of a model"
        return
    config = _json(folder / "config.json")
    if config is None:
        yield "config.json is not JSON, or not that of a model; save it by model.save_pretrained"
        return
    if config.get("model_type") != "mybert":
        yield (
            f"config.json is of a {config.get('model_type') or 'model without a type'}, not of a MyBERT; "
            "`mybert import` makes one of a BERT"
        )
        return
    if not config.get("architectures"):
        yield "config.json does not say which head was saved (architectures); save it by model.save_pretrained"
    shapes, reasons = _shapes(folder)
    yield from reasons
    rows = next((shape[0] for name, shape in shapes.items() if name.endswith("word_embeddings.weight")), None)
    if shapes and rows != config.get("vocab_size"):
        size = config.get("vocab_size")
        yield f"the weights embed {rows} tokens, config.json says vocab_size {size}; save both with the model"
    yield from _problems_of_vocabulary(folder, config.get("vocab_size") or 0)


def _problems_of_vocabulary(folder: Path, rows: int) -> Iterator[str]:
    remedy = "save the tokenizer that the model was trained with into the folder: tokenizer.save_pretrained(folder)"
    if not (folder / "tokenizer.json").is_file():
        yield f"the tokenizer is missing (tokenizer.json): {remedy}"
        return
    try:
        vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab(with_added_tokens=True)
    except Exception as error:  # tokenizers raises nothing narrower
        yield f"tokenizer.json cannot be read ({error}): {remedy}"
        return
    size = max(vocabulary.values(), default=-1) + 1
    if not rows - _SPARE_ROWS < size <= rows:
        yield f"the tokenizer has {size:,} tokens, the model {rows:,}; one of them is of another checkpoint: {remedy}"
    if (folder / "vocab.txt").is_file():
        listed = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        if any(vocabulary.get(token) != index for index, token in enumerate(listed)):
            yield f"vocab.txt and tokenizer.json differ: {remedy}"


def _shapes(folder: Path) -> tuple[dict[str, list[int]], list[str]]:
    """Name → shape of every weight, and what is wrong with the files."""
    shapes: dict[str, list[int]] = {}
    if (folder / INDEX).is_file():
        names = sorted(set((_json(folder / INDEX) or {}).get("weight_map", {}).values()))
    else:
        names = ["model.safetensors"]
    for name in names:
        if not (folder / name).is_file():
            return {}, [f"{name} is missing: weights are published as safetensors; save them by model.save_pretrained"]
        try:
            with safe_open(folder / name, "np") as file:
                shapes |= {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            return {}, [f"{name} is damaged ({error}); save it again"]
    return shapes, []


def problems_of_content(folder: Path, files: list[Path]) -> Iterator[str]:
    """Keys in any file but weights, absolute paths in any text; each with its line."""
    for path in files:
        data = _header(folder / path) if path.suffix == ".safetensors" else (folder / path).read_bytes()
        for line, kind in find_secrets(data):
            yield f"{path.as_posix()}:{line} holds {kind}; remove it, and call it in where it was issued"
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            continue
        found = list(find_paths(text))
        if found:
            line = text.count("\n", 0, found[0].start()) + 1
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            yield f"{path.as_posix()}:{line} names a path of this machine ({found[0][0]}{more}); replace it by a name"


def _header(path: Path) -> bytes:
    """The JSON at the beginning of a safetensors file, where texts may stand."""
    with path.open("rb") as file:
        return file.read(int.from_bytes(file.read(8), "little"))


def _starts_like_a_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4).startswith(_PICKLE_STARTS)


def _any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _json(path: Path) -> dict | None:
    """What the file holds; None if it is no JSON object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def is_code(path: Path) -> bool:
    return path.parent == Path() and re.fullmatch(r"\w+_mybert\.py", path.name) is not None
