"""The responses of the local Hub and its storage: one function for each endpoint that `huggingface_hub` uses."""

import base64
import functools
import hashlib
import json
from dataclasses import dataclass, field
from urllib.parse import unquote

import yaml

MAIN = "refs/heads/main"
_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"


@dataclass(frozen=True)
class File:
    """A file of a commit; `sha256` only if it is in the storage."""

    data: bytes
    sha256: str | None = None

    @functools.cached_property
    def oid(self) -> str:
        data = _POINTER.format(self.sha256, len(self.data)).encode() if self.sha256 else self.data
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Repo:
    private: bool
    readers: set[str] | None = None  # of a gated repository
    commits: dict[str, dict[str, File]] = field(default_factory=dict)
    messages: dict[str, tuple[str, str]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)

    def commit(self, ref: str, files: dict[str, File], summary: str, description: str = "") -> str:
        state = json.dumps([sorted((path, file.oid) for path, file in files.items()), len(self.commits), summary])
        oid = hashlib.sha1(state.encode()).hexdigest()
        self.commits[oid], self.messages[oid], self.refs[ref] = files, (summary, description), oid
        return oid

    def find(self, revision: str) -> str | None:
        names = (revision, f"refs/heads/{revision}", f"refs/tags/{revision}")
        return next(
            (self.refs[name] for name in names if name in self.refs), revision if revision in self.commits else None
        )

    def files(self, revision: str = "main") -> dict[str, bytes]:
        """Path → content."""
        return {path: file.data for path, file in self.commits[self.find(revision)].items()}


class Answer(Exception):
    """The response; raising it ends the request."""

    def __init__(self, status: int = 200, body: bytes | dict | list = b"", **headers: str):
        self.status, self.headers = status, {name.replace("_", "-"): value for name, value in headers.items()}
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()


def error(status: int, message: str, code: str = "") -> Answer:
    headers = {"X_Error_Message": message} | ({"X_Error_Code": code} if code else {})
    return Answer(status, {"error": message}, **headers)


class Call:
    """A request."""

    def __init__(self, hub, handler, query: dict, body: bytes):
        self.hub, self.query, self.raw = hub, query, body
        self.headers, self.head = handler.headers, handler.command == "HEAD"

    @property
    def json(self) -> dict:
        return json.loads(self.raw)

    def user(self, write: bool = False) -> str | None:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token and token not in self.hub.users:
            raise error(401, "Invalid credentials in Authorization header")
        if write and not token:
            raise error(401, "Invalid username or password.")
        name, may_write = self.hub.users.get(token, (None, False))
        if write and not may_write:
            raise error(403, "You don't have the required permissions: the token is read-only")
        return name

    def repo(self, name: str, write: bool = False) -> Repo:
        user, repo = self.user(write), self.hub.repos.get(name)
        if repo is None or (repo.private and user is None):
            raise error(404 if user else 401, "Repository not found", "RepoNotFound")
        return repo

    def state(self, name: str, revision: str) -> tuple[Repo, str, dict[str, File]]:
        repo = self.repo(name)
        oid = repo.find(unquote(revision))
        if oid is None:
            raise error(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return repo, oid, repo.commits[oid]


def create_repo(call: Call):
    owner, asked = call.user(write=True), call.json
    name = f"{asked.get('organization') or owner}/{asked['name']}"
    if name in call.hub.repos:
        raise Answer(409, {"error": "You already created this model repo", "url": f"{call.hub.url}/{name}"})
    call.hub.new_repo(name, asked.get("visibility") == "private" or bool(asked.get("private")))
    raise Answer(body={"url": f"{call.hub.url}/{name}", "name": name})


def model_info(call: Call, name: str, revision: str = "main"):
    repo, oid, files = call.state(name, revision)
    siblings = [{"rfilename": path, "size": len(file.data), "blobId": file.oid} for path, file in files.items()]
    info = {"id": name, "modelId": name, "sha": oid, "private": repo.private, "tags": [], "siblings": siblings}
    raise Answer(body=info)


def refs(call: Call, name: str):
    kinds = {"branches": "refs/heads/", "tags": "refs/tags/", "pullRequests": "refs/pr/"}
    found = call.repo(name).refs.items()
    listed = {
        kind: [
            {"name": r.removeprefix(start), "ref": r, "targetCommit": oid} for r, oid in found if r.startswith(start)
        ]
        for kind, start in kinds.items()
    }
    raise Answer(body={"converts": [], **listed})


def _entry(path: str, file: File) -> dict:
    entry = {"type": "file", "path": path, "size": len(file.data), "oid": file.oid}
    return entry | ({"lfs": {"oid": file.sha256, "size": len(file.data), "pointerSize": 130}} if file.sha256 else {})


def tree(call: Call, name: str, revision: str, folder: str = ""):
    prefix = f"{unquote(folder)}/" if folder else ""
    inside = {path: file for path, file in call.state(name, revision)[2].items() if path.startswith(prefix)}
    if prefix and not inside:
        raise error(404, f"{folder} does not exist", "EntryNotFound")
    raise Answer(body=[_entry(path, file) for path, file in inside.items()])


def preupload(call: Call, name: str, revision: str):
    call.repo(name, write=True)
    files = call.state(name, revision)[2]
    answers = []
    for asked in call.json["files"]:
        mode = "lfs" if asked["path"].endswith((".safetensors", ".png")) else "regular"
        there = files.get(asked["path"])
        answer = {"path": asked["path"], "uploadMode": mode, "shouldIgnore": False}
        answers.append(answer | ({"oid": there.sha256 or there.oid} if there else {}))
    raise Answer(body={"files": answers})


def lfs_batch(call: Call, name: str):
    call.repo(name, write=True)
    objects = []
    for asked in call.json["objects"]:
        action = {"href": f"{call.hub.storage}/{asked['oid']}?signature=for-one-hour"}
        verify = {"href": f"{call.hub.url}/{name}.git/info/lfs/verify"}
        missing = asked["oid"] not in call.hub.large
        objects.append(asked | ({"actions": {"upload": action, "verify": verify}} if missing else {}))
    raise Answer(body={"transfer": "basic", "objects": objects})


def lfs_verify(call: Call, name: str):
    call.repo(name, write=True)
    data = call.hub.large.get(call.json["oid"])
    if data is None or len(data) != call.json["size"]:
        raise error(400, "the file in the storage is not the one announced")
    raise Answer(body={})


def commit(call: Call, name: str, revision: str):
    repo = call.repo(name, write=True)
    oid = call.state(name, revision)[1]
    lines = [json.loads(line) for line in call.raw.splitlines()]
    header = lines[0]["value"]
    as_pull_request = call.query.get("create_pr") == ["1"]
    if header.get("parentCommit") not in (None, oid) and not as_pull_request:
        raise error(412, "A commit has happened since. Please refresh and try again.")
    files = dict(repo.commits[header.get("parentCommit", oid) if as_pull_request else oid])
    for line in lines[1:]:
        _apply(call.hub, line["key"], line["value"], files)
    ref = unquote(revision)
    ref = ref if ref.startswith("refs/") else f"refs/heads/{ref}"
    number = 1 + sum(r.startswith("refs/pr/") for r in repo.refs)
    new = repo.commit(f"refs/pr/{number}" if as_pull_request else ref, files, header["summary"], header["description"])
    answer = {"success": True, "commitOid": new, "commitUrl": f"{call.hub.url}/{name}/commit/{new}"}
    pull_request = {"pullRequestUrl": f"{call.hub.url}/{name}/discussions/{number}"} if as_pull_request else {}
    raise Answer(body=answer | pull_request)


def _apply(hub, key: str, value: dict, files: dict[str, File]) -> None:
    if key == "file":
        files[value["path"]] = File(base64.b64decode(value["content"]))
    elif key == "lfsFile":
        if value["oid"] not in hub.large:
            raise error(400, f"{value['path']}: LFS pointer pointed to a file that does not exist")
        files[value["path"]] = File(hub.large[value["oid"]], value["oid"])
    elif value["path"] not in files:
        raise error(404, "A file with this name doesn't exist", "EntryNotFound")
    else:
        del files[value["path"]]


def create_branch(call: Call, name: str, branch: str):
    repo = call.repo(name, write=True)
    if f"refs/heads/{unquote(branch)}" in repo.refs:
        raise error(409, "Reference already exists")
    start = (call.json if call.raw else {}).get("startingPoint", "main")
    repo.refs[f"refs/heads/{unquote(branch)}"] = call.state(name, start)[1]
    raise Answer(body={})


def create_tag(call: Call, name: str, revision: str):
    repo = call.repo(name, write=True)
    ref = f"refs/tags/{call.json['tag']}"
    if ref in repo.refs:
        raise error(409, "Tag reference exists already")
    repo.refs[ref] = call.state(name, revision)[1]
    raise Answer(body={})


def validate_yaml(call: Call):
    """Checks the rules for metadata that a card of MyBERT could break."""
    parts = call.json["content"].split("\n---\n")[0].removeprefix("---\n")
    try:
        data = yaml.safe_load(parts) or {}
    except yaml.YAMLError as problem:
        raise Answer(400, {"errors": [{"message": str(problem)}], "warnings": []}) from problem
    problems = []
    for name in ("license", "library_name", "pipeline_tag"):
        if not isinstance(data.get(name, ""), str):
            problems.append(f'"{name}" must be a string')
    for name in ("datasets", "tags", "metrics"):
        if not all(isinstance(item, str) for item in data.get(name, [])):
            problems.append(f'"{name}" must be a list of strings')
    for model in data.get("model-index", []):
        for result in model["results"]:
            wanted = [("task", "type"), ("dataset", "name"), ("dataset", "type")]
            problems += [f'"model-index" wants {a}.{b}' for a, b in wanted if not isinstance(result[a].get(b), str)]
            problems += ['"model-index" wants metrics'] * (
                not all("value" in m and m["type"] for m in result["metrics"])
            )
    raise Answer(400 if problems else 200, {"errors": [{"message": m} for m in problems], "warnings": []})


def resolve(call: Call, name: str, revision: str, path: str):
    repo, oid, files = call.state(name, revision)
    if repo.readers is not None and call.user() not in repo.readers:
        raise error(403 if call.user() else 401, f"Access to model {name} is restricted", "GatedRepo")
    file = files.get(unquote(path))
    if file is None:
        raise Answer(404, b"Entry not found", X_Error_Code="EntryNotFound", X_Repo_Commit=oid)
    headers = {"X_Repo_Commit": oid, "ETag": f'"{file.sha256 or file.oid}"'}
    if file.sha256:
        linked = {"X_Linked_Etag": f'"{file.sha256}"', "X_Linked_Size": str(len(file.data))}
        raise Answer(302, Location=f"{call.hub.storage}/{file.sha256}?signature=for-one-hour", **headers, **linked)
    raise Answer(200, file.data, **headers)


def _signed(call: Call) -> None:
    if call.headers.get("Authorization"):
        raise error(400, "Only one auth mechanism allowed: the address is signed, and a token came with it")


def store(call: Call, sha256: str):
    _signed(call)
    if hashlib.sha256(call.raw).hexdigest() != sha256:
        raise error(400, "XAmzContentSHA256Mismatch: the file is not the one announced; did it change?")
    call.hub.large[sha256] = call.raw
    raise Answer(ETag=f'"{sha256}"')


def fetch(call: Call, sha256: str):
    _signed(call)
    raise Answer(200, call.hub.large[sha256], ETag=f'"{sha256}"')


_NAME, _REVISION = r"([\w.-]+/[\w.-]+)", r"([^/]+)"
_KIND, _SPACE = "(?:models|spaces)", "(?:spaces/)?"
API = {
    f"{method} {path}": function
    for method, path, function in [
        ("POST", "/api/repos/create", create_repo),
        ("POST", "/api/validate-yaml", validate_yaml),
        ("GET", f"/api/{_KIND}/{_NAME}", model_info),
        ("GET", f"/api/{_KIND}/{_NAME}/revision/{_REVISION}", model_info),
        ("GET", f"/api/{_KIND}/{_NAME}/refs", refs),
        ("GET", f"/api/{_KIND}/{_NAME}/tree/{_REVISION}", tree),
        ("GET", f"/api/{_KIND}/{_NAME}/tree/{_REVISION}/(.+)", tree),
        ("POST", f"/api/{_KIND}/{_NAME}/preupload/{_REVISION}", preupload),
        ("POST", f"/api/{_KIND}/{_NAME}/commit/{_REVISION}", commit),
        ("POST", f"/api/{_KIND}/{_NAME}/branch/{_REVISION}", create_branch),
        ("POST", f"/api/{_KIND}/{_NAME}/tag/{_REVISION}", create_tag),
        ("POST", f"/{_SPACE}{_NAME}.git/info/lfs/objects/batch", lfs_batch),
        ("POST", f"/{_SPACE}{_NAME}.git/info/lfs/verify", lfs_verify),
        ("GET", f"/{_NAME}/resolve/{_REVISION}/(.+)", resolve),
    ]
}
STORAGE = {"PUT /([0-9a-f]{64})": store, "GET /([0-9a-f]{64})": fetch}
