"""A model that a stranger would not get as it was meant is found out, before the upload and after it."""

from pathlib import Path

import pytest
from hub_protocol import MAIN, File
from hub_server import REPO
from transformers import AutoTokenizer

from modeling_mybert import MyBertEncoderDecoderModel, MyBertLMHeadModel
from mybert.common.errors import UserError
from mybert.release.card.model_card import write_card
from mybert.release.hub.bundle import make_bundle
from mybert.release.hub.publish import check_upload, publish
from mybert.release.hub.verify import Expected, _compare, verify, verify_plain_bert
from mybert.release.settings import PushSettings

CLASSES = ["AutoModel", "AutoModelForPreTraining"]


@pytest.fixture
def expected(checkpoint) -> Expected:
    return Expected.of(checkpoint)


@pytest.fixture
def causal(checkpoint) -> Path:
    model = MyBertLMHeadModel.from_pretrained(checkpoint, is_decoder=True)
    model.save_pretrained(checkpoint)
    return checkpoint


@pytest.fixture
def pair(checkpoint) -> Path:
    """An encoder and a decoder of which nothing but the encoder is trained."""
    folder, tokenizer = checkpoint.parent / "pair", AutoTokenizer.from_pretrained(checkpoint)
    model = MyBertEncoderDecoderModel.from_encoder_decoder_pretrained(checkpoint, checkpoint)
    model.config.decoder_start_token_id, model.config.pad_token_id = tokenizer.cls_token_id, tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_causal_head_is_compared_by_its_own_class(causal):
    verify(str(causal), Expected.of(causal), ["AutoModelForCausalLM"])
    assert verify_plain_bert(causal) < 1e-5


def test_a_pair_of_encoder_and_decoder_is_bundled_and_compared(pair, tmp_path):
    (tmp_path / "bundle").mkdir()
    bundle = make_bundle(PushSettings(str(pair), REPO), tmp_path / "bundle")
    verify(str(bundle.folder), Expected.of(pair), ["AutoModelForSeq2SeqLM"])
    assert verify_plain_bert(bundle.folder) is None, "transformers has no BERT of that kind"
    (pair / "decoder_mybert.py").unlink()
    (tmp_path / "again").mkdir()
    with pytest.raises(UserError, match="save it by MyBertEncoderDecoderModel"):
        make_bundle(PushSettings(str(pair), REPO), tmp_path / "again")


def test_code_that_needs_this_project_is_found_out(checkpoint, expected):
    path = checkpoint / "padding_mybert.py"
    path.write_text(path.read_text() + "\nimport mybert.common.errors\n")
    with pytest.raises(UserError, match=r"cannot be loaded by a process that has no MyBERT installed.*mybert"):
        verify(str(checkpoint), expected, ["AutoModelForPreTraining"])


def test_head_labels_and_ids_count_too(expected):
    found = {"AutoModelForPreTraining/encoder": expected.encoder}
    found |= {
        f"AutoModelForPreTraining/{i}/{name}": x for i, o in enumerate(expected.outputs) for name, x in o.items()
    }
    said = {"labels": expected.labels, "ids": [expected.ids, expected.ids]}
    _compare(found, said, expected, CLASSES)
    with pytest.raises(UserError, match="the labels are not"):
        _compare(found, {**said, "labels": {"0": "no", "1": "yes"}}, expected, CLASSES)
    with pytest.raises(UserError, match="AutoTokenizer gives other ids"):
        _compare(found, {**said, "ids": [expected.ids, expected.ids[::-1]]}, expected, CLASSES)
    with pytest.raises(UserError, match="none of AutoModel gives the head that was saved, MyBertForPreTraining"):
        _compare({}, said, expected, ["AutoModel"])
    last = f"AutoModelForPreTraining/{len(expected.outputs) - 1}/seq_relationship_logits"
    with pytest.raises(UserError, match="AutoModelForPreTraining gives another seq_relationship_logits"):
        _compare({**found, last: found[last] * (1 + 1e-6)}, said, expected, CLASSES)


def test_as_plain_bert_it_says_the_same(checkpoint):
    assert verify_plain_bert(checkpoint) < 1e-5


def test_an_upload_that_is_changed_on_the_hub_is_found_out(hub, client, checkpoint, tmp_path):
    settings = PushSettings(str(checkpoint), REPO)
    (tmp_path / "bundle").mkdir()
    bundle = make_bundle(settings, tmp_path / "bundle")
    write_card(bundle, settings, "v1", "Checked.")
    published = publish(bundle, settings, "v1")
    check_upload(bundle, settings, published, tmp_path / "home")
    repo = hub.repos[REPO]
    repo.commits[published.commit] = {**repo.commits[published.commit], "vocab.txt": File(b"other")}
    with pytest.raises(UserError, match=r"holds other bytes than were sent: vocab\.txt"):
        check_upload(bundle, settings, published, tmp_path / "another-home")
    del repo.commits[published.commit]["vocab.txt"]
    with pytest.raises(UserError, match=r"holds other bytes than were sent: vocab\.txt"):
        check_upload(bundle, settings, published, tmp_path / "a-third-home")


def test_what_fails_after_the_upload_gets_no_tag(hub, client, send, monkeypatch):
    import mybert.release.hub.push as pushing

    def fail(*arguments):
        raise UserError("it is not the same")

    monkeypatch.setattr(pushing, "_verify_bundle", lambda bundle, classes: ("expected", "Checked."))
    monkeypatch.setattr(pushing, "_verify_upload", fail)
    with pytest.raises(UserError, match="not the same"):
        send(verify=True)
    assert hub.repos[REPO].refs.keys() == {MAIN}
