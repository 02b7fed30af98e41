"""Loading with transformers: new heads, resized vocabularies, device maps, data types."""

import pytest
import torch
from transformers import AutoModel, AutoModelForPreTraining

import modeling_mybert
from modeling_mybert import MyBertForMaskedLM, MyBertForPreTraining, MyBertModel

IDS = torch.tensor([[101, 1010, 2020, 3030, 102]])


@pytest.fixture(scope="module")
def pretrained(bert_folders, tmp_path_factory):
    """A checkpoint with both heads of pretraining."""
    folder = tmp_path_factory.mktemp("pretrained")
    MyBertForPreTraining.from_pretrained(bert_folders("MyBertForPreTraining")).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("model_class", "size"), [(MyBertForPreTraining, 30529), (MyBertForMaskedLM, 9000)])
def test_a_resized_vocabulary_keeps_old_logits_and_tied_weights(pretrained, model_class, size, tmp_path):
    model = model_class.from_pretrained(pretrained).eval()
    with torch.no_grad():
        before = model(IDS)[0]
        model.resize_token_embeddings(size)
        after = model(IDS)[0]
    common = min(size, before.shape[-1])
    assert after.shape[-1] == size == model.config.vocab_size
    torch.testing.assert_close(before[..., :common], after[..., :common])  # products of other sizes round otherwise
    assert tied(model)
    model.save_pretrained(tmp_path)
    again, report = model_class.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["mismatched_keys"]
    assert tied(again)
    with torch.no_grad():
        assert torch.equal(again.eval()(IDS)[0], after)


def test_an_untied_bias_of_a_resized_vocabulary_is_saved_and_loaded(bert_folders, tmp_path):
    model = MyBertForMaskedLM.from_pretrained(bert_folders("MyBertForMaskedLM"), tie_word_embeddings=False).eval()
    model.resize_token_embeddings(9000)
    with torch.no_grad():
        model.get_output_embeddings().bias.normal_()
        expected = model(IDS).logits
        model.save_pretrained(tmp_path)
        again, report = MyBertForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
        assert not report["missing_keys"]
        assert torch.equal(again.eval()(IDS).logits, expected)


def tied(model) -> bool:
    head = model.cls.predictions
    size = model.config.vocab_size
    return (
        head.decoder.weight is model.bert.embeddings.word_embeddings.weight
        and head.decoder.bias is head.bias
        and head.decoder.out_features == size == len(head.bias) == len(head.decoder.weight)
    )


def test_new_rows_of_a_resized_vocabulary_get_gradients(pretrained):
    model = MyBertForMaskedLM.from_pretrained(pretrained)
    model.resize_token_embeddings(30523)
    model(torch.tensor([[101, 30522, 102]]), labels=torch.tensor([[-100, 30522, -100]])).loss.backward()
    assert model.cls.predictions.bias.grad[30522] < 0
    assert model.bert.embeddings.word_embeddings.weight.grad[30522].abs().sum() > 0


def test_every_head_computes_the_same_when_offloaded_to_disk(head, bert_folders, inputs_of, tmp_path):
    model_class, batch = getattr(modeling_mybert, head), inputs_of(head)
    whole = model_class.from_pretrained(bert_folders(head)).eval()
    whole.save_pretrained(tmp_path / "saved")
    split = model_class.from_pretrained(
        tmp_path / "saved", device_map={"": "disk"}, offload_folder=tmp_path / "offload"
    ).eval()
    assert {parameter.device.type for parameter in split.parameters()} == {"meta"}
    with torch.no_grad():
        expected, found = whole(**batch), split(**batch)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_layers_that_exceed_max_memory_are_offloaded_to_disk(pretrained, tmp_path):
    room = {"cpu": 3_960_000}  # bytes: little more than the embeddings
    split = AutoModel.from_pretrained(pretrained, device_map="auto", max_memory=room, offload_folder=tmp_path).eval()
    assert set(split.hf_device_map.values()) == {"cpu", "disk"}
    with torch.no_grad():
        expected = MyBertModel.from_pretrained(pretrained).eval()(IDS)
        assert torch.equal(split(IDS).last_hidden_state, expected.last_hidden_state)


def test_weights_are_loaded_and_saved_in_the_given_dtype(pretrained, tmp_path):
    model = AutoModelForPreTraining.from_pretrained(pretrained, dtype=torch.bfloat16).eval()
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    with torch.no_grad():
        found = model(IDS).prediction_logits
        expected = AutoModelForPreTraining.from_pretrained(pretrained).eval()(IDS).prediction_logits
    assert found.dtype == torch.bfloat16
    assert (found.float() - expected).abs().max() < 0.05 * expected.abs().max()
    model.save_pretrained(tmp_path)
    assert AutoModelForPreTraining.from_pretrained(tmp_path, dtype="auto").dtype == torch.bfloat16
    assert AutoModelForPreTraining.from_pretrained(tmp_path, dtype=torch.float32).dtype == torch.float32
