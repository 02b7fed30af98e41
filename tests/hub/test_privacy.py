"""What an upload tells about the user: nothing that was not asked for, in any byte."""

import json
import platform
import re
import socket
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from conftest import train_chain
from hub_server import REPO
from json_files import change_json, write_lines

from mybert import finetune
from mybert.release.convert.export import export
from mybert.release.settings import ExportSettings

MARK = "Zyxwv"  # in the names of all folders and files, of the user and of the computer
ROWS = [{"text": f"the cat sat {i}", "label": "ab"[i % 2]} for i in range(20)]


def uploaded(hub) -> dict[str, bytes]:
    """Every byte that the Hub received, with the parts of archives."""
    found = {f"{name}/{path}": data for name, repo in hub.repos.items() for path, data in repo.files().items()}
    found |= {f"large {sha256}": data for sha256, data in hub.large.items()}
    found["messages"] = json.dumps([repo.messages for repo in hub.repos.values()]).encode()
    for name, data in list(found.items()):
        if zipfile.is_zipfile(BytesIO(data)):
            with zipfile.ZipFile(BytesIO(data)) as archive:
                found |= {f"{name}/{part}": archive.read(part) for part in archive.namelist()}
    return found


def named_in(files: dict[str, bytes]) -> list[str]:
    return [name for name, data in files.items() if MARK.encode() in data or MARK in name]


@pytest.fixture
def private_folder(tmp_path, monkeypatch) -> Path:
    """A folder, a user and a computer whose names are marked; the current folder is the folder."""
    home = tmp_path / f"home-{MARK}" / f"user-{MARK}"
    (work := home / f"project {MARK}").mkdir(parents=True)
    for name in ("USER", "LOGNAME", "USERNAME", "HOSTNAME"):
        monkeypatch.setenv(name, f"name-{MARK}")
    monkeypatch.setenv("HOME", str(home))
    for module, name in ((socket, "gethostname"), (platform, "node")):
        monkeypatch.setattr(module, name, lambda: f"host-{MARK}")
    monkeypatch.chdir(work)
    return work


def fine_tuned(encoder: Path) -> Path:
    rows, output = write_lines(Path(f"{MARK}.jsonl"), ROWS), Path(f"classifier-{MARK}")
    words = {"num_train_epochs": 1, "use_cpu": True, "disable_tqdm": True, "train": str(rows)}
    task = {"task": "text-classification", "model": str(encoder), "output": str(output)}
    finetune(**task, **words, test=str(rows.resolve()))
    return output


@pytest.mark.slow
def test_no_byte_of_an_upload_names_a_folder_a_file_the_user_or_the_computer(hub, client, send, private_folder):
    (root := private_folder / f"texts-{MARK}").mkdir()
    encoder = train_chain(Path(root.name), f"{MARK}.txt")  # by relative paths; it is fine-tuned by its absolute one
    checkpoint = fine_tuned(encoder.resolve())
    change_json(checkpoint / "config.json", _name_or_path=str(encoder))
    change_json(checkpoint / "tokenizer_config.json", name_or_path=f"../{MARK}")
    for name in ("settings.yaml", "train.log", "slurm-1.out", "wandb/run.json", "more/events.out.tfevents.1.host"):
        (checkpoint / name).parent.mkdir(exist_ok=True)
        (checkpoint / name).write_text(f"model: {encoder} by {MARK}", encoding="utf-8")
    export(ExportSettings(model=str(checkpoint), output=str(onnx := private_folder / f"onnx-{MARK}")))
    (onnx / "onnx").rename(checkpoint / "onnx")
    assert len(named_in({path.name: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()})) > 8

    send(checkpoint, repo_id="alice/classifier")
    send(encoder)
    files = uploaded(hub)
    names = {"provenance.json", "onnx/model.onnx", "test/results.json", "log.jsonl", "training_curves.png"}
    assert {f"alice/classifier/{name}" for name in names} <= files.keys()
    assert not named_in(files)
    for name, data in files.items():
        paths = re.findall(rb"/(?:home|tmp|root|work)/[\w./-]*|[\w./-]*site-packages[\w./-]*", data)
        assert not paths, name
    card = files["alice/classifier/README.md"].decode()
    assert "initial weights | a local checkpoint" in card and "test: 20 rows of a local source" in card


@pytest.mark.parametrize("named", [False, True])
def test_a_text_in_an_unknown_field_of_a_record_is_not_published(hub, client, send, checkpoint, named):
    secret = {"unknown": f"{MARK} 1", "many": [f"{MARK} 2", 1], "deep": {"a": [{"b": f"{MARK} 3"}]}}
    for name in ("manifest.json", "results.json"):
        change_json(checkpoint / name, **secret, examples=[{"a": MARK}], neighbours={MARK: [MARK]})
    send(checkpoint, name_sources=named)
    assert not named_in(uploaded(hub))
    published = json.loads(hub.repos[REPO].files()["manifest.json"])
    assert published["stage"] == "pretrain" and published["versions"] and published["many"] == [1]
