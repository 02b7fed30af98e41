"""Targets of `mybert push`: records for the card, folders, responses of the Hub."""

import contextlib
import io
import json
from pathlib import Path
from random import Random
from unittest import mock

import huggingface_hub
from huggingface_hub import HfApi
from mutations import mutated_bytes, mutated_json
from sandbox import Target
from targets_checkpoints import CONFIG, EVIL_CODE, MODEL, TOKENIZER, WEIGHTS, mutated_safetensors

from mybert import cli
from mybert.common.errors import UserError
from mybert.release.card.card_data import CardData
from mybert.release.hub import publish
from mybert.release.hub.bundle import Bundle
from mybert.release.hub.bundle_checks import checkpoint_problems, content_problems
from mybert.release.hub.public_records import manifest_chain
from mybert.release.hub.publish import hub_errors
from mybert.release.hub.push import make_card
from mybert.release.settings import PushSettings

try:
    import httpx2 as httpx  # of huggingface_hub 2
except ImportError:
    import httpx

CORPUS = {
    "stage": "corpus",
    "settings": {"max_length": 128, "deduplicate": False},
    "inputs": {"input-00000": {"path": "books.txt", "sha256": "0" * 64, "bytes": 12}, "tokenizer": {"path": "t"}},
    "counts": {"documents": 3, "sentences": 9, "tokens": 90, "examples_training": 5, "documents_held_out": 1},
    "statistics": {"training": {"tokens": 80}, "unknown_rate": 0.01},
}
MANIFEST = {
    "stage": "pretrain",
    "created": "2026-01-01T00:00:00+00:00",
    "settings": {"size": "tiny"},
    "inputs": {"corpus": {"path": "corpus", "sha256": "0" * 64}, "init_from": {"path": "google-bert/bert-base"}},
    "counts": {"steps": 4},
    "hardware": "CPU",
    "versions": {"python": "3.11", "torch": "2.13"},
}
RESULTS = (
    {
        "metrics": {"mlm_accuracy": 0.5, "perplexity": 9.5, "nsp_accuracy": 0.7},
        "mlm_accuracy_interval_95": [0.4, 0.6],
        "constant_baselines": {"mlm_accuracy": 0.1},
        **{"steps": 4, "epochs": 1.0, "seed": 42, "training_seconds": 3.5, "useful_flops": 1e12},
        "settings": {"mlm_probability": 0.15, "whole_word_masking": True},
        "training_arguments": {"learning_rate": 1e-4, "bf16": True, "optim": "adamw_torch"},
    },
    {
        "task": "text-classification",
        "data": {"train": {"rows": 8, "source": "train.jsonl"}, "test": {"rows": 2, "source": "test.jsonl"}},
        "best": {"steps": 3, "learning_rate": 5e-5, "seconds": 2.0, "flops": 1e9},
        "test": {"metrics": {"accuracy": 0.5}, "intervals_95": {"accuracy": [0.1, 0.9]}, "rows": 2},
        "validation": {"metrics": {"f1": 0.5}, "rows": 2},
    },
)


def record_files(random: Random) -> dict[str, bytes]:
    """The records of a bundle, up to two of them changed."""
    values = {"results.json": random.choice(RESULTS), "manifest.json": MANIFEST, "config.json": CONFIG}
    values["provenance.json"] = {"corpus": CORPUS, "init_from/corpus": CORPUS}
    changed = random.sample(list(values), random.choice((0, 1, 1, 2)))
    return {
        name: mutated_json(random, [value]) if name in changed else json.dumps(value).encode()
        for name, value in values.items()
    }


def read_card(folder: Path) -> None:
    free = folder.parents[3] / "free/bundle"
    free.mkdir(exist_ok=True)
    for path in folder.iterdir():
        (free / path.name).write_bytes(path.read_bytes())
    settings = PushSettings(str(folder), "owner/name", verify=False)
    card = str(make_card(Bundle(folder, free), settings, "tag", "It was checked."))
    front = card.split("---")[1]
    if "\nlibrary_name: transformers\n" not in front or "owner/name" not in card:
        raise AssertionError(f"no card: {card[:300]}")


def read_provenance(folder: Path) -> None:
    manifest_chain(folder)
    CardData.of(folder)


def push_files(random: Random) -> dict[str, bytes]:
    """A checkpoint with one file changed, and sometimes a file with an unusual name."""
    files = {"config.json": MODEL["config.json"], WEIGHTS: MODEL[WEIGHTS], **TOKENIZER}
    files |= {"results.json": json.dumps(RESULTS[1]).encode(), "manifest.json": json.dumps(MANIFEST).encode()}
    name = random.choice(list(files))
    if name == WEIGHTS:
        files[random.choice((WEIGHTS, "other.safetensors"))] = mutated_safetensors(random, files[name])
    elif name.endswith(".json"):
        files[name] = mutated_json(random, [json.loads(files[name])])
    else:
        files[name] = mutated_bytes(random, [files[name]])
    if random.randrange(6) == 0:
        odd = random.choice(("évil\n.txt", "-rf", "a\\..\\b", "x.pkl", "README.md", "a.md", "{{7}}.txt", "\x1b[2J"))
        files[odd] = EVIL_CODE
    return files


def read_push(folder: Path) -> None:
    run_command("push", str(folder), "--repo-id", "owner/name", "--dry-run", "--no-verify")


def read_pushed(folder: Path) -> None:
    list(checkpoint_problems(folder, []))
    list(content_problems(folder, [path.relative_to(folder) for path in folder.iterdir() if path.is_file()]))


def run_command(*words: str) -> None:
    """Runs a command. It must return 0, or 2 with an error message and no stack trace."""
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        status = cli.main(list(words))
    if (
        status not in (0, 2)
        or "Traceback" in errors.getvalue()
        or (status == 2 and "error: " not in errors.getvalue())
    ):
        raise AssertionError(f"exit status {status}: {errors.getvalue()}")
    if status == 2:
        raise UserError(errors.getvalue().strip())


COMMIT = "a" * 40
ANSWERS = {
    "model": {"id": "owner/name", "sha": COMMIT, "private": False, "siblings": [{"rfilename": "config.json"}]},
    "refs": {
        "branches": [{"name": "main", "ref": "refs/heads/main", "targetCommit": COMMIT}],
        "tags": [{"name": "v1", "ref": "refs/tags/v1", "targetCommit": COMMIT}],
        "converts": [],
        "pullRequests": [],
    },
    "tree": [
        {"type": "file", "path": "config.json", "size": 3, "oid": "b" * 40},
        {"type": "file", "path": WEIGHTS, "size": 9, "oid": "c", "lfs": {"oid": "d", "size": 9, "pointerSize": 1}},
        {"type": "directory", "path": "x", "oid": "e" * 40},
    ],
}


def answers(random: Random) -> dict[str, bytes]:
    return {f"{name}.json": mutated_json(random, [value]) for name, value in ANSWERS.items()}


def read_answers(folder: Path) -> None:
    """Reads the state of the repository before an upload."""

    def answer(request: httpx.Request) -> httpx.Response:
        name = next((name for name in ("refs", "tree") if f"/{name}" in request.url.path), "model")
        return httpx.Response(200, content=(folder / f"{name}.json").read_bytes(), request=request)

    huggingface_hub.set_client_factory(lambda: httpx.Client(transport=httpx.MockTransport(answer)))
    settings = PushSettings(str(folder), "owner/name", tag="v2", overwrite=True)
    api = HfApi(endpoint="http://hub.invalid", token="hf_x")
    online = mock.patch.object(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    headers = huggingface_hub.utils._headers  # those of huggingface_hub 2 ask for the agent, which sends a request
    anybody = mock.patch.object(headers, "detect_agent", lambda: None, create=True)
    try:
        with online, anybody, hub_errors("nothing was sent"):
            parent, _ = publish.find_parent(api, Bundle(folder, folder), settings)
            publish.find_stale(api, Bundle(folder, folder), settings, parent)
    finally:
        huggingface_hub.set_client_factory(huggingface_hub.utils._http.default_client_factory)


TARGETS = [
    Target("card of a checkpoint", record_files, read_card, 0.5),
    Target("manifests of inputs", record_files, read_provenance, 15),
    Target("checks before an upload", push_files, read_pushed, 0.6),
    Target("mybert push, dry run", push_files, read_push, 0.15, lines=99),
    Target("answers of the Hub", answers, read_answers, 2, names_place=False),
]
