"""A Space of the Hub with the demo of a model: written, run in a clean process, and published."""

import contextlib
import importlib.metadata
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import yaml
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from packaging.requirements import Requirement

import modeling_mybert
import tokenization
from mybert.common.errors import UserError
from mybert.release.card.markdown_escaping import in_metadata
from mybert.release.hub.bundle import CARD, Bundle
from mybert.release.hub.publish import hub_errors
from mybert.release.hub.verify import clean_environment
from mybert.release.settings import PushSettings

_APP = '''"""The demo of a MyBERT model."""

import os
from pathlib import Path

from mybert.demo.run import serve
from mybert.demo.settings import DemoSettings

host = "0.0.0.0" if "SPACE_ID" in os.environ else "127.0.0.1"
port = int(os.environ.get("GRADIO_SERVER_PORT", "7860"))
serve(DemoSettings([str(Path(__file__).parent / "models" / {model!r})], port=port, host=host))
'''
_DEMO = ("captum", "gradio")  # of the extra `demo`
_NEW_SPACE = (".gitattributes", CARD)
_SECONDS = 300  # to load the model
_TEXT = "[MASK] a text.\nAnother text."  # an input of every head


def write_space(bundle: Bundle, settings: PushSettings, folder: Path) -> None:
    """Writes the Space into the new `folder`: app.py, requirements.txt, README.md, the model, and this package.

    The model is a copy of the bundle, so that the Space also works for a private model. It holds no rows of the user.
    """
    folder.mkdir()
    model = settings.repo_id.rpartition("/")[2]
    needed = "".join(f"{line}\n" for line in requirements())
    header = {
        "title": in_metadata(model),
        "sdk": "gradio",
        "sdk_version": importlib.metadata.version("gradio"),
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "app_file": "app.py",
        "models": [settings.repo_id],
        **({"license": settings.license} if settings.license else {}),
    }
    about = f"\nThe demo of {settings.repo_id}, made by `mybert push --space`.\n"
    card = f"---\n{yaml.safe_dump(header, sort_keys=False)}---\n{about}"
    for name, text in (("app.py", _APP.format(model=model)), ("requirements.txt", needed), (CARD, card)):
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    shutil.copytree(bundle.folder, folder / "models" / model, ignore=shutil.ignore_patterns(CARD))
    others = (Path(file).parent for file in (modeling_mybert.__file__, tokenization.__file__))
    for source in (Path(__file__).parents[2], *others):
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__", ".*"))


def requirements() -> list[str]:
    """The packages that the demo needs, with the installed versions. The Space runs the same version of Python."""
    needed = [Requirement(line) for line in importlib.metadata.requires("mybert") or ()]
    names = [*(one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})), *_DEMO]
    try:
        return [f"{name}=={importlib.metadata.version(name).partition('+')[0]}" for name in names]
    except importlib.metadata.PackageNotFoundError as error:
        raise UserError("--space needs the demo: pip install 'mybert[demo]'") from error


def check_space(folder: Path) -> None:
    """Runs app.py as a Space does, in a clean process from its own folder, and makes a prediction on its page."""
    from gradio_client import Client  # a part of gradio

    with running(folder) as address:
        try:
            client = Client(address, verbose=False, download_files=False)
            endpoints = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
            fields = endpoints["/predict"]["parameters"]
            client.predict(*[_TEXT] * len(fields), api_name="/predict")
        except Exception as error:  # of httpx and gradio_client
            raise UserError(f"the Space does not predict: {str(error).splitlines()[0]}") from error


@contextlib.contextmanager
def running(folder: Path) -> Iterator[str]:
    """Runs app.py; the address of its page."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (
        tempfile.TemporaryDirectory() as scratch,
        (Path(scratch) / "log").open("w+", encoding="utf-8", newline="\n") as log,
    ):
        environment = clean_environment() | {"HF_HOME": scratch, "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"GRADIO_SERVER_PORT": str(port), "GRADIO_TEMP_DIR": scratch}
        command = [sys.executable, "-u", "app.py"]
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            end = time.monotonic() + _SECONDS
            while f":{port}/" not in (printed := Path(log.name).read_text(encoding="utf-8", errors="replace")):
                if process.poll() is not None or time.monotonic() > end:
                    reason = (printed.strip().splitlines() or ["no output"])[-1]
                    raise UserError(f"the Space does not start: {reason}")
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}/"
        finally:
            process.terminate()
            process.wait()


def publish_space(folder: Path, settings: PushSettings) -> str:
    """Sends the Space as one commit; its address."""
    api, name = HfApi(library_name="mybert"), settings.space
    assert name is not None  # otherwise `push` does not call this
    with hub_errors("the model is published, its Space is not"):
        url = api.create_repo(name, repo_type="space", space_sdk="gradio", private=not settings.public, exist_ok=True)
        old = set(api.list_repo_files(name, repo_type="space")) - set(_NEW_SPACE)
        if old and "mybert/demo/run.py" not in old and not settings.overwrite:
            raise UserError(f"--space {name} holds something else; choose another name, or add --overwrite")
        new = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
        added = [CommitOperationAdd(path, str(file)) for path, file in new.items()]
        removed = [CommitOperationDelete(path) for path in sorted(old - new.keys())]
        message = f"The demo of {settings.repo_id}"
        api.create_commit(name, [*added, *removed], commit_message=message, repo_type="space")
    return str(url)
