"""What must not leave the machine: keys in any file, and its own paths in text."""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

_SECRETS = {
    "a Hugging Face token": rb"\b(?:hf_(?:oauth_|jwt_)?|api_org_)[A-Za-z0-9]{30,}",
    "a private key": rb"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----",
    "an AWS key": rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "an AWS secret": rb"(?:aws_secret_access_key|AWS_SECRET_ACCESS_KEY)\W{1,5}[A-Za-z0-9/+=]{40}",
    "a GitHub token": rb"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})",
    "a GitLab token": rb"\bglpat-[A-Za-z0-9_-]{20,}",
    "a key of OpenAI's or Anthropic's": rb"\bsk-(?:[a-z]+[0-9]*-){0,2}[A-Za-z0-9_-]{32,}",
    "a Google key": rb"\bAIza[A-Za-z0-9_-]{35}",
    "a Slack token": rb"\bxox[abeprs]-[A-Za-z0-9-]{20,}",
    "a token of a package registry": rb"\b(?:npm_[A-Za-z0-9]{36}|pypi-AgE[A-Za-z0-9_-]{50,})",
    "a JSON web token": rb"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,}",
    "a password in an address": rb"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]{1,64}:[^\s/:@'\"{}$<>*]{3,128}@[\w.-]+",
    "a key or password": (
        rb"(?i:\b\w{0,40}(?:api_?key|secret|token|passw(?:or)?d))[\"']?\s{0,3}[:=]\s{0,3}[\"']?"
        rb"(?=[^\s\"']{0,60}[0-9])[A-Za-z0-9_+/=-]{16,}"
    ),
}
_SECRET = re.compile(b"|".join(b"(%b)" % pattern for pattern in _SECRETS.values()))

# Where people and machines keep their own files; what every system has (/usr, /etc, /dev, …) tells nothing.
_ROOTS = (
    "home|Users|root|mnt|media|data|tmp|var|opt|srv|scratch|work|workspace|workspaces|gpfs|lustre|nfs|storage|Volumes"
)
_OF_EVERY_SYSTEM = ("bin", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "usr")
_POSIX = r"(?<![\w/.:~<>}\])-])(?:file://)?/(?P<first>[\w.+@-]+)(?:/[\w.+@ -]*[\w.+@-])+/?"
_WINDOWS = r"(?<![\w/])[A-Za-z]:(?:\\{1,2}|/)[\w.+@-]+(?:(?:\\{1,2}|/)[\w.+@-]+)*"
_SHARE = r"(?<!\\)\\\\[\w.-]+\\[\w.$-]+(?:\\[\w.$-]+)*"
_EITHER = re.compile(f"{_POSIX}|{_WINDOWS}|{_SHARE}")


def as_text(data: bytes) -> str | None:
    """The text that a file holds, whatever its encoding; None if it holds none."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    return None if b"\0" in data else data.decode("utf-8", "replace")


def find_secrets(data: bytes) -> Iterator[tuple[int, str]]:
    """
    Yields:
        Line, from 1, and kind of each key; never the key.
    """
    for match in _SECRET.finditer(data):
        yield data.count(b"\n", 0, match.start()) + 1, list(_SECRETS)[match.lastindex - 1]


def find_paths(text: str) -> Iterator[re.Match]:
    """The places that name a file or folder of this machine, or of one like it, from its root."""
    for match in _EITHER.finditer(text):
        first = match["first"]
        if first in _OF_EVERY_SYSTEM:
            continue
        if first is None or re.fullmatch(_ROOTS, first) or _exists(match[0]):
            yield match


def _exists(path: str) -> bool:
    try:
        return Path(path.removeprefix("file://")).exists()
    except OSError:
        return False


def without_folders(value):
    """`value`, as read from JSON, with every such path shortened to its last part."""
    if isinstance(value, dict):
        return {without_folders(key): without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_folders(item) for item in value]
    if not isinstance(value, str):
        return value
    if value.startswith("/") and len(value) > 1:  # nothing but a path
        return _last_part(value)
    while paths := list(find_paths(value)):  # what is left of one may make another with what stood before it
        for match in reversed(paths):
            value = value[: match.start()] + _last_part(match[0]) + value[match.end() :]
    return value


def _last_part(path: str) -> str:
    return re.split(r"[\\/]+", path.rstrip("\\/"))[-1]
