"""The bundle → a repository of the Hub: one commit that holds all of it, or none."""

import fnmatch
import tempfile
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    ModelInfo,
    get_token,
    hf_hub_download,
    snapshot_download,
)
from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import sha

from mybert.common.errors import UserError
from mybert.common.json_io import parse_json
from mybert.common.manifest import fingerprint, versions
from mybert.release.hub.bundle import Bundle
from mybert.release.hub.bundle_checks import is_mybert
from mybert.release.hub.hub_errors import explained
from mybert.release.settings import PushSettings

_OF_THE_HUB = (".gitattributes", "README.md", "LICENSE")  # what a repository has when it is made on the site
_REPLACED = ("*.safetensors", "*.safetensors.index.json", "*_mybert.py")  # an older upload's, which must not stay


@dataclass(frozen=True)
class Published:
    """
    Attributes:
        commit: its hash.
        url: of the commit, or of the pull request.
        private: whether the repository is.
    """

    commit: str
    url: str
    private: bool


def check_login() -> None:
    """
    Raises:
        UserError: nobody is logged in to the Hub.
    """
    token = get_token()
    if token is None:
        raise UserError("you are not logged in to the Hub: run `hf auth login`, or set HF_TOKEN")
    if not (token.isascii() and token.isprintable()):
        raise UserError("the token has letters that no token has: run `hf auth login` again, or set HF_TOKEN anew")


def publish(bundle: Bundle, settings: PushSettings, pin: str) -> Published:
    """Sends the bundle as one commit.

    Large files go to the storage before it and stay there: a second run after an interruption sends only what is
    missing, and a commit without changes is not made.

    Raises:
        UserError: no right, the repository holds something else, it changed meanwhile, or the
            connection was lost. The repository is as it was then.
    """
    api, repo_id = HfApi(library_name="mybert"), settings.repo_id
    with explained(repo_id, "nothing was sent", of_answers=True):
        info = _repository(api, settings)
        head = _branch(api, settings, info.sha)
        _check_tag(api, bundle, settings)
        stale = _stale(api, bundle, settings, head)
    hashes = bundle.hashes()
    operations = [CommitOperationAdd(name, str(path)) for name, path in bundle.files().items()]
    operations += [CommitOperationDelete(name) for name in stale]
    with explained(repo_id, "the repository is as it was", of_answers=True):
        commit = api.create_commit(
            repo_id,
            operations,
            commit_message=f"{bundle.config['architectures'][0]}: weights, code, tokenizer and card",
            commit_description=_description(bundle, pin),
            revision=settings.revision,
            create_pr=settings.create_pr,
            parent_commit=head,
        )
    if bundle.hashes() != hashes:
        raise UserError(f"{bundle.folder} changed during the upload of commit {commit.oid[:12]}; push again")
    return Published(commit.oid, commit.pr_url or commit.commit_url, bool(info.private))


def check_upload(bundle: Bundle, settings: PushSettings, published: Published, home: Path) -> None:
    """Downloads the commit into the empty cache of `home` and compares every byte.

    Raises:
        UserError: it is not what was sent.
    """
    snapshot = snapshot_download(settings.repo_id, revision=published.commit, cache_dir=home / "hub")
    expected = bundle.hashes()
    found = {name: fingerprint(Path(snapshot) / name) for name in expected if (Path(snapshot) / name).is_file()}
    differing = [name for name in expected if found.get(name) != expected[name]]
    if differing:
        raise UserError(f"commit {published.commit[:12]} holds other bytes than were sent: {', '.join(differing)}")


def tag(settings: PushSettings, published: Published, pin: str) -> None:
    """Gives the commit the name that its card pins, unless it has it."""
    with explained(settings.repo_id, f"commit {published.commit[:12]} is complete, only its tag {pin} is missing"):
        HfApi(library_name="mybert").create_tag(
            settings.repo_id, tag=pin, revision=published.commit, tag_message="made by mybert push", exist_ok=True
        )


def _repository(api: HfApi, settings: PushSettings) -> ModelInfo:
    """What the Hub says of the repository, which is made if it is not there."""
    try:
        return api.model_info(settings.repo_id)
    except RepositoryNotFoundError:
        api.create_repo(settings.repo_id, private=not settings.public)
        return api.model_info(settings.repo_id)


def _branch(api: HfApi, settings: PushSettings, main: str) -> str:
    """The commit that this one is to follow; a branch that is not there is made from main."""
    name = settings.revision
    refs = api.list_repo_refs(settings.repo_id, include_pull_requests=True)
    if name in {ref.name for ref in refs.tags}:
        raise UserError(f"--revision {name} is a tag of {settings.repo_id}; name a branch")
    known = {ref.name: ref.target_commit for ref in refs.branches}
    known |= {ref.ref: ref.target_commit for ref in refs.pull_requests or ()}
    if name not in known:
        if settings.pull_request:
            raise UserError(f"--revision {name}: {settings.repo_id} has no such pull request")
        api.create_branch(settings.repo_id, branch=name)
    return known.get(name, main)


def _check_tag(api: HfApi, bundle: Bundle, settings: PushSettings) -> None:
    """
    Raises:
        UserError: the tag that was asked for names other files.
    """
    if settings.tag is None or not any(ref.name == settings.tag for ref in api.list_repo_refs(settings.repo_id).tags):
        return
    if not _is_there(api, bundle, settings.repo_id, settings.tag):
        raise UserError(f"--tag {settings.tag} names something else in {settings.repo_id} already; choose another")


def _is_there(api: HfApi, bundle: Bundle, repo_id: str, revision: str) -> bool:
    """Whether every file of the bundle is in that revision."""
    there = {entry.path: entry for entry in _tree(api, repo_id, revision)}
    return all(name in there and _same(path, there[name]) for name, path in bundle.files().items())


def _same(path: Path, there: RepoFile) -> bool:
    if there.lfs is not None:
        return fingerprint(path) == there.lfs.sha256
    return sha.git_hash(path.read_bytes()) == there.blob_id


def _stale(api: HfApi, bundle: Bundle, settings: PushSettings, head: str) -> list[str]:
    """Files of the repository that this commit must take away.

    Raises:
        UserError: the repository holds something that is not a MyBERT.
    """
    kept = bundle.files()
    others = [entry.path for entry in _tree(api, settings.repo_id, head) if entry.path not in _OF_THE_HUB]
    if settings.overwrite:
        return [name for name in others if name not in kept]
    if others and not _is_mybert(api, settings.repo_id, head):
        raise UserError(
            f"{settings.repo_id} holds something else ({', '.join(others[:3])}{', …' if len(others) > 3 else ''}); "
            "choose another name, or add --overwrite to replace it (its history stays)"
        )
    return [n for n in others if n not in kept and any(fnmatch.fnmatch(n, pattern) for pattern in _REPLACED)]


def _tree(api: HfApi, repo_id: str, revision: str) -> list[RepoFile]:
    entries = api.list_repo_tree(repo_id, revision=revision, recursive=True)
    return [entry for entry in entries if isinstance(entry, RepoFile)]


def _is_mybert(api: HfApi, repo_id: str, revision: str) -> bool:
    if not api.file_exists(repo_id, "config.json", revision=revision):
        return False
    with tempfile.TemporaryDirectory() as cache:
        path = hf_hub_download(repo_id, "config.json", revision=revision, cache_dir=cache)
        found = parse_json(Path(path).read_bytes())
        return isinstance(found, dict) and is_mybert(found)


def _description(bundle: Bundle, pin: str) -> str:
    files = bundle.files()
    size = sum(path.stat().st_size for path in files.values())
    made = ", ".join(f"{name} {number}" for name, number in versions().items())
    load = f"Load with revision={pin!r} and trust_remote_code=True."
    return f"{len(files)} files, {size:,} bytes. {load}\n\nMade by {made}."
