"""Publication of a bundle in one commit, and the errors of the Hub's client in one line.

`HfApi.upload_folder` is not used: with hf_xet installed it splits a large upload into several commits, and a reader
of the branch could download a mixture of two models.
"""

import contextlib
import filecmp
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, constants, get_token, snapshot_download
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import filter_repo_objects

from modeling_mybert.configuration_mybert import names_mybert
from mybert.artifacts.staging import report_full_disk
from mybert.common.errors import UserError
from mybert.inference.checkpoint import head_of
from mybert.release.card.markdown_escaping import one_line
from mybert.release.hub.bundle import Bundle
from mybert.release.hub.bundle_checks import read_object
from mybert.release.settings import PushSettings

_NEW_REPOSITORY = (".gitattributes", "README.md", "LICENSE")  # files that a repository made on the site may hold
_REPLACED = ["*.safetensors", "*.safetensors.index.json", "*_mybert.py"]  # files of an older upload
_AGAIN = "run the same command again: files that have arrived are not sent again"
_REMEDIES = {
    401: "run `hf auth login` again",
    403: "use a token with write access, or another owner",
    404: "check the name of the repository and the access of your token",
    409: f"the repository was changed by somebody else; look at the change, then {_AGAIN}",
    412: f"the repository was changed by somebody else; look at the change, then {_AGAIN}",
}


@dataclass(frozen=True)
class Published:
    """A commit: its hash, the address of it or of its pull request, and whether the repository is private."""

    commit: str
    url: str
    private: bool


def check_login() -> None:
    """Raises in offline mode, without a token, and for a token with characters that no HTTP header can hold."""
    if constants.is_offline_mode():
        raise UserError("HF_HUB_OFFLINE is set: unset it to publish, or add --dry-run")
    token = get_token()
    if token is None:
        raise UserError("you are not logged in to the Hub: run `hf auth login`, or set HF_TOKEN")
    if not (token.isascii() and token.isprintable()):
        raise UserError("the token has invalid characters: run `hf auth login` again, or set HF_TOKEN")


def publish(bundle: Bundle, settings: PushSettings, pin: str) -> Published:
    """Sends the bundle as one commit, whose description names the revision `pin`.

    Large files are stored before the commit and stay stored: a second run after an interruption sends only the
    missing files. A commit without changes is not made.
    """
    api = HfApi(library_name="mybert")
    with hub_errors("nothing was sent"):
        parent, private = find_parent(api, bundle, settings)
        stale = find_stale(api, bundle, settings, parent)
    files = bundle.files()
    size = sum(path.stat().st_size for path in files.values())
    load = f"revision={pin!r}, trust_remote_code=True"
    with hub_errors("the repository is unchanged"):
        added = [CommitOperationAdd(name, str(path)) for name, path in files.items()]
        commit = api.create_commit(
            settings.repo_id,
            [*added, *map(CommitOperationDelete, stale)],
            commit_message=f"{head_of(bundle.config)}: weights, code, tokenizer and card",
            commit_description=f"{len(files)} files, {size:,} bytes. Load with {load}.",
            revision=settings.revision,
            create_pr=settings.create_pr,
            parent_commit=parent,
        )
    return Published(commit.oid, commit.pr_url or commit.commit_url, private)


def find_parent(api: HfApi, bundle: Bundle, settings: PushSettings) -> tuple[str | None, bool]:
    """Creates the repository and the branch if they are missing.

    Returns the commit that the new one follows, and whether the repository is private.
    """
    repo_id, name = settings.repo_id, settings.revision
    api.create_repo(repo_id, private=not settings.public, exist_ok=True)
    info = api.model_info(repo_id)
    refs = api.list_repo_refs(repo_id, include_pull_requests=True)
    tags = {ref.name: ref.target_commit for ref in refs.tags}
    branches = {ref.name: ref.target_commit for ref in refs.branches}
    branches |= {ref.ref: ref.target_commit for ref in refs.pull_requests or ()}
    if name in tags:
        raise UserError(f"--revision {name} is a tag of {repo_id}; name a branch")
    if settings.tag in tags and tags.get(bundle.content_tag()) != tags[settings.tag]:
        raise UserError(f"--tag {settings.tag} already names other files in {repo_id}; choose another tag")
    if name not in branches and settings.pull_request:
        raise UserError(f"--revision {name}: {repo_id} has no such pull request")
    if name not in branches:
        api.create_branch(repo_id, branch=name)
    return branches.get(name, info.sha), bool(info.private)


def find_stale(api: HfApi, bundle: Bundle, settings: PushSettings, revision: str | None) -> list[str]:
    """Files of the repository that the commit deletes."""
    names = api.list_repo_files(settings.repo_id, revision=revision)
    others = [name for name in names if name not in _NEW_REPOSITORY]
    if others and not settings.overwrite and not _holds_mybert(api, settings.repo_id, revision, names):
        raise UserError(
            f"{settings.repo_id} holds something else ({', '.join(others[:3])}{', …' if len(others) > 3 else ''}); "
            "choose another name, or add --overwrite to replace it (the history is kept)"
        )
    replaced = filter_repo_objects(others, allow_patterns=None if settings.overwrite else _REPLACED)
    return sorted(set(replaced) - bundle.files().keys())


def _holds_mybert(api: HfApi, repo_id: str, revision: str | None, names: list[str]) -> bool:
    if "config.json" not in names:
        return False
    with tempfile.TemporaryDirectory() as cache:
        path = api.hf_hub_download(repo_id, "config.json", revision=revision, cache_dir=cache)
        return names_mybert(read_object(Path(path)) or {})


def check_upload(bundle: Bundle, settings: PushSettings, published: Published, home: Path) -> None:
    """Downloads the commit into the empty cache of `home` and compares every byte."""
    snapshot = Path(snapshot_download(settings.repo_id, revision=published.commit, cache_dir=home / "hub"))
    _, differing, missing = filecmp.cmpfiles(bundle.folder, snapshot, bundle.files(), shallow=False)
    if differing or missing:
        raise UserError(f"the downloaded files differ from those sent: {', '.join(differing + missing)}")


def set_tags(bundle: Bundle, settings: PushSettings, published: Published) -> None:
    """Gives the commit the tag of its content and the tag of --tag, unless they exist."""
    api = HfApi(library_name="mybert")
    with hub_errors(f"commit {published.commit[:12]} is complete, only its tag is missing"):
        for tag in filter(None, (bundle.content_tag(), settings.tag)):
            api.create_tag(settings.repo_id, tag=tag, revision=published.commit, exist_ok=True)


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
        answer: BaseException | None = error  # the first HTTP error in the chain of causes
        while answer is not None and not isinstance(answer, HfHubHTTPError):
            answer = answer.__cause__ or answer.__context__
        known, remedy = answer or error, f"check the connection, then {_AGAIN}"
        if answer is not None:
            wait = answer.response.headers.get("Retry-After")
            remedy = _REMEDIES.get(answer.response.status_code, f"wait {wait} s, then {_AGAIN}" if wait else _AGAIN)
        message, token = one_line(known) or type(known).__name__, get_token()
        message = message.replace(token, "hf_…") if token else message
        raise UserError(f"the Hub cannot be used: {message}; {remedy} ({state})") from None
