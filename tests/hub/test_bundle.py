"""The bundle: which files are published, which are left out, and which are refused with a remedy."""

import json
import os
import pickle
import random
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from hub_server import REPO
from hypothesis import example, given
from hypothesis import strategies as st
from json_files import change_json
from safetensors.torch import save_file
from transformers import BertForPreTraining

from modeling_mybert import AUTO_MAP, MyBertForMaskedLM, MyBertForPreTraining
from mybert.artifacts.manifest import fingerprint
from mybert.common.errors import UserError
from mybert.release.hub import public_records
from mybert.release.hub.bundle import make_bundle
from mybert.release.hub.bundle_checks import content_problems, file_problems, loading_problems
from mybert.release.hub.secret_scan import find_paths, find_secrets, without_folders
from mybert.release.settings import PushSettings
from mybert.tasks.settings import LABELLING_FORMS
from tokenization import MyBertTokenizer


@pytest.fixture
def bundle(checkpoint, tmp_path):
    """Bundles the checkpoint with the given settings."""

    def call(**settings):
        folder = tmp_path / "bundle"
        shutil.rmtree(folder, ignore_errors=True)
        return make_bundle(PushSettings(**{"model": str(checkpoint), "repo_id": REPO, **settings}), folder)

    return call


def deep_objects(*depths: int) -> list[bytes]:
    return [b'{"a": ' * depth + b"1" + b"}" * depth for depth in depths]


def refusal(bundle, **settings) -> str:
    with pytest.raises(UserError) as caught:
        bundle(**settings)
    return str(caught.value)


def test_no_file_of_a_bundle_contains_a_local_path(bundle, trained):
    made = bundle()
    assert str(trained.parent) in (trained / "manifest.json").read_text(), "the checkpoint contains it"
    for name, path in made.files().items():
        assert str(trained.parent).encode() not in path.read_bytes(), name
    assert "path" not in json.loads((made.folder / "manifest.json").read_text())["inputs"]["corpus"]
    named = json.loads((bundle(name_sources=True).folder / "manifest.json").read_text())
    assert named["inputs"]["corpus"]["path"] == "corpus"
    assert any("manifest.json" in note for note in made.notes)


def test_labels_that_look_like_paths_are_kept(bundle, checkpoint):
    names = ("/people/person/place_lived", "/location/location/place_lived")
    labels = {"id2label": {"0": names[0], "1": names[1]}, "label2id": {names[0]: 0, names[1]: 1}}
    change_json(checkpoint / "config.json", **labels)
    results = {"test": {"labels": {name: {"f1": 0.5} for name in names}}}
    (checkpoint / "results.json").write_text(json.dumps(results))
    made = bundle().folder
    assert labels.items() <= json.loads((made / "config.json").read_text()).items()
    assert json.loads((made / "results.json").read_text()) == results


def test_the_manifests_of_corpus_and_tokenizer_are_published(bundle):
    chain = json.loads((bundle().folder / "provenance.json").read_text())
    assert chain["corpus"]["stage"] == "corpus" and chain["corpus/tokenizer"]["stage"] == "tokenizer"
    named = json.loads((bundle(name_sources=True).folder / "provenance.json").read_text())
    source = named["corpus"]["inputs"]["input-0"]
    assert source["path"] == "books.txt"
    together = {"sources": 1, "bytes": source["bytes"], "sha256": sha256(f"{source['sha256']}\n".encode()).hexdigest()}
    assert chain["corpus"]["inputs"]["input-sources"] == together


def test_a_corpus_is_not_read_if_its_manifest_is_the_recorded_one(trained, monkeypatch):
    read = []
    monkeypatch.setattr(public_records, "fingerprint", lambda path: read.append(path) or fingerprint(path))
    chain, gaps = public_records.manifest_chain(trained)
    assert chain["corpus"]["stage"] == "corpus" and not gaps
    assert trained.parent / "corpus" not in read


@pytest.mark.parametrize("state", ["changed", "not found", "no manifest"])
def test_an_input_without_its_manifest_is_named_with_the_reason(checkpoint, bundle, tmp_path, state):
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    other = Path(shutil.copytree(manifest["inputs"]["corpus"]["path"], tmp_path / "other"))
    if state == "changed":
        (other / "manifest.json").write_text('{"stage": "corpus"}')
        (other / "more").write_text("text")
    elif state == "not found":
        shutil.rmtree(other)
    else:
        (other / "manifest.json").unlink()
    change_json(checkpoint / "manifest.json", inputs={"corpus": {**manifest["inputs"]["corpus"], "path": str(other)}})
    made = bundle()
    assert "provenance.json" not in made.files()
    (note,) = [note for note in made.notes if "training data" in note]
    assert "corpus" in note and {"not found": "was not found", "changed": "has changed"}.get(state, "has no") in note


def test_weights_in_several_files_are_published_and_a_missing_file_is_named(bundle, checkpoint):
    model = MyBertForPreTraining.from_pretrained(checkpoint)
    (checkpoint / "model.safetensors").unlink()
    model.save_pretrained(checkpoint, max_shard_size="500KB")
    shards = sorted(path.name for path in checkpoint.glob("model-*.safetensors"))
    assert len(shards) > 2 and {*shards, "model.safetensors.index.json"} <= bundle().files().keys()
    (checkpoint / shards[1]).unlink()
    assert shards[1] in refusal(bundle)


@pytest.mark.parametrize("auto_map", [{"AutoConfig": "configuration_mybert.MyBertConfig"}, {"AutoModel": 3}, ["x"]])
def test_missing_code_and_an_incomplete_auto_map_are_completed(bundle, checkpoint, auto_map):
    change_json(checkpoint / "config.json", auto_map=auto_map)
    (checkpoint / "padding_mybert.py").unlink()
    made = bundle()
    assert made.config["auto_map"] == AUTO_MAP and made.config["architectures"] == ["BertForPreTraining"]
    assert (made.folder / "padding_mybert.py").is_file() and any("auto_map" in note for note in made.notes)


def test_a_tokenizer_without_a_maximum_length_gets_the_positions_of_the_model(bundle, checkpoint):
    path = checkpoint / "tokenizer_config.json"
    assert json.loads(path.read_text())["model_max_length"] == 32, "the max_length of the corpus"
    assert json.loads((bundle().folder / path.name).read_text())["model_max_length"] == 32
    change_json(path, model_max_length=int(1e30))
    made = bundle()
    assert json.loads((made.folder / path.name).read_text())["model_max_length"] == 512
    assert any("model_max_length" in note for note in made.notes)


def test_own_handlers_and_other_code_are_published_unchanged_with_a_note(bundle, checkpoint):
    made = bundle()
    for name in ("handler.py", "requirements.txt"):  # those of MyBERT, published and downloaded again
        shutil.copy(made.files()[name], checkpoint)
    assert not [note for note in [*made.notes, *bundle().notes] if "checkpoint's own" in note]
    (checkpoint / "tools").mkdir()
    names = ("handler.py", "requirements.txt", "tools/own.py", "padding_mybert.py")
    for name in names:
        with (checkpoint / name).open("a") as file:
            file.write("\n# mine\n")
    made = bundle()
    notes = " ".join(note for note in made.notes if "checkpoint's own" in note)
    assert all(made.files()[name].read_text().endswith("\n# mine\n") for name in names)
    assert all(name in notes for name in names[:3]) and "code" in notes


def test_training_state_other_runs_and_rows_of_the_data_are_left_out(bundle, checkpoint):
    names = [
        *("test/predictions.jsonl", "test/errors.txt", "runs/1/results.json", ".git/config", "__pycache__/a.pyc"),
        *("checkpoint-500/optimizer.pt", "checkpoint-500/model.safetensors", "old/checkpoint-7/optimizer.pt"),
        *("damaged-checkpoint-4/model.safetensors", "predictions.jsonl", "errors.txt"),
        *(f"validation/suspects{suffix}" for suffix in LABELLING_FORMS.values()),
        *("optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "training_args.bin"),
        *("scores/report.html", "scores/samples.jsonl"),
    ]
    for name in (*names, "test/results.json"):
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text("{}")
    made = bundle()
    assert [name for name in made.files() if "/" in name] == ["test/results.json"]
    of_the_run = [name for name in ("report.html", "samples.jsonl") if (checkpoint / name).is_file()]
    assert set(made.left_out) == {*names, *of_the_run} and of_the_run
    assert {made.left_out[name] for name in names} == {2}


def test_pickles_and_links_are_refused_unless_they_are_excluded(bundle, checkpoint):
    names = ["pytorch_model.bin", "sub/old.pt", "absolute", "folder", "pipe"]
    (checkpoint / "sub").mkdir()
    for name in names[:2]:
        (checkpoint / name).write_bytes(b"anything")
    (checkpoint / "absolute").symlink_to("/etc/hostname")
    (checkpoint / "folder").symlink_to("/etc")
    os.mkfifo(checkpoint / "pipe")
    message = refusal(bundle)
    assert all(f"{name} is a" in message for name in names)
    assert not {*names} & bundle(exclude=names).files().keys()


def test_safetensors_with_a_header_of_any_length_are_no_pickle(tmp_path):
    path, starts = tmp_path / "model.safetensors", set()
    for length in range(0, 1500, 8):  # headers are padded to multiples of 8 bytes
        save_file({"weight": torch.zeros(1)}, path, metadata={"a": "x" * length})
        starts.add(path.read_bytes()[:2])
        assert not [*file_problems(tmp_path, [Path(path.name)])]
    assert b"\x80\x02" in starts, "as a pickle starts"
    path.write_bytes(pickle.dumps({"a": 1}))
    assert "is a pickle" in next(file_problems(tmp_path, [Path(path.name)]))


def test_a_snapshot_in_the_hub_cache_consists_of_links_and_can_be_published(checkpoint, tmp_path):
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "0123", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    shutil.copytree(checkpoint, blobs)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    made = make_bundle(PushSettings(str(snapshot), REPO), tmp_path / "bundle")
    private = {"report.html", "samples.jsonl"}  # may quote the user's text
    assert {path.name for path in checkpoint.iterdir()} - private <= made.files().keys()
    assert not any(path.is_symlink() for path in made.files().values())


def test_an_invalid_file_name_is_refused_and_an_unusual_one_is_not(bundle, checkpoint):
    (checkpoint / "ñ 数字 #1 50%.txt").write_text("odd")
    assert "ñ 数字 #1 50%.txt" in bundle().files()
    names = (
        b"line\nbreak.txt",
        b"back\\slash.txt",
        b"not-utf-8-\xff.txt",
        b"esc\x1b[31m.txt",
        b"a:b.txt",
        b"who?",
        b"end.",
    )
    for name in names:
        with open(bytes(checkpoint) + b"/" + name, "w", encoding="utf-8"):
            pass
    message = refusal(bundle)
    assert message.count("not a valid file name") == message.count("\n") == len(names)
    assert message.replace("\n", "").isprintable()


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b"", *deep_objects(101, 970, 100_000)])
def test_a_damaged_record_is_named(bundle, checkpoint, content):
    names = ["results.json", "manifest.json", "generation_config.json", "tokenizer_config.json", "config.json"]
    for name in names:
        (checkpoint / name).write_bytes(content)
    message = refusal(bundle)
    assert all(message.count(f"\n  - {name} is damaged: ") == 1 for name in names)
    assert ("nested too deeply" in message) == content.startswith(b'{"a"')


def test_the_model_of_an_unfinished_run_is_refused(bundle, checkpoint):
    change_json(checkpoint / "manifest.json", complete=False)
    for exclude in ([], ["manifest.json"]):
        assert "`mybert pretrain … --resume`" in refusal(bundle, exclude=exclude)
    change_json(checkpoint / "manifest.json", complete=True)
    shutil.copy(checkpoint / "model.safetensors", checkpoint / "model.fp16.safetensors")
    files = bundle(exclude=["manifest.json", "model.fp16.safetensors"]).files()
    assert not {"provenance.json", "model.fp16.safetensors"} & files.keys(), "not published in another file either"


def test_only_line_feeds_end_a_token_of_the_vocabulary_file(checkpoint):
    pieces = sorted(vocabulary := MyBertTokenizer.from_pretrained(checkpoint).get_vocab(), key=vocabulary.get)
    MyBertTokenizer([*pieces[:-2], "\u2028", "\x85"]).save_pretrained(checkpoint)
    assert not list(loading_problems(checkpoint, checkpoint))
    (checkpoint / "vocab.txt").write_bytes(b"\xff\n")
    assert "vocab.txt, line 1: not UTF-8" in " ".join(loading_problems(checkpoint, checkpoint))


def test_a_bert_of_transformers_is_published_with_the_code_added(bundle, checkpoint):
    plain = BertForPreTraining.from_pretrained(checkpoint)
    for path in [*checkpoint.glob("*_mybert.py"), checkpoint / "config.json"]:
        path.unlink()
    del plain.config.auto_map
    plain.save_pretrained(checkpoint)
    made = bundle()
    assert made.config["auto_map"] == AUTO_MAP and made.config["architectures"] == ["BertForPreTraining"]
    assert any("model code were missing" in note for note in made.notes)


def test_a_vocabulary_padded_for_the_hardware_is_accepted(bundle, checkpoint):
    model = MyBertForMaskedLM.from_pretrained(checkpoint)
    model.resize_token_embeddings(256)
    model.save_pretrained(checkpoint)
    assert bundle().config["vocab_size"] == 256


SECRETS = [
    b"hf_" + b"a1B2" * 9,
    b"-----BEGIN RSA PRIVATE KEY-----",
    b"-----BEGIN PRIVATE KEY-----",
    b"AKIAIOSFODNN7EXAMPLE",
    b"aws_secret_access_key = " + b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    b"ghp_" + b"x9" * 18,
    b"hf_oauth_" + b"a1B2" * 9,
    b"sk-" + b"proj-" + b"a1B2" * 12,
    b"AIza" + b"a1B2c" * 7,
    b"xoxb-" + b"12345-" * 5,
    b"glpat-" + b"a1B2" * 5,
    b"npm_" + b"a1B2" * 9,
    b"eyJ" + b"a1B2" * 5 + b".eyJ" + b"a1B2" * 5 + b"." + b"a1B2" * 8,
    b"https://ann:pass" + b"word1@host.example/x",
    b'"api_' + b'key": "' + b"0a1b" * 8 + b'"',
    b"-----BEGIN PGP PRIVATE " + b"KEY BLOCK-----",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_credential_is_found_in_any_file_and_never_repeated(tmp_path, secret):
    contents = {
        "notes.txt": b"first line\n see " + secret + b"\n",
        "own_mybert.py": b"first line\nx = 'see " + secret + b"'\n",
        "picture.dat": b"\0\xff\n see " + secret + b"\n",
        "windows.txt": f"first line\nsee {secret.decode()}\n".encode("utf-16"),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    found = list(content_problems(tmp_path, [Path(name) for name in contents]))
    assert [line.split(" holds a")[0] for line in found] == [f"{name}:2" for name in contents]
    assert secret.decode() not in str(found)


def test_numbers_hold_no_path_by_chance_but_a_path_among_them_is_found(tmp_path):
    numbers = random.Random(0).randbytes(3_000_000)
    (tmp_path / "model.onnx").write_bytes(b"\0" + numbers)
    assert not [*content_problems(tmp_path, [Path("model.onnx")])]
    for path in (r"C:\Users\me", "/home/me/a.txt", r"\\server\share\a"):
        (tmp_path / "model.onnx").write_bytes(b"\0" + numbers[:1000] + b"\0" + path.encode() + b"\0")
        assert len([*content_problems(tmp_path, [Path("model.onnx")])]) == 1, path


def test_vocabularies_and_code_hold_no_credentials(minilm_folder, checkpoint):
    for path in (*minilm_folder.glob("*.txt"), *checkpoint.glob("*.py"), *checkpoint.glob("*.json")):
        assert not list(find_secrets(path.read_bytes()))


@pytest.mark.parametrize(
    "text",
    [
        *("/home/ann/corpora/private.txt", "open('/data/run-7/x.txt')", "C:\\Users\\Ann\\text"),
        *(r"\\server\share\text", "file:///mnt/x/y"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
def test_a_local_path_in_a_text_is_found(tmp_path, text, encoding):
    (tmp_path / "notes.md").write_bytes(f"héllo\n\ntrained on {text}\n".encode(encoding))
    (problem,) = content_problems(tmp_path, [Path("notes.md")])
    assert problem.startswith("notes.md:3 ")


@pytest.mark.parametrize(
    "text",
    [
        *("#!/usr/bin/env python", "https://example.org/home/x/y", "and/or", "1/2/2024", "a/b/c.txt"),
        *("</div>", "/", "w/o", "~/x/y", "s3://data/x/y"),
    ],
)
def test_text_that_resembles_a_path_is_accepted(text):
    assert not list(find_paths(text))


# Texts made of parts of paths, and any others.
TEXTS = st.text() | st.lists(st.sampled_from(["/", "home", "data", "x", " ", "C:", "\\", ".", ":", "file://"])).map(
    "".join
)


@example("A:/A:/0")
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | TEXTS,
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_shortening_leaves_no_path_and_is_idempotent(value):
    once = without_folders(value)
    assert without_folders(once) == once
    assert not [text for text in strings(once) if list(find_paths(text))]


def strings(value) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.items() for part in item for text in strings(part)]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


def test_values_that_are_paths_are_shortened_and_shares_are_found_in_json_too():
    paths = ["~/me/x", "~me/x", "./me/x", "../me/x", "..\\me\\x", "/me/x", "\\\\host\\me\\x"]
    assert without_folders(paths) == ["x"] * len(paths)
    others = [1, 2.5, None, True, "linear", "a/b", ".5", "~", "..", "...", "1./2"]
    assert without_folders({"a": others, "b": "from /home/x/y.txt on"}) == {"a": others, "b": "from y.txt on"}
    assert [match[0] for match in find_paths(json.dumps(paths))] == ["\\\\\\\\host\\\\me\\\\x"]
