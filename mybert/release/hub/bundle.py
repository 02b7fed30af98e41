"""The bundle: a folder with exactly the files to publish."""

import fnmatch
import hashlib
import importlib.metadata
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from transformers.dynamic_module_utils import get_relative_import_files

import modeling_mybert
from mybert.artifacts.manifest import MANIFEST, RESULTS, fingerprint, write_json
from mybert.common.errors import UserError
from mybert.common.json_io import parse_json
from mybert.inference.checkpoint import head_of
from mybert.inference.sentence_modules import MODULES
from mybert.release.hub.bundle_checks import (
    checkpoint_problems,
    content_problems,
    file_problems,
    is_code,
    loading_problems,
    read_object,
)
from mybert.release.hub.handler import PIPELINES
from mybert.release.hub.public_records import PROVENANCE, PublicRecords, manifest_chain
from mybert.release.settings import PushSettings

CARD = "README.md"
HANDLER = "handler.py"
_OTHER_EXAMPLES = (None, "question-answering", "multiple-choice")  # tasks whose inputs are no single texts
_ENDPOINT = ("torch", "transformers")  # older versions are installed there
_ENCODER = (*_ENDPOINT, "sentence-transformers")  # with modules.json
# Left out by default, in any folder: hidden files, checkpoints, state and logs of the training, and rows of the user's
# data. Logs of trackers and of jobs name the user, the computer and folders.
_LEFT_OUT = (
    *(".*", "__pycache__", "runs", "wandb", "mlruns", "checkpoint-[0-9]*", "damaged-checkpoint-*"),
    *("predictions.*", "errors.*", "suspects.*", "analysis.json", "report.html", "samples.jsonl"),
    *("settings.*", "*.log", "*.out"),
    *("optimizer*", "scheduler*", "scaler*", "rng_state*", "trainer_state.json", "training_args.bin"),
    *("pytorch_model_fsdp*", "global_step*", "events.out.tfevents*"),
)


@dataclass
class Bundle:
    """The checkpoint `source`, and the copy in `folder` that is published.

    `left_out` has the size of each file of the checkpoint that is not published, `notes` remarks for the user.
    """

    source: Path
    folder: Path
    left_out: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def files(self) -> dict[str, Path]:
        """Name in the repository → path, sorted."""
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path for path in paths}

    def content_tag(self) -> str:
        """A tag derived from the content of all files but the card."""
        hashes = {name: fingerprint(path) for name, path in self.files().items() if name != CARD}
        return f"mybert-{hashlib.sha256(json.dumps(hashes).encode()).hexdigest()[:12]}"

    @property
    def config(self) -> dict[str, Any]:
        return parse_json((self.folder / "config.json").read_bytes())

    @property
    def auto_classes(self) -> list[str]:
        """The Auto classes that load the model; without that of a decoder, which is transformers' BERT."""
        names = [name for name in self.config["auto_map"] if name.startswith("AutoModel")]
        return [name for name in names if name != "AutoModelForCausalLM"]


def make_bundle(settings: PushSettings, folder: Path) -> Bundle:
    """Copies the files to publish from the checkpoint into the new `folder`; the card is added later."""
    folder.mkdir()
    source = Path(settings.model)
    bundle = Bundle(source, folder)
    files = _select(bundle, settings.exclude or [])
    _refuse(source, [*file_problems(source, files), *checkpoint_problems(source, list(bundle.left_out))])
    if settings.example and PIPELINES[head := head_of(read_object(source / "config.json") or {})] in _OTHER_EXAMPLES:
        raise UserError(f"--example has no effect on a {head}, whose card has general examples; remove it")
    before = _modification_times(source, files)
    chain, gaps = manifest_chain(source) if Path(MANIFEST) in files else ({}, [])
    manifests = [read_object(source / MANIFEST) or {}, *chain.values()]
    records = PublicRecords.of(manifests, settings.name_sources, _labels(source))
    for path in files:
        _copy(bundle, path, records)
    if _modification_times(source, files) != before:
        raise UserError(f"{source} changed while it was read; run the command again when the training has finished")
    _refuse(source, list(loading_problems(folder, source)))
    _limit_length(bundle)
    _complete_code(bundle)
    _add_handler(bundle)
    if Path(MANIFEST) not in files:
        gaps = [f"without {MANIFEST}, the card does not describe the training data"]
    bundle.notes += gaps
    if chain:
        write_json(folder / PROVENANCE, {name: records.record(manifest) for name, manifest in chain.items()})
    copied = [path.relative_to(folder) for path in bundle.files().values()]
    _refuse(source, list(content_problems(folder, copied, () if settings.name_sources else records.local)))
    return bundle


def _select(bundle: Bundle, exclude: list[str]) -> list[Path]:
    """The files to copy, sorted. A pattern of `exclude` matches a file or one of the folders it is in."""
    files, unused = [], set(exclude)
    for path in sorted(path for path in bundle.source.rglob("*") if path.is_symlink() or not path.is_dir()):
        relative = path.relative_to(bundle.source)
        names = [relative.as_posix(), *(parent.as_posix() for parent in relative.parents if parent != Path())]
        is_of_the_run = any(fnmatch.fnmatch(part, pattern) for part in relative.parts for pattern in _LEFT_OUT)
        chosen = [p for p in exclude if any(fnmatch.fnmatch(name, p.rstrip("/")) for name in names)]
        unused -= {*chosen}
        if is_of_the_run or chosen or relative == Path(CARD):
            bundle.left_out[names[0]] = path.lstat().st_size
        else:
            files.append(relative)
    if unused:  # a misspelt name would be published
        raise UserError(f"--exclude {min(unused)} matches no file in {bundle.source}; correct or remove it")
    return files


def _copy(bundle: Bundle, path: Path, records: PublicRecords) -> None:
    """Copies a file; a record or configuration in its published form."""
    source, target = bundle.source / path, bundle.folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    is_record = path.name in (MANIFEST, RESULTS)
    if (is_record or fnmatch.fnmatch(path.name, "*config*.json")) and (record := read_object(source)) is not None:
        public = records.record(record) if is_record else records.config(record)
        if public != record:
            write_json(target, public)
            what = "local paths replaced by names" if records.named else "local names removed (see --name-sources)"
            bundle.notes.append(f"{path.as_posix()}: {what}")
            return
    shutil.copyfile(source, target)


def _labels(folder: Path) -> set[str]:
    """The names of the labels of a checkpoint, some of which begin with a slash."""
    names = (read_object(folder / "config.json") or {}).get("id2label")
    return {str(name) for name in names.values()} if isinstance(names, dict) else set()


def _limit_length(bundle: Bundle) -> None:
    """Sets the maximum length of a tokenizer that has none, so that `truncation=True` has an effect."""
    path = bundle.folder / "tokenizer_config.json"
    settings = read_object(path)
    positions = bundle.config.get("max_position_embeddings", 512)  # the default of the configuration
    length = None if settings is None else settings.get("model_max_length")
    if settings is None or (isinstance(length, int) and length <= positions):
        return
    write_json(path, {**settings, "model_max_length": positions})
    bundle.notes.append(f"{path.name}: model_max_length set to {positions}, the positions of the model")


def _complete_code(bundle: Bundle) -> None:
    """Writes code and `auto_map` if the checkpoint lacks a part of them."""
    auto_map = bundle.config.get("auto_map")
    auto_map = auto_map if isinstance(auto_map, dict) else {}
    pipelines = bundle.config.get("custom_pipelines")
    pipelines = [entry.get("impl") for entry in (pipelines if isinstance(pipelines, dict) else {}).values()]
    modules = {bundle.folder / f"{str(name).split('.')[0]}.py" for name in [*auto_map.values(), *pipelines]}
    try:
        needed = modules | {Path(file) for module in modules for file in get_relative_import_files(module)}
        complete = modeling_mybert.AUTO_MAP.keys() <= auto_map.keys() and all(file.is_file() for file in needed)
    except FileNotFoundError:
        complete = False
    if not complete:
        config = modeling_mybert.MyBertConfig.from_pretrained(bundle.folder)
        config.auto_map = auto_map
        config.save_pretrained(bundle.folder)
        bundle.notes.append("auto_map and the model code were missing or incomplete and have been written")
        return
    here = Path(modeling_mybert.__file__).parent
    code = [path for path in bundle.folder.iterdir() if is_code(path.relative_to(bundle.folder))]
    if any(not (here / p.name).is_file() or (here / p.name).read_bytes() != p.read_bytes() for p in code):
        bundle.notes.append("the model code is the checkpoint's own and differs from this version of MyBERT")


def _add_handler(bundle: Bundle) -> None:
    """Adds what Inference Endpoints need, unless the checkpoint has its own: handler.py and requirements.txt.

    A note names these own files, and other Python files that are not model code.
    """
    names = _ENCODER if (bundle.folder / MODULES).exists() else _ENDPOINT
    all_needed = map(Requirement, importlib.metadata.requires("mybert") or ())
    needed = [f"{one.name}{one.specifier}" for one in all_needed if one.name in names]
    source = Path(__file__).with_name(HANDLER).read_text(encoding="utf-8")
    texts = {HANDLER: source, "requirements.txt": "".join(f"{line}\n" for line in needed)}
    own = []
    for name, path in bundle.files().items():
        if name in texts and path.read_bytes() != texts[name].encode():
            own.append(f"{name} (without it, MyBERT's is added)")
        elif path.suffix == ".py" and name not in texts and not is_code(Path(name)):
            own.append(name)
    if own:
        bundle.notes.append(f"the checkpoint's own, uploaded as it is: {', '.join(own)}")
    for name, text in texts.items():
        if not (bundle.folder / name).exists():
            (bundle.folder / name).write_text(text, encoding="utf-8", newline="\n")


def _modification_times(folder: Path, files: Iterable[Path]) -> list[tuple[int, int]]:
    stats = [(folder / path).stat() for path in files]
    return [(stat.st_mtime_ns, stat.st_size) for stat in stats]


def _refuse(source: Path, reasons: list[str]) -> None:
    if reasons:
        raise UserError(f"{source} cannot be published:\n" + "\n".join(f"  - {reason}" for reason in reasons))
