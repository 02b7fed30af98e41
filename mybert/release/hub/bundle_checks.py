"""Why a folder may not be published: everything that would not work for a stranger, or would say too much."""

import fnmatch
import re
from collections.abc import Iterator
from pathlib import Path

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from modeling_mybert import MyBertConfig
from mybert.common.error_messages import cause
from mybert.common.json_io import parse_json
from mybert.common.manifest import MANIFEST
from mybert.release.hub.auto_classes import HEADS
from mybert.release.hub.secret_scan import as_text, find_paths, find_secrets
from tokenization.tokenization_mybert import read_pieces

INDEX = "model.safetensors.index.json"
# JSON that MyBERT and transformers write, where paths are a record of the machine: shortened to names in the bundle.
RECORDS = ("config.json", "generation_config.json", "tokenizer_config.json", "manifest.json", "results.json")
_EMBEDDINGS = "word_embeddings.weight"
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


def problems_of_links(folder: Path, files: list[Path]) -> Iterator[str]:
    """What is no file, and links to files that are not the folder's own; those of the Hub's cache are."""
    home = folder.resolve()
    own = (home, home.parents[1] / "blobs") if len(home.parents) > 1 else (home,)
    for path in files:
        target = (folder / path).resolve()
        if not target.is_file():
            what = "a link to no file" if (folder / path).is_symlink() else "neither file nor folder"
        elif not any(target.is_relative_to(place) for place in own):
            what = "a link to a file outside of the folder"
        else:
            continue
        yield f"{path.as_posix()} is {what}; put the file itself there, or leave it out: --exclude '{path.as_posix()}'"


def problems_of_records(folder: Path, files: list[Path]) -> Iterator[str]:
    for path in files:
        if path.name in RECORDS and path != Path("config.json") and _json(folder / path) is None:
            yield f"{path.as_posix()} is damaged: it holds no JSON object; restore it, or leave it out"
    manifest = _json(folder / MANIFEST) if (folder / MANIFEST).is_file() else None  # also where --exclude names it
    if manifest and manifest.get("complete") is False:
        yield f"the run that makes it is not finished; `mybert {manifest.get('stage')} … --resume` goes on with it"


def problems_of_exclusion(left_out: list[str]) -> Iterator[str]:
    for name in left_out:
        needed = name in ("config.json", "tokenizer.json", "model.safetensors", INDEX)
        if needed or fnmatch.fnmatch(name, "model-?????-of-?????.safetensors"):
            yield f"--exclude leaves out {name}, without which nobody can load the model"


def problems_of_names(folder: Path, files: list[Path]) -> Iterator[str]:
    """What the names of the files that are to travel say against them; each line a reason with its remedy."""
    for path in files:
        name = path.as_posix()
        if any(map(_is_run, path.parents)):
            continue  # one line for the whole checkpoint, below
        if not (name.isprintable() and "\\" not in name):
            yield f"{name!r} has a name that not every system can store; rename it, or leave it out"
        if _any(path.name, _STATES):
            yield f"{name} belongs to a training run, which others cannot go on with; leave it out: --exclude '{name}'"
        elif _any(path.name, _PICKLES) or _starts_like_a_pickle(folder / path):
            yield (
                f"{name} is a pickle (or may hold one), which runs code when it is read; the Hub warns of it and many "
                f"refuse it. Save weights as safetensors, or leave it out: --exclude '{name}'"
            )
    for folder_of_run in sorted({parent.as_posix() for path in files for parent in path.parents if _is_run(parent)}):
        pattern = "checkpoint-*" if "/" not in folder_of_run else folder_of_run
        yield f"{folder_of_run}/ is a checkpoint of the training run; leave such folders out: --exclude '{pattern}'"


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
    if not is_mybert(config):
        yield (
            f"config.json is of a {config.get('model_type') or 'model without a type'}, not of a MyBERT; "
            "`mybert import` makes one of a BERT"
        )
        return
    yield from _problems_of_config(config)
    shapes, reasons = _shapes(folder)
    yield from reasons
    for prefix, side in sides(config).items():
        found = (x[0] for name, x in shapes.items() if name.startswith(prefix) and name.endswith(_EMBEDDINGS))
        rows, size = next(found, None), side.get("vocab_size")
        if shapes and rows != size:
            yield f"the weights embed {rows} tokens, config.json says vocab_size {size}; save both with the model"
    yield from _problems_of_vocabulary(folder, next(iter(sides(config).values())).get("vocab_size"))


def is_mybert(config: dict) -> bool:
    """Whether a configuration is that of a MyBERT, or of a pair of them."""
    return config.get("model_type") == "mybert" or (
        config.get("model_type") == "encoder-decoder"
        and [side.get("model_type") for side in sides(config).values()] == ["mybert"] * 2
    )


def sides(config: dict) -> dict[str, dict]:
    """Beginning of the names of weights → configuration: of the encoder and the decoder, or of the whole model."""
    if config.get("model_type") != "encoder-decoder":
        return {"": config}
    return {f"{name}.": config[name] for name in ("encoder", "decoder") if isinstance(config.get(name), dict)}


def _problems_of_config(config: dict) -> Iterator[str]:
    remedy = "save it by model.save_pretrained"
    if not _is_known_head(config.get("architectures")):
        yield f"config.json does not say which head of MyBERT was saved (architectures); {remedy}"
    auto_map = config.get("auto_map", {})
    if not isinstance(auto_map, dict) or not all(isinstance(name, str) for name in auto_map.values()):
        yield f"the auto_map in config.json is not a table of names; take it out, or {remedy}"
    try:
        for side in sides(config).values():
            MyBertConfig.from_dict(side)
    except (StrictDataclassError, TypeError, ValueError) as error:
        yield f"config.json cannot be used ({cause(error)}); {remedy}"


def _is_known_head(architectures) -> bool:
    return isinstance(architectures, list) and architectures != [] and architectures[0] in HEADS


def _problems_of_vocabulary(folder: Path, rows: int | None) -> Iterator[str]:
    remedy = "save the tokenizer that the model was trained with into the folder: tokenizer.save_pretrained(folder)"
    if not (folder / "tokenizer.json").is_file():
        yield f"the tokenizer is missing (tokenizer.json): {remedy}"
        return
    try:
        vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab(with_added_tokens=True)
    except Exception as error:  # tokenizers raises nothing narrower
        yield f"tokenizer.json cannot be read ({cause(error)}): {remedy}"
        return
    size = max(vocabulary.values(), default=-1) + 1
    if isinstance(rows, int) and not rows - _SPARE_ROWS < size <= rows:
        yield f"the tokenizer has {size:,} tokens, the model {rows:,}; one of them is of another checkpoint: {remedy}"
    if (folder / "vocab.txt").is_file():
        try:
            listed = read_pieces(folder / "vocab.txt")
        except ValueError as error:
            yield f"{error}: {remedy}"
            return
        if any(vocabulary.get(token) != index for index, token in enumerate(listed)):
            yield f"vocab.txt and tokenizer.json differ: {remedy}"


def _shapes(folder: Path) -> tuple[dict[str, list[int]], list[str]]:
    """Name → shape of every weight, and what is wrong with the files."""
    shapes: dict[str, list[int]] = {}
    if (folder / INDEX).is_file():
        listed = (_json(folder / INDEX) or {}).get("weight_map")
        if not isinstance(listed, dict) or not listed or any(Path(str(x)).name != x for x in listed.values()):
            return {}, [f"{INDEX} does not list the files beside it; save the weights again by model.save_pretrained"]
        names = sorted(set(listed.values()))
    else:
        names = ["model.safetensors"]
    for name in names:
        if not (folder / name).is_file():
            return {}, [f"{name} is missing: weights are published as safetensors; save them by model.save_pretrained"]
        try:
            with safe_open(folder / name, "np") as file:
                shapes |= {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            return {}, [f"{name} is damaged ({cause(error)}); save it again"]
    return shapes, []


def _damage(weights: Path) -> str | None:
    try:
        with safe_open(weights, "np"):
            return None
    except (SafetensorError, OSError) as error:
        return cause(error)


def problems_of_content(folder: Path, files: list[Path]) -> Iterator[str]:
    """Keys in any file but weights, absolute paths in any text; each with its line."""
    for path in files:
        if path.suffix == ".safetensors" and (damage := _damage(folder / path)):
            yield f"{path.as_posix()} is damaged ({damage}); save it again, or leave it out"
            continue
        data = _header(folder / path) if path.suffix == ".safetensors" else (folder / path).read_bytes()
        text = as_text(data)
        for line, kind in find_secrets(data if text is None else text.encode("utf-8", "replace")):
            yield f"{path.as_posix()}:{line} holds {kind}; remove it, and call it in where it was issued"
        found = list(find_paths(text or ""))
        if found:
            line = text.count("\n", 0, found[0].start()) + 1
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            yield f"{path.as_posix()}:{line} names a path of this machine ({found[0][0]}{more}); replace it by a name"


def _header(path: Path) -> bytes:
    """The JSON at the beginning of a safetensors file, where texts may stand."""
    with path.open("rb") as file:
        return file.read(min(int.from_bytes(file.read(8), "little"), path.stat().st_size))


def _starts_like_a_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4).startswith(_PICKLE_STARTS)


def _is_run(folder: Path) -> bool:
    return fnmatch.fnmatch(folder.name, "checkpoint-[0-9]*")


def _any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _json(path: Path) -> dict | None:
    """What the file holds; None if it is no JSON object."""
    try:
        value = parse_json(path.read_bytes())
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def is_code(path: Path) -> bool:
    return path.parent == Path() and re.fullmatch(r"\w+_mybert\.py", path.name) is not None
