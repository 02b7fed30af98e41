"""The temporary folder of a build, kept for `--resume` after an interruption."""

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
from mybert.io.sources import Source
from tokenization import MyBertTokenizer

logger = logging.getLogger(__name__)

_SCRATCH, _JOB, _LOCK = ".scratch", "job.json", "lock"
LOCK_SECONDS = 10  # processes of a killed build end within a few seconds


@contextlib.contextmanager
def work_folder(settings: CorpusSettings, job: dict) -> Iterator[tuple[Path, Path]]:
    """Yields the folder that becomes the output, and the scratch folder in it.

    With `resume`, the folder of an unfinished build of the same job is used again. After an interruption the folder is
    kept if it has all documents.

    Args:
        job: from `describe_job`.
    """

    def keep(folder: Path) -> bool:
        return settings.resume and open_stored(folder / _SCRATCH) is not None

    with contextlib.ExitStack() as stack:
        left = _unfinished(settings, job, stack) if settings.resume else None
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
    """Everything that determines the result. Files are described by name, size and time, without reading them."""
    inputs = {
        source.name: [[file.stat().st_size, file.stat().st_mtime_ns] for file in source.files()] for source in sources
    }
    return {
        "settings": settings.decisive(),
        "inputs": inputs,
        "tokenizer": hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest(),
        "versions": versions() | {"sentencex": importlib.metadata.version("sentencex")},
    }


def _unfinished(settings: CorpusSettings, job: dict, stack: contextlib.ExitStack) -> Path | None:
    """The folder of an unfinished build of the same job, locked until `stack` ends; None if there is none."""
    output = Path(settings.output)
    for folder in sorted(output.parent.glob(f".{glob.escape(output.name)}.partial-*")):
        try:
            found = parse_json((folder / _SCRATCH / _JOB).read_bytes())
        except (OSError, ValueError):
            continue
        if not isinstance(found, dict):
            continue
        if different := sorted(name for name in job if found.get(name) != job[name]):
            logger.warning("--resume: %s is of a build with other %s; starting anew", folder, " and ".join(different))
            continue
        try:
            stack.enter_context(filelock.FileLock(folder / _SCRATCH / _LOCK, timeout=LOCK_SECONDS))
        except filelock.Timeout as error:
            raise UserError(f"--resume: another build is running in {folder}; wait for it or stop it") from error
        logger.warning("--resume: continuing in %s", folder)
        return folder
    return None
