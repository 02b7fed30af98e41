"""A checkpoint → the folder that is published: what belongs to it, complete, and nothing else."""

import fnmatch
import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from mybert.common.errors import UserError
from mybert.common.json_io import parse_json
from mybert.common.manifest import MANIFEST, fingerprint, write_json
from mybert.release.card.manifest_chain import PROVENANCE, provenance
from mybert.release.hub.bundle_checks import (
    INDEX,
    RECORDS,
    is_code,
    problems_of_content,
    problems_of_exclusion,
    problems_of_links,
    problems_of_model,
    problems_of_names,
    problems_of_records,
    problems_of_sizes,
    sides,
)
from mybert.release.hub.secret_scan import without_folders
from mybert.release.settings import PushSettings

CARD = "README.md"
WEIGHTS = "model.safetensors"
# What the other stages leave beside a model for its maker's eyes: rows of the data, and the runs that were not chosen.
_AT_HOME = ("runs", "*/predictions.jsonl", "*/errors.txt", "*/errors.png")
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass
class Bundle:
    """
    Attributes:
        source: the checkpoint.
        folder: the copy that is published.
        left_out: files of the checkpoint that do not travel.
        notes: what is worth saying of the others.
    """

    source: Path
    folder: Path
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def files(self) -> dict[str, Path]:
        """Name in the repository → path, sorted."""
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path for path in found}

    def hashes(self) -> dict[str, str]:
        """Name → SHA-256."""
        return {name: fingerprint(path) for name, path in self.files().items()}

    def content_name(self) -> str:
        """A tag that says what is loaded: the same for the same files, whatever the card says of them."""
        listed = json.dumps({name: value for name, value in self.hashes().items() if name != CARD})
        return f"mybert-{hashlib.sha256(listed.encode()).hexdigest()[:12]}"

    @property
    def config(self) -> dict:
        return parse_json((self.folder / "config.json").read_bytes())


def make_bundle(settings: PushSettings, folder: Path) -> Bundle:
    """Copies what is to be published from the checkpoint into the empty `folder`, all but the card.

    Raises:
        UserError: the checkpoint would not work for others, or says too much; every reason is given. Or it changed
            while it was copied.
    """
    source, limit = Path(settings.checkpoint), _bytes(settings.max_file_size)
    bundle = Bundle(source, folder)
    files = _travelling(bundle, [*_AT_HOME, *(settings.exclude or [])])
    _refuse(source, list(problems_of_links(source, files)))
    reasons = [*problems_of_names(source, files), *problems_of_sizes(source, files, limit)]
    reasons += [*problems_of_records(source, files), *problems_of_exclusion(bundle.left_out)]
    _refuse(source, [*reasons, *problems_of_model(source)])
    before = _state(source, files)
    for path in files:
        _copy(bundle, path, limit)
    if _state(source, files) != before:
        raise UserError(f"{source} changed while it was read; wait until nothing writes to it and run the same again")
    _complete_code(bundle)
    known = provenance(source) if Path(MANIFEST) in files else {}
    if known:
        write_json(folder / PROVENANCE, without_folders(known))
    else:
        bundle.notes.append(
            "no manifest leads to the training text from here and the card says nothing of it: is this the "
            "folder that training was started in?"
        )
    _refuse(source, list(problems_of_content(folder, [path.relative_to(folder) for path in bundle.files().values()])))
    return bundle


def _travelling(bundle: Bundle, exclude: list[str]) -> list[Path]:
    """The files that are not left out, sorted; hidden ones, caches, rows of data and an older card are."""
    files = []
    found = (path for path in bundle.source.rglob("*") if path.is_symlink() or not path.is_dir())
    for path in sorted(path.relative_to(bundle.source) for path in found):
        name = path.as_posix()
        hidden = any(part.startswith(".") or part == "__pycache__" for part in path.parts)
        parents = [parent.as_posix() for parent in path.parents if parent != Path()]
        if hidden or name == CARD or any(fnmatch.fnmatch(x, p.rstrip("/")) for x in (name, *parents) for p in exclude):
            bundle.left_out.append(name)
        else:
            files.append(path)
    return files


def _shortened(record):
    """A record without folders of this machine; labels stay as they are, though some begin with a slash."""
    labels = {name: record[name] for name in ("id2label", "label2id") if isinstance(record, dict) and name in record}
    return {**without_folders(record), **labels} if labels else without_folders(record)


def _copy(bundle: Bundle, path: Path, limit: int) -> None:
    source, target = bundle.source / path, bundle.folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    if path == Path(WEIGHTS) and source.stat().st_size > limit and not (bundle.source / INDEX).is_file():
        _write_shards(bundle, source, limit)
    elif path.name in RECORDS and (record := parse_json(source.read_bytes())) != (shortened := _shortened(record)):
        write_json(target, shortened)
        bundle.notes.append(f"{path.as_posix()}: folders of this machine shortened to their names")
    else:
        shutil.copyfile(source, target)


def _write_shards(bundle: Bundle, source: Path, limit: int) -> None:
    from huggingface_hub import save_torch_state_dict
    from safetensors.torch import load_file

    save_torch_state_dict(load_file(source), bundle.folder, max_shard_size=limit, metadata={"format": "pt"})
    bundle.notes.append(f"{WEIGHTS}: cut into {len(list(bundle.folder.glob('*.safetensors')))} files")


def _complete_code(bundle: Bundle) -> None:
    """Writes the code and the whole auto_map if the checkpoint lacks any of it.

    Raises:
        UserError: it is a pair of models that was not saved by our class.
    """
    from transformers.dynamic_module_utils import get_relative_import_files

    import modeling_mybert

    auto_map = bundle.config.get("auto_map") or {}
    is_pair = "" not in sides(bundle.config)
    expected = {"AutoConfig", "AutoModelForSeq2SeqLM"} if is_pair else modeling_mybert.AUTO_MAP.keys()
    modules = {bundle.folder / f"{name.split('.')[0]}.py" for name in auto_map.values()}
    try:
        needed = modules | {Path(file) for module in modules for file in get_relative_import_files(module)}
        complete = expected <= auto_map.keys() and all(file.is_file() for file in needed)
    except FileNotFoundError:
        complete = False
    if not complete and is_pair:
        _refuse(bundle.source, ["auto_map or code is not complete; save it by MyBertEncoderDecoderModel"])
    if not complete:
        modeling_mybert.MyBertConfig.from_pretrained(bundle.folder).save_pretrained(bundle.folder)
        bundle.notes.append("auto_map and code were not complete: written anew")
        return
    here = Path(modeling_mybert.__file__).parent
    code = [path for path in bundle.folder.iterdir() if is_code(path.relative_to(bundle.folder))]
    if any(not (here / p.name).is_file() or (here / p.name).read_bytes() != p.read_bytes() for p in code):
        bundle.notes.append("the code is the checkpoint's own, which is not that of this version of MyBERT")


def _state(folder: Path, files: list[Path]) -> list[tuple[int, int]]:
    stats = [(folder / path).stat() for path in files]
    return [(stat.st_mtime_ns, stat.st_size) for stat in stats]


def _refuse(source: Path, reasons: list[str]) -> None:
    if reasons:
        raise UserError(f"{source} is not published:\n" + "\n".join(f"  - {reason}" for reason in reasons))


def _bytes(size: str) -> int:
    return int(size[:-2]) * _UNITS[size[-2:].upper()]
