"""One-line messages for errors of the Hub client: its own message, a remedy and the state of the repository."""

import contextlib
from collections.abc import Iterator

from huggingface_hub import get_token
from huggingface_hub.errors import HfHubHTTPError

from mybert.artifacts.staging import report_full_disk
from mybert.common.errors import UserError
from mybert.release.card.markdown_escaping import one_line

_AGAIN = "run the same command again: files that have arrived are not sent again"
_REMEDIES = {
    401: "run `hf auth login` again",
    403: "use a token with write access, or another owner",
    404: "check the name of the repository and the access of your token",
    409: f"the repository was changed by somebody else; look at the change, then {_AGAIN}",
    412: f"the repository was changed by somebody else; look at the change, then {_AGAIN}",
}


@contextlib.contextmanager
def hub_errors(state: str) -> Iterator[None]:
    """Converts every exception in a block of calls to the Hub into a UserError.

    Its message ends with `state`, a description of the repository after the failure.
    """
    try:
        with report_full_disk("the download", remedy="free some space, or set TMPDIR to another disk"):
            yield
    except UserError as error:
        raise UserError(f"{error} ({state})") from error
    except Exception as error:
        known = _known(error)
        message, token = one_line(known) or type(known).__name__, get_token()
        message = message.replace(token, "hf_…") if token else message
        raise UserError(f"the Hub cannot be used: {message}; {_remedy(known)} ({state})") from None


def _known(error: BaseException) -> BaseException:
    """The first HTTP error in the chain of causes, or `error` itself."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, HfHubHTTPError):
        cause = cause.__cause__ or cause.__context__
    return cause or error


def _remedy(error: BaseException) -> str:
    if not isinstance(error, HfHubHTTPError):
        return f"check the connection, then {_AGAIN}"
    wait = error.response.headers.get("Retry-After")
    pause = f"wait {wait} s, then " if wait else ""
    return _REMEDIES.get(error.response.status_code, f"{pause}{_AGAIN}")
