"""`python tests/docs/check_dist.py dist`: install the wheel of a folder in a new environment and run it.

The environment has no copy of this repository on its path. It sees the packages of the environment that runs the
script, so nothing is downloaded.
"""

import os
import site
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

TRY = """
import importlib.metadata, pathlib, sys
import modeling_mybert, mybert, tokenization

folders = [pathlib.Path(package.__file__).parent for package in (modeling_mybert, mybert, tokenization)]
assert all(folder.is_relative_to(sys.prefix) for folder in folders), folders
assert all((folder / "py.typed").is_file() for folder in folders)
assert list(folders[1].rglob("model_card.md")) and (folders[1] / "settings" / "keywords.pyi").is_file()
assert importlib.metadata.version("mybert") == mybert.__version__
"""


def check(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "mybert/cli.py"} <= names
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=False)
        binaries = Path(folder) / ("Scripts" if os.name == "nt" else "bin")
        packages = next(Path(folder).rglob("site-packages"))
        (packages / "parent.pth").write_text("\n".join(site.getsitepackages()))
        python = str(binaries / "python")
        run = {"check": True, "cwd": folder, "env": {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}}
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--ignore-installed", str(wheel)], **run)
        subprocess.run([python, "-c", TRY], **run)
        subprocess.run([str(binaries / "mybert"), "--help"], **run, stdout=subprocess.DEVNULL)
    print(f"{wheel.name} and {sdist.name}: complete; the wheel imports and runs in a new environment")


if __name__ == "__main__":
    check(Path(sys.argv[1]).resolve())
