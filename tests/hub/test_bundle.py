"""What is published: the whole checkpoint, complete; and what is refused, with the reason and the remedy."""

import json
import os
import pickle
import re
import shutil
from pathlib import Path

import pytest
import torch
from hub_server import REPO
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, BertConfig, BertModel

from modeling_mybert import AUTO_MAP, MyBertForMaskedLM
from mybert.common.errors import UserError
from mybert.release.hub.bundle import make_bundle
from mybert.release.hub.bundle_checks import problems_of_content, problems_of_model
from mybert.release.hub.secret_scan import find_paths, find_secrets, without_folders
from mybert.release.settings import PushSettings
from tokenization import MyBertTokenizer


@pytest.fixture
def bundle(checkpoint, tmp_path):
    """Bundles the checkpoint, with other settings if any are given."""

    def call(**settings):
        folder = tmp_path / "bundle"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return make_bundle(PushSettings(str(checkpoint), REPO, **settings), folder)

    return call


def refusal(bundle, **settings) -> str:
    with pytest.raises(UserError) as caught:
        bundle(**settings)
    return str(caught.value)


def test_nothing_in_a_bundle_names_a_folder_of_this_machine(bundle, trained):
    made = bundle()
    assert str(trained.parent) in (trained / "manifest.json").read_text(), "the checkpoint itself does"
    for name, path in made.files().items():
        assert str(trained.parent).encode() not in path.read_bytes(), name
    assert json.loads((made.folder / "manifest.json").read_text())["inputs"]["corpus"]["path"] == "corpus"
    assert any("manifest.json" in note for note in made.notes)


def test_labels_that_look_like_paths_are_labels(bundle, checkpoint):
    path = checkpoint / "config.json"
    names = ("/people/person/place_lived", "/location/location/place_lived")
    labels = {"id2label": {"0": names[0], "1": names[1]}, "label2id": {names[0]: 0, names[1]: 1}}
    config = json.loads(path.read_text()) | labels
    path.write_text(json.dumps(config))
    assert json.loads((bundle().folder / "config.json").read_text()) == config


def test_the_chain_of_manifests_travels(bundle):
    chain = json.loads((bundle().folder / "provenance.json").read_text())
    assert chain["corpus"]["stage"] == "corpus"
    assert chain["corpus"]["inputs"]["input-0"]["path"] == "books.txt"


def test_a_corpus_that_was_rebuilt_since_is_not_taken_for_the_one_of_the_model(checkpoint, bundle, tmp_path):
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    other = Path(shutil.copytree(manifest["inputs"]["corpus"]["path"], tmp_path / "other"))
    (other / "manifest.json").write_text('{"stage": "corpus"}')
    (other / "more").write_text("text")
    manifest["inputs"]["corpus"]["path"] = str(other)
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
    made = bundle()
    assert "provenance.json" not in made.files() and any("training text" in note for note in made.notes)


def test_the_same_checkpoint_gives_the_same_bytes(bundle):
    first = bundle()
    hashes, name = first.hashes(), first.content_name()
    second = bundle()
    assert second.hashes() == hashes and second.content_name() == name


def test_weights_above_the_size_are_cut_into_files_that_load_to_the_same(bundle, checkpoint):
    made = bundle(max_file_size="500KB")
    shards = sorted(made.folder.glob("*.safetensors"))
    assert len(shards) > 2 and "model.safetensors" not in made.files()
    whole = load_file(checkpoint / "model.safetensors")
    found = {name: tensor for shard in shards for name, tensor in load_file(shard).items()}
    assert found.keys() == whole.keys() and all(torch.equal(found[name], whole[name]) for name in whole)
    assert isinstance(MyBertForMaskedLM.from_pretrained(made.folder), MyBertForMaskedLM)


def test_a_file_above_the_size_is_refused_unless_left_out(bundle, checkpoint):
    (checkpoint / "extra.dat").write_bytes(os.urandom(2_500_000))
    assert "extra.dat has 0.00 GB, above --max-file-size" in refusal(bundle, max_file_size="2200KB")
    assert bundle(max_file_size="2200KB", exclude=["*.dat"]).left_out == ["extra.dat"]


def test_code_that_is_missing_or_a_map_that_is_short_is_completed(bundle, checkpoint):
    config = json.loads((checkpoint / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "configuration_mybert.MyBertConfig"}
    (checkpoint / "config.json").write_text(json.dumps(config))
    (checkpoint / "padding_mybert.py").unlink()
    made = bundle()
    assert made.config["auto_map"] == AUTO_MAP and made.config["architectures"] == ["MyBertForPreTraining"]
    assert (made.folder / "padding_mybert.py").is_file() and any("written anew" in note for note in made.notes)


def test_code_of_ones_own_travels_as_it_is_and_is_mentioned(bundle, checkpoint):
    with (checkpoint / "padding_mybert.py").open("a") as file:
        file.write("\n# my own\n")
    made = bundle()
    assert (made.folder / "padding_mybert.py").read_text().endswith("# my own\n")
    assert any("checkpoint's own" in note for note in made.notes)


def test_rows_and_predictions_of_an_evaluation_stay_at_home(bundle, checkpoint):
    for name in (
        "test/predictions.jsonl",
        "test/errors.txt",
        "runs/1/results.json",
        ".git/config",
        "__pycache__/a.pyc",
    ):
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text("somebody's words")
    (checkpoint / "test/results.json").write_text("{}")
    made = bundle()
    assert [name for name in made.files() if "/" in name] == ["test/results.json"]
    assert len(made.left_out) == 5


@pytest.mark.parametrize("name", ["pytorch_model.bin", "sub/old.pt", "tokens.pkl", "vectors.npy"])
def test_a_pickle_is_refused_by_its_name(bundle, checkpoint, name):
    (checkpoint / name).parent.mkdir(exist_ok=True)
    (checkpoint / name).write_bytes(b"anything")
    assert f"{name} is a pickle" in refusal(bundle)
    assert bundle(exclude=[name]).left_out == [name]


@pytest.mark.parametrize("save", [pickle.dump, torch.save])
def test_a_pickle_is_refused_by_what_is_in_it(bundle, checkpoint, save):
    with (checkpoint / "weights.data").open("wb") as file:
        save({"a": 1}, file)
    assert "weights.data is a pickle" in refusal(bundle)


@pytest.mark.parametrize(
    "name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "training_args.bin"]
)
def test_the_state_of_a_run_is_refused(bundle, checkpoint, name):
    (checkpoint / name).write_bytes(b"{}")
    assert f"{name} belongs to a training run" in refusal(bundle)


def test_a_checkpoint_of_the_run_inside_is_refused_in_one_line_and_can_be_left_out(bundle, checkpoint):
    shutil.copytree(checkpoint, checkpoint.parent / "x")
    shutil.move(checkpoint.parent / "x", checkpoint / "checkpoint-500")
    (checkpoint / "checkpoint-500" / "optimizer.pt").write_bytes(b"")
    said = refusal(bundle)
    assert said.count("checkpoint-500") == 1 and "--exclude 'checkpoint-*'" in said
    assert not any("checkpoint-500" in name for name in bundle(exclude=["checkpoint-*"]).files())


def test_a_checkpoint_deeper_inside_is_no_way_around(bundle, checkpoint):
    folder = checkpoint / "old" / "checkpoint-7"
    folder.mkdir(parents=True)
    (folder / "optimizer.pt").write_bytes(b"")
    assert "old/checkpoint-7/ is a checkpoint of the training run" in refusal(bundle)
    assert "old/checkpoint-7/optimizer.pt" in bundle(exclude=["old/checkpoint-7"]).left_out


@pytest.mark.parametrize(
    "make, what",
    [
        (lambda path: path.symlink_to("/etc/hostname"), "a link to a file outside of the folder"),
        (lambda path: path.symlink_to("../../../../../../../../../etc/hostname"), "a link to a file outside"),
        (lambda path: path.symlink_to("/etc"), "a link to no file"),
        (lambda path: path.symlink_to("not-there"), "a link to no file"),
        (lambda path: path.symlink_to("."), "a link to no file"),
        (os.mkfifo, "neither file nor folder"),
    ],
)
def test_what_is_not_a_file_of_the_folder_is_refused_and_not_followed(bundle, checkpoint, make, what):
    make(checkpoint / "extra")
    assert f"extra is {what}" in refusal(bundle)
    assert bundle(exclude=["extra"]).left_out == ["extra"]


def test_a_snapshot_in_the_cache_of_the_hub_is_made_of_links_and_can_be_published(checkpoint, tmp_path):
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "0123", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    shutil.copytree(checkpoint, blobs)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    (tmp_path / "bundle").mkdir()
    made = make_bundle(PushSettings(str(snapshot), REPO), tmp_path / "bundle")
    assert {path.name for path in checkpoint.iterdir()} <= made.files().keys()
    assert not any(path.is_symlink() for path in made.files().values())


@pytest.mark.parametrize("name", [b"line\nbreak.txt", b"back\\slash.txt", b"not-utf-8-\xff.txt", b"esc\x1b[31m.txt"])
def test_a_name_that_not_every_system_can_store_is_refused(bundle, checkpoint, name):
    with open(bytes(checkpoint) + b"/" + name, "w"):
        pass
    said = refusal(bundle)
    assert "not every system can store" in said and said.isprintable() == ("\n" not in said)
    assert said.count("\n") == 1 and said.encode()


def test_names_that_are_only_unusual_travel(bundle, checkpoint):
    (checkpoint / "ñ 数字 #1 50%?.txt").write_text("odd")
    assert "ñ 数字 #1 50%?.txt" in bundle().files()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_what_a_model_needs_cannot_be_left_out(bundle, name):
    assert f"--exclude leaves out {name}" in refusal(bundle, exclude=[name])


def test_weights_of_another_name_can_be_left_out(bundle, checkpoint):
    shutil.copy(checkpoint / "model.safetensors", checkpoint / "model.fp16.safetensors")
    assert "model.fp16.safetensors" not in bundle(exclude=["model.fp16.safetensors"]).files()


@pytest.mark.parametrize("name", ["results.json", "manifest.json", "generation_config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b""])
def test_a_record_that_is_damaged_is_named(bundle, checkpoint, name, content):
    (checkpoint / name).write_bytes(content)
    assert f"{name} is damaged" in refusal(bundle)


def test_a_model_whose_run_is_not_finished_is_refused(bundle, checkpoint):
    path = checkpoint / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"complete": False}))
    for exclude in ([], ["manifest.json"]):
        assert "`mybert pretrain … --resume` goes on with it" in refusal(bundle, exclude=exclude)
    path.write_text(json.dumps(manifest | {"complete": True}))
    bundle()


def test_a_record_that_is_left_out_is_not_told_by_another(bundle):
    assert "provenance.json" not in bundle(exclude=["manifest.json"]).files()


@pytest.mark.parametrize("content", ["{", "{}", '{"weight_map": [1]}', '{"weight_map": {"a": "../x.safetensors"}}'])
def test_an_index_that_lists_no_files_beside_it_is_refused(bundle, checkpoint, content):
    (checkpoint / "model.safetensors.index.json").write_text(content)
    assert "does not list the files beside it" in refusal(bundle)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"architectures": ["Mine"]}, "does not say which head"),
        ({"architectures": "MyBertModel"}, "does not say which head"),
        ({"auto_map": ["x"]}, "auto_map in config.json is not a table"),
        ({"auto_map": {"AutoModel": 3}}, "auto_map in config.json is not a table"),
        ({"vocab_size": "many"}, "config.json cannot be used .*vocab_size"),
        ({"num_hidden_layers": -1}, "config.json cannot be used .*num_hidden_layers"),
    ],
)
def test_a_configuration_that_no_model_has_is_refused(bundle, checkpoint, values, message):
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | values))
    assert re.search(message, refusal(bundle))


def test_all_reasons_are_given_at_once(bundle, checkpoint):
    (checkpoint / "tokenizer.json").unlink()
    (checkpoint / "optimizer.pt").write_bytes(b"")
    said = refusal(bundle)
    assert "tokenizer is missing" in said and "optimizer.pt" in said and said.count("\n  - ") == 2


def test_a_tokenizer_of_another_size_is_refused(bundle, checkpoint, minilm_folder):
    AutoTokenizer.from_pretrained(minilm_folder).save_pretrained(checkpoint)
    assert "the tokenizer has 30,522 tokens, the model 200" in refusal(bundle)


def test_a_vocabulary_file_that_contradicts_the_tokenizer_is_refused(bundle, checkpoint):
    lines = (checkpoint / "vocab.txt").read_text(encoding="utf-8").split("\n")
    (checkpoint / "vocab.txt").write_text("\n".join([*lines[:7], lines[8], lines[7], *lines[9:]]), encoding="utf-8")
    assert "vocab.txt and tokenizer.json differ" in refusal(bundle)


def test_only_line_feeds_end_a_piece_of_the_vocabulary_file(checkpoint):
    pieces = sorted(vocabulary := MyBertTokenizer.from_pretrained(checkpoint).get_vocab(), key=vocabulary.get)
    MyBertTokenizer([*pieces[:-2], "\u2028", "\x85"]).save_pretrained(checkpoint)
    assert not list(problems_of_model(checkpoint))
    (checkpoint / "vocab.txt").write_bytes(b"\xff\n")
    assert "vocab.txt, line 1: not UTF-8" in " ".join(problems_of_model(checkpoint))


def test_weights_that_are_not_of_the_configuration_are_refused(bundle, checkpoint):
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | {"vocab_size": 208}))
    assert "the weights embed 200 tokens, config.json says vocab_size 208" in refusal(bundle)


def test_damaged_and_missing_weights_are_told_apart(bundle, checkpoint):
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    assert "model.safetensors is damaged" in refusal(bundle)
    path.unlink()
    assert "model.safetensors is missing" in refusal(bundle)


def test_a_shard_that_is_missing_is_named(bundle, checkpoint):
    made = bundle(max_file_size="500KB")
    (checkpoint / "model.safetensors").unlink()
    shards = sorted(made.folder.glob("model*"))
    for path in shards[1:]:
        shutil.copy(path, checkpoint)
    assert f"{shards[0].name} is missing" in refusal(bundle)


@pytest.mark.parametrize("content, message", [("{", "is not JSON"), ("[]", "is not JSON"), ("{}", "without a type")])
def test_a_configuration_that_cannot_be_read_is_named(bundle, checkpoint, content, message):
    (checkpoint / "config.json").write_text(content)
    assert message in refusal(bundle)


def test_a_bert_is_sent_to_import(tmp_path):
    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 8,
        "vocab_size": 9,
    }
    BertModel(BertConfig(**sizes)).save_pretrained(tmp_path / "bert")
    with pytest.raises(UserError, match="mybert import"):
        make_bundle(PushSettings(str(tmp_path / "bert"), REPO), tmp_path)


# Texts of pieces that paths are made of, and any others.
TEXTS = st.text() | st.lists(st.sampled_from(["/", "home", "data", "x", " ", "C:", "\\", ".", ":", "file://"])).map(
    "".join
)
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
def test_a_key_is_known_in_any_file_and_never_repeated(tmp_path, secret):
    contents = {
        "notes.txt": b"first line\n see " + secret + b"\n",
        "own_mybert.py": b"first line\nx = 'see " + secret + b"'\n",
        "picture.dat": b"\0\xff\n see " + secret + b"\n",
        "windows.txt": f"first line\nsee {secret.decode()}\n".encode("utf-16"),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    said = list(problems_of_content(tmp_path, [Path(name) for name in contents]))
    assert [line.split(" holds a")[0] for line in said] == [f"{name}:2" for name in contents]
    assert secret.decode() not in str(said)


def test_a_key_is_refused(bundle, checkpoint):
    (checkpoint / "notes.txt").write_bytes(SECRETS[0])
    assert "notes.txt:1 holds a Hugging Face token" in refusal(bundle)


@pytest.mark.parametrize(
    "text",
    [
        "/home/ann/corpora/private.txt",
        "open('/data/run-7/x.txt')",
        "C:\\Users\\Ann\\text",
        r"\\server\share\text",
        "file:///mnt/x/y",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
def test_a_path_of_this_machine_in_a_text_of_ones_own_is_refused(bundle, checkpoint, text, encoding):
    (checkpoint / "notes.md").write_bytes(f"héllo\n\ntrained on {text}\n".encode(encoding))
    assert "notes.md:3 names a path of this machine" in refusal(bundle)


@pytest.mark.parametrize(
    "text",
    [
        "#!/usr/bin/env python",
        "https://example.org/home/x/y",
        "and/or",
        "1/2/2024",
        "a/b/c.txt",
        "</div>",
        "/",
        "w/o",
        "~/x/y",
        "s3://data/x/y",
    ],
)
def test_what_only_looks_like_a_path_is_not(text):
    assert not list(find_paths(text))


def test_a_path_that_is_on_this_disk_is_one_wherever_it_is(tmp_path):
    (tmp_path / "here").mkdir()
    assert list(find_paths(f"see {tmp_path / 'here'}."))


@example("A:/A:/0")
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | TEXTS,
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_shortening_paths_leaves_no_path_and_is_done_once(value):
    once = without_folders(value)
    assert without_folders(once) == once
    assert not [text for text in strings(once) if list(find_paths(text))]


def strings(value) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.items() for part in item for text in strings(part)]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


def test_what_is_no_path_in_a_record_stays_as_it_is():
    record = {
        "a": [1, 2.5, None, True],
        "b": "linear",
        "c": "a/b",
        "d": "/home/x/corpus",
        "e": "from /home/x/y.txt on",
    }
    assert without_folders(record) == {**record, "d": "corpus", "e": "from y.txt on"}


def test_ordinary_vocabularies_and_code_hold_no_secrets(minilm_folder, checkpoint):
    for path in (*minilm_folder.glob("*.txt"), *checkpoint.glob("*.py"), *checkpoint.glob("*.json")):
        assert not list(find_secrets(path.read_bytes()))


def test_a_vocabulary_filled_up_for_the_hardware_is_accepted(bundle, checkpoint):
    model = MyBertForMaskedLM.from_pretrained(checkpoint)
    model.resize_token_embeddings(256)
    model.save_pretrained(checkpoint)
    assert bundle().config["vocab_size"] == 256


def test_a_hidden_key_in_the_metadata_of_weights_is_found(bundle, checkpoint):
    path = checkpoint / "model.safetensors"
    save_file(load_file(path), path, metadata={"format": "pt", "note": SECRETS[0].decode()})
    assert "model.safetensors:1 holds a Hugging Face token" in refusal(bundle)
