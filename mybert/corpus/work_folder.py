"""The folder a build works in: it becomes the output, vanishes, or stays for `--resume`."""

import contextlib
import glob
import hashlib
import importlib.metadata
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import filelock

from mybert.common.errors import UserError
from mybert.common.json_io import parse_json
from mybert.common.manifest import versions, write_json
from mybert.common.output_folders import staged_folder
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.text.document_store import open_stored
from mybert.corpus.text.sources import Source
from tokenization import MyBertTokenizer

logger = logging.getLogger(__name__)

_SCRATCH, _JOB, _LOCK = ".scratch", "job.json", "lock"
_SECONDS_FOR_ORPHANS = 10  # processes of a killed build end at once, but not before they notice


@contextlib.contextmanager
def work_folder(settings: CorpusSettings, job: dict) -> Iterator[tuple[Path, Path]]:
    """Yields the folder that takes the output's name when the block ends well, and the scratch folder inside.

    Args:
        job: of `describe_job`. With `resume`, the folder is that of a build of the same job that did not end well,
            and it is kept if this one does not either, unless it still has no documents.
    """

    def keep(folder: Path) -> bool:
        return settings.resume and open_stored(folder / _SCRATCH) is not None

    with contextlib.ExitStack() as stack:
        left = _left_behind(settings, job, stack) if settings.resume else None
        folder = stack.enter_context(
            staged_folder(settings.output, overwrite=settings.overwrite, stage="corpus", left=left, keep=keep)
        )
        scratch = folder / _SCRATCH
        if left is None:
            scratch.mkdir()
            stack.enter_context(filelock.FileLock(scratch / _LOCK))
            write_json(scratch / _JOB, job)
        yield folder, scratch


def describe_job(settings: CorpusSettings, sources: Sequence[Source], tokenizer: MyBertTokenizer) -> dict:
    """Everything that the result depends on; files by name, size and time, so that nothing large is read for it."""
    inputs = {
        source.name: [[file.stat().st_size, file.stat().st_mtime_ns] for file in source.files()] for source in sources
    }
    return {
        "settings": settings.decisive(),
        "inputs": inputs,
        "tokenizer": hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest(),
        "versions": versions() | {"sentencex": importlib.metadata.version("sentencex")},
    }


def _left_behind(settings: CorpusSettings, job: dict, stack: contextlib.ExitStack) -> Path | None:
    """The folder of a build of the same job that nobody works in any more; it is locked until `stack` ends."""
    output = Path(settings.output)
    for folder in sorted(output.parent.glob(f".{glob.escape(output.name)}.partial-*")):
        try:
            found = parse_json((folder / _SCRATCH / _JOB).read_bytes())
        except (OSError, ValueError):
            continue
        if not isinstance(found, dict):
            continue
        if different := sorted(name for name in job if found.get(name) != job[name]):
            logger.warning("--resume: %s was left by a build with other %s", folder, " and ".join(different))
            continue
        try:
            stack.enter_context(filelock.FileLock(folder / _SCRATCH / _LOCK, timeout=_SECONDS_FOR_ORPHANS))
        except filelock.Timeout as error:
            raise UserError(f"--resume: another build is still at work in {folder}; wait for it or end it") from error
        logger.warning("--resume: going on with %s", folder)
        return folder
    return None
