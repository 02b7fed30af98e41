"""What goes wrong between here and the Hub, in one line that says what to do and what state the repository is in."""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator

from huggingface_hub import get_token
from huggingface_hub.errors import (
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from mybert.common.disk_space import FULL_DISK
from mybert.common.errors import UserError
from mybert.release.card.escaping import one_line

_AGAIN = "run the same command again: what has arrived is not sent twice"


@contextlib.contextmanager
def explained(repo_id: str, state: str, of_answers: bool = False) -> Iterator[None]:
    """Turns the client's errors into a UserError.

    Args:
        state: of the repository if this block fails, as half a sentence.
        of_answers: the block works on nothing but what the Hub answers; the client trips over another shape of it.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        cause = _cause(error)
        message = _message(cause, repo_id, state)
        if message is None and of_answers:
            message = f"what answers for the Hub does not answer as it does: a proxy, or a wrong HF_ENDPOINT ({state})"
        if message is None:
            raise
        token = get_token()
        raise UserError(message.replace(token, "hf_…") if token else message) from None


def _cause(error: BaseException) -> BaseException:
    """The first error of a kind that is known below, in the chain that led to `error`."""
    seen = error
    while seen is not None:
        if isinstance(seen, (HfHubHTTPError, OfflineModeIsEnabled)) or _is_full_disk(seen) or _is_of_transport(seen):
            return seen
        seen = seen.__cause__ or seen.__context__
    return error


def _is_full_disk(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in FULL_DISK


def _is_of_transport(error: BaseException) -> bool:
    """The client's HTTP library is httpx or, in newer versions, httpx2; neither is ours to import."""
    return type(error).__module__.partition(".")[0] in ("httpx", "httpx2")


def _message(error: BaseException, repo_id: str, state: str) -> str | None:
    if isinstance(error, HfHubHTTPError):
        return f"{_of_status(error, repo_id)} ({state})"
    if isinstance(error, OfflineModeIsEnabled):
        return f"HF_HUB_OFFLINE is set, which forbids to reach the Hub; unset it to publish ({state})"
    if _is_full_disk(error):
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free / 2**30
        return (
            f"no room to write ({os.strerror(error.errno)}; {free:.1f} GiB free in {folder}): free some, or set "
            f"TMPDIR to another disk, and {_AGAIN} ({state})"
        )
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename} cannot be read or written ({error.strerror}) ({state})"
    if isinstance(error, json.JSONDecodeError):
        return f"what answers for the Hub gives no JSON: a proxy, or a wrong HF_ENDPOINT ({state})"
    if _is_of_transport(error) or isinstance(error, LocalEntryNotFoundError):
        return f"the connection to the Hub was lost ({type(error).__name__}); {_AGAIN} ({state})"
    return None


def _of_status(error: HfHubHTTPError, repo_id: str) -> str:
    status, said = error.response.status_code, one_line(error.server_message or "")
    if isinstance(error, RepositoryNotFoundError) and get_token() is None:
        return "you are not logged in to the Hub: run `hf auth login`, or set HF_TOKEN"
    if status == 401:
        return f"the Hub does not accept your token (401: {said}): it may have expired; run `hf auth login` again"
    if status == 403:
        return f"your token may not write to {repo_id} (403: {said}): make one that may, or choose another owner"
    if status == 404:
        return f"{repo_id} is not there, or your token may not see it (404: {said})"
    if status in (409, 412):
        return f"somebody changed {repo_id} meanwhile ({status}: {said}); look at the change, then {_AGAIN}"
    if status == 429:
        wait = error.response.headers.get("Retry-After")
        return f"the Hub asks for a pause{f' of {wait} s' if wait else ''} (429); then {_AGAIN}"
    if status >= 500:
        return f"the Hub is in trouble ({status}: {said}); wait a little and {_AGAIN}"
    return f"the Hub refused the upload ({status}: {said})"
