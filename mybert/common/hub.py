"""Check that a Hub repository exists, before libraries retry for minutes."""

import contextlib
import os
import sys
import threading
from pathlib import Path

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError
from huggingface_hub.file_download import repo_folder_name

from mybert.common.errors import UserError, cause, did_you_mean


def name_for_others(model: str) -> str:
    """The name of a checkpoint in answers to other people: of a folder, its last part only."""
    path = Path(model)
    return path.resolve().name if path.is_dir() else model


def check_repository(name: str, kind: str = "model") -> None:
    """Checks that a repository exists on the Hub; if HF_HUB_OFFLINE is set, that it is cached.

    If the Hub cannot be reached but the repository is cached, the process continues offline.

    Args:
        name: a repository, not a local path.
        kind: `model` or `dataset`.
    """
    if constants.is_offline_mode():
        if not _is_cached(name, kind):
            place, what = ("folder", "model") if kind == "model" else ("file", "data set")
            missing = f"{name}: no such {place}, and no cached {what} of this name"
            raise UserError(f"{missing}; HF_HUB_OFFLINE is set, so the Hub is not asked{did_you_mean(name)}")
        return
    error = _ask(name, kind)
    if isinstance(error, HFValidationError):
        raise UserError(f"{name}: no such folder{did_you_mean(name)}") from error
    if isinstance(error, RepositoryNotFoundError) and not isinstance(error, GatedRepoError):
        missing = f"{name}: no such folder, and the Hub has no {kind} of this name"
        raise UserError(f"{missing} that you may read{did_you_mean(name)}") from error
    if error is None or isinstance(error, GatedRepoError):
        return
    reason = _reason(error)
    if not _is_cached(name, kind):
        unreachable = f"{name}: no such folder, and the Hub cannot be reached ({reason})"
        raise UserError(f"{unreachable}{did_you_mean(name)}") from error
    print(f"note: the Hub cannot be reached ({reason}); using the cached copy of {name}", file=sys.stderr)
    constants.HF_HUB_OFFLINE = True  # what HF_HUB_OFFLINE=1 sets


def _is_cached(name: str, kind: str) -> bool:
    with contextlib.suppress(HFValidationError):  # a path
        if (Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=name, repo_type=kind)).is_dir():
            return True
    datasets = sys.modules.get("datasets")  # its import takes seconds
    folder = datasets.config.HF_DATASETS_CACHE if datasets else os.environ.get("HF_DATASETS_CACHE")
    folder = folder or Path(constants.HF_HOME) / "datasets"
    return kind == "dataset" and (Path(folder) / name.replace("/", "___")).is_dir()


def check_reachable(repo_id: str) -> None:
    """Checks that the Hub answers before a long command that uploads at its end."""
    error = None if constants.is_offline_mode() else _ask(repo_id, "model")
    is_answer = isinstance(error, (HfHubHTTPError, ValueError)) and not _refuses_token(error)  # explained later
    if error is not None and not is_answer:
        raise UserError(f"the Hub cannot be reached ({_reason(error)}); nothing was sent") from error


def _refuses_token(error: Exception) -> bool:
    is_missing = isinstance(error, RepositoryNotFoundError)  # 401 of a repository that does not exist
    return isinstance(error, HfHubHTTPError) and error.response.status_code == 401 and not is_missing


def _reason(error: Exception) -> str:
    """Why the Hub did not answer the question for a repository."""
    if _refuses_token(error):
        return "it refuses the token: run `hf auth login` again, or change HF_TOKEN"
    return f"HTTP {error.response.status_code}" if isinstance(error, HfHubHTTPError) else cause(error)


def _ask(name: str, kind: str) -> Exception | None:
    """Asks for a repository once, without retries; returns the error.

    Runs in a thread, because the timeout of a request does not cover a name server that does not answer.
    """
    answers: list[Exception | None] = []

    def ask() -> None:
        try:
            HfApi().repo_info(name, repo_type=kind, timeout=seconds)
            answers.append(None)
        except Exception as error:
            answers.append(error)

    seconds = constants.HF_HUB_ETAG_TIMEOUT
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else TimeoutError(f"no answer in {seconds} s")
