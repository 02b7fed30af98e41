"""Verification finds a model that others would not get as intended, before and after the upload."""

import json
from pathlib import Path

import pytest
from hub_protocol import MAIN, File
from hub_server import REPO
from transformers import AutoTokenizer

import modeling_mybert
from mybert.common.errors import UserError
from mybert.release.card.model_card import write_card
from mybert.release.hub import push as push_module
from mybert.release.hub.bundle import make_bundle
from mybert.release.hub.publish import check_upload, publish
from mybert.release.hub.verify import Expected, compare, compare_with_bert, verify
from mybert.release.settings import PushSettings

CLASSES = ["AutoModel", "AutoModelForPreTraining"]


@pytest.fixture
def expected(checkpoint) -> Expected:
    return Expected.of(checkpoint)


@pytest.fixture
def pair(checkpoint) -> Path:
    """An encoder-decoder made from the checkpoint."""
    folder, tokenizer = checkpoint.parent / "pair", AutoTokenizer.from_pretrained(checkpoint)
    model = modeling_mybert.MyBertEncoderDecoderModel.from_encoder_decoder_pretrained(checkpoint, checkpoint)
    model.config.decoder_start_token_id, model.config.pad_token_id = tokenizer.cls_token_id, tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "auto, settings",
    [
        ("AutoModelForCausalLM", {"is_decoder": True}),
        ("AutoModelForSequenceClassification", {}),
        ("AutoModelForTokenClassification", {}),
        ("AutoModelForQuestionAnswering", {}),
    ],
)
def test_each_head_is_verified_by_its_own_class_and_pipeline(checkpoint, auto, settings):
    cls = getattr(modeling_mybert, modeling_mybert.AUTO_MAP[auto].split(".")[1])
    cls.from_pretrained(checkpoint, **settings).save_pretrained(checkpoint)
    expected = Expected.of(checkpoint)
    assert (expected.pipeline is None) == (auto == "AutoModelForCausalLM")
    verify(str(checkpoint), expected, [auto])
    assert compare_with_bert(checkpoint) < 1e-5


def test_an_encoder_decoder_is_bundled_and_verified(pair, tmp_path):
    (tmp_path / "bundle").mkdir()
    bundle = make_bundle(PushSettings(str(pair), REPO), tmp_path / "bundle")
    verify(str(bundle.folder), Expected.of(pair), ["AutoModelForSeq2SeqLM"])
    assert compare_with_bert(bundle.folder) is None, "transformers has no such BERT"
    (pair / "decoder_mybert.py").unlink()
    (tmp_path / "again").mkdir()
    with pytest.raises(UserError, match="MyBertEncoderDecoderModel"):
        make_bundle(PushSettings(str(pair), REPO), tmp_path / "again")


def test_code_that_imports_this_project_is_found(checkpoint, expected):
    path = checkpoint / "padding_mybert.py"
    path.write_text(path.read_text() + "\nimport mybert.common.errors\n")
    with pytest.raises(UserError, match=r"process without MyBERT.*mybert"):
        verify(str(checkpoint), expected, ["AutoModelForPreTraining"])


def test_a_tokenizer_that_does_not_truncate_makes_the_pipeline_fail(checkpoint, expected):
    path = checkpoint / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": 10**6}))
    with pytest.raises(UserError, match="process without MyBERT"):
        verify(str(checkpoint), expected, ["AutoModelForPreTraining"])


def test_outputs_labels_and_token_ids_are_compared(expected):
    auto = "AutoModelForPreTraining"
    found = {f"{auto}/{i}/{name}": x for i, o in enumerate(expected.outputs) for name, x in o.items()}
    found |= {f"{auto}/encoder": expected.encoder}
    labels, ids = expected.labels, [expected.ids, expected.ids]
    compare(expected, CLASSES, found, labels, ids)
    with pytest.raises(UserError, match="labels"):
        compare(expected, CLASSES, found, {"0": "no", "1": "yes"}, ids)
    with pytest.raises(UserError, match="token ids by AutoTokenizer"):
        compare(expected, CLASSES, found, labels, [expected.ids, expected.ids[::-1]])
    with pytest.raises(UserError, match="none of AutoModel loads the saved head, MyBertForPreTraining"):
        compare(expected, ["AutoModel"], {}, labels, ids)
    last = f"{auto}/{len(expected.outputs) - 1}/seq_relationship_logits"
    with pytest.raises(UserError, match="seq_relationship_logits by AutoModelForPreTraining differs"):
        compare(expected, CLASSES, {**found, last: found[last] * (1 + 1e-6)}, labels, ids)


def test_plain_bert_has_the_same_outputs(checkpoint):
    assert compare_with_bert(checkpoint) < 1e-5


def test_an_upload_that_changed_on_the_hub_is_found(hub, client, checkpoint, tmp_path):
    settings = PushSettings(str(checkpoint), REPO)
    (tmp_path / "bundle").mkdir()
    bundle = make_bundle(settings, tmp_path / "bundle")
    write_card(bundle, settings, "v1", "Checked.")
    published = publish(bundle, settings, "v1")
    check_upload(bundle, settings, published, tmp_path / "home")
    repo = hub.repos[REPO]
    repo.commits[published.commit] = {**repo.commits[published.commit], "vocab.txt": File(b"other")}
    with pytest.raises(UserError, match=r"vocab\.txt"):
        check_upload(bundle, settings, published, tmp_path / "another-home")
    del repo.commits[published.commit]["vocab.txt"]
    with pytest.raises(UserError, match=r"vocab\.txt"):
        check_upload(bundle, settings, published, tmp_path / "a-third-home")


def test_an_upload_that_fails_verification_gets_no_tag(hub, client, send, monkeypatch):
    def fail(*arguments):
        raise UserError("it differs")

    monkeypatch.setattr(push_module, "verify_bundle", lambda bundle, classes: ("expected", "Checked."))
    monkeypatch.setattr(push_module, "verify_upload", fail)
    with pytest.raises(UserError, match="it differs"):
        send(verify=True)
    assert hub.repos[REPO].refs.keys() == {MAIN}
