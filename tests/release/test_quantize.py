"""int8 models: products, rounding, accuracy on a tiny model, folders that load again, and refusals."""

import copy
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from starlette.testclient import TestClient
from torch import nn
from transformers import AutoModel, AutoModelForSequenceClassification
from transformers.activations import ACT2FN

from modeling_mybert import MyBertModel
from mybert import Embedder, Predictor, UserError, cli, quantize
from mybert.inference.checkpoint import open_checkpoint
from mybert.inference.cpu.int8 import int8_obstacle
from mybert.release.card.card_data import CardData
from mybert.release.card.model_card import write_card
from mybert.release.convert.companions import count_parameters
from mybert.release.convert.int8_rounding import int8_linear, round_with_feedback
from mybert.release.convert.quantize import least_output
from mybert.release.hub.bundle import Bundle
from mybert.release.hub.clean_process_check import run_pipeline
from mybert.release.hub.handler import EndpointHandler
from mybert.release.hub.verify import write_reference
from mybert.release.settings import PushSettings
from mybert.serving.app import Service
from mybert.serving.served import open_served
from mybert.serving.settings import ServeSettings
from tokenization import MyBertTokenizer

pytestmark = pytest.mark.skipif(int8_obstacle() is not None, reason=str(int8_obstacle()))
TEXTS = ["the great film sings", "ann bert in rome", "dull song, very dull song", "who is where? the sea!"]


LEAST_GELU = -0.1699712  # x Φ(x) at x = -0.7517916


def layer_and_inputs(one_sided: bool, rows: int = 4000) -> tuple[nn.Linear, torch.Tensor]:
    """Correlated inputs with two exceptional features."""
    torch.manual_seed(0)
    x = torch.randn(rows, 64) @ torch.randn(64, 64) * 0.2 + torch.randn(64)
    x[:, 5] *= 40
    x[:, 9] *= 15
    return nn.Linear(64, 48), nn.functional.gelu(x) if one_sided else x


@pytest.mark.parametrize(("one_sided", "outliers"), [(False, 0), (False, 2), (True, 2)])
def test_a_product_is_that_of_the_rounded_inputs_and_weights(one_sided, outliers):
    linear, x = layer_and_inputs(one_sided)
    int8 = int8_linear(linear, x, outliers, LEAST_GELU if one_sided else None)
    found = int8(x[:128].view(2, 64, 64)).detach().view(128, 48).double().numpy()
    state = {name: value.double().numpy() for name, value in int8.state_dict().items()}
    assert state["zero_point"] == (0 if one_sided else 128)
    z = x[:128].double().numpy() * state["factor"] + state["shift"]
    step = np.abs(z).max(1, keepdims=True) / (255 if one_sided else 127)
    rounded = np.clip(np.round(z / step), 0 if one_sided else -127, 255) * step
    expected = rounded @ (state["weight"] * state["weight_scale"][:, None]).T + state["bias"]
    if outliers:
        assert state["outliers"].tolist() == [5, 9]
        assert not state["weight"][:, [5, 9]].any()
        expected += x[:128, [5, 9]].double().numpy() @ state["outlier_weight"].T
    largest_step = (step * state["weight_scale"]).max() * 127  # an input at the middle of a step may round either way
    assert np.abs(found - expected).max() < largest_step
    assert np.abs(found - expected).mean() < 1e-3 * np.abs(expected).mean()


def test_a_limit_of_instructions_without_vnni_is_an_obstacle(monkeypatch):
    for limit in ("AVX2", "avx512_core", "AVX512_CORE_VNNI"):
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
        assert bool(int8_obstacle()) == ("VNNI" not in limit)


@torch.no_grad()
def relative_error(int8: nn.Module, linear: nn.Linear, x: torch.Tensor) -> float:
    return ((int8(x) - linear(x)).norm() / linear(x).norm()).item()


def test_a_feature_that_is_constant_in_calibration_may_vary_later():
    linear, x = layer_and_inputs(one_sided=False)
    x[:, 7] = 0.5
    int8 = int8_linear(linear, x, 0)
    x[:, 7] += torch.randn(len(x))
    assert relative_error(int8, linear, x) < 0.1


def test_an_activation_lower_than_all_in_calibration_is_no_large_one():
    linear, x = layer_and_inputs(one_sided=True)
    int8 = int8_linear(linear, x.clamp(min=-0.05), 2, LEAST_GELU)
    x[:, 11] = LEAST_GELU
    assert relative_error(int8, linear, x) < 0.02


@pytest.mark.parametrize(
    ("name", "least"),
    [("gelu", LEAST_GELU), ("relu", 0.0), ("silu", -0.2784645), ("tanh", None), ("leaky_relu", None)],
)
def test_the_minimum_of_an_activation(name, least):
    assert least_output(ACT2FN[name]) == (None if least is None else pytest.approx(least, abs=1e-6))


def test_large_inputs_do_not_overflow_in_calibration():
    linear, x = layer_and_inputs(one_sided=False)
    x[:, 3] *= 1e6
    assert relative_error(int8_linear(linear, x), linear, x) < 0.01


@pytest.mark.parametrize("one_sided", [False, True])
def test_an_int8_layer_keeps_the_mean_and_is_close_to_the_float32_layer(one_sided):
    linear, x = layer_and_inputs(one_sided)
    with torch.no_grad():
        expected, found = linear(x), int8_linear(linear, x, 2, LEAST_GELU if one_sided else None)(x)
    torch.testing.assert_close(found.mean(0), expected.mean(0), rtol=0, atol=2e-3)
    assert (found - expected).square().mean() < 2e-4 * expected.var(0).mean()


def test_feedback_rounds_like_round_where_inputs_are_independent():
    torch.manual_seed(0)
    inputs = torch.linalg.qr(torch.randn(200, 150)).Q
    weight, scale = torch.randn(7, 150), torch.full((7,), 0.05)
    assert torch.equal(round_with_feedback(weight, scale, inputs), (weight / scale[:, None]).round().clamp(-127, 127))


def test_feedback_has_less_error_than_rounding_where_inputs_are_correlated():
    torch.manual_seed(0)
    inputs = torch.randn(2000, 30) @ torch.randn(30, 150)
    weight = torch.randn(7, 150)
    scale = weight.abs().amax(1) / 127
    found = round_with_feedback(weight, scale, inputs)
    assert found.abs().max() <= 127
    assert torch.equal(found, found.round())

    def error(integers: torch.Tensor) -> float:
        return (inputs @ (integers * scale[:, None] - weight).T).square().mean().item()

    assert error(found) < 0.3 * error((weight / scale[:, None]).round())


def test_vectors_are_close_to_float32_and_equal_with_and_without_padding(quantised, models):
    vectors = Embedder(str(quantised("encoder"))).texts(TEXTS)
    exact = Embedder(str(models("encoder"))).texts(TEXTS)
    cosines = (vectors * exact).sum(1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(exact, axis=1)
    assert cosines.min() > 0.999
    assert not np.array_equal(vectors, exact)
    tokenizer = MyBertTokenizer.from_pretrained(quantised("encoder"))
    model = MyBertModel.from_pretrained(quantised("encoder"), add_pooling_layer=False).eval()
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    np.testing.assert_allclose((states * mask).sum(1) / mask.sum(1), vectors, atol=1e-3)


def test_a_folder_loads_again_with_any_auto_class_and_saves_the_same_weights(quantised, tmp_path):
    model = AutoModelForSequenceClassification.from_pretrained(quantised("classifier")).eval()
    weight = model.bert.encoder.layer[0].intermediate.dense.weight
    assert weight.dtype == torch.int8
    assert AutoModel.from_pretrained(quantised("classifier")).encoder.layer[1].output.dense.outliers is not None
    batch = MyBertTokenizer.from_pretrained(quantised("classifier"))(TEXTS[:3], padding=True, return_tensors="pt")
    model.save_pretrained(tmp_path / "again")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "again").eval()
    expected = model(**batch).logits
    for other in (again, copy.deepcopy(model)):
        assert torch.equal(other(**batch).logits, expected)
        assert other.state_dict().keys() == model.state_dict().keys()


def test_predictions_are_close_to_those_of_the_float32_classifier(quantised, models):
    both = (Predictor(str(folder))(TEXTS) for folder in (quantised("classifier"), models("classifier")))
    for int8, exact in zip(*both, strict=True):
        assert int8["scores"] == pytest.approx(exact["scores"], abs=0.03)
        assert int8["scores"] != exact["scores"]


def test_a_model_refuses_training_and_gradients(quantised):
    model = MyBertModel.from_pretrained(quantised("encoder"), add_pooling_layer=False).eval()
    with pytest.raises(ValueError, match="int8 weights cannot be trained"):
        model.train()
    states = model(input_ids=torch.tensor([[2, 7, 3]])).last_hidden_state
    with pytest.raises(RuntimeError, match="int8 weights have no gradients"):
        states.sum().backward()


NO_PACKAGE = """
from transformers import AutoModel
try:
    AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True)
except ValueError as error:
    print(error)
"""


def test_without_the_package_int8_weights_are_refused_in_one_line(quantised, run_foreign):
    (message,) = run_foreign(NO_PACKAGE, quantised("encoder"))
    assert message.startswith("int8 weights need the package mybert, which is not installed here")


@pytest.mark.parametrize("lacking", ["processor", "operation"])
def test_a_machine_without_int8_products_says_so(lacking, quantised, models, monkeypatch, tmp_path):
    folder = quantised("encoder")
    if lacking == "processor":
        monkeypatch.setattr(torch.cpu, "get_capabilities", dict, raising=False)
        message = "this processor has no int8 instructions"
    else:
        monkeypatch.setattr("mybert.inference.cpu.int8._PRODUCT", "no_such_operation")
        message = "has no int8 products by oneDNN; install a build for x86-64"
    with pytest.raises(UserError, match=f"{message}.*use the checkpoint that this one was quantised from"):
        Embedder(str(folder))
    with pytest.raises(UserError, match=message):
        quantize(model=str(models("encoder")), texts=[str(folder / "../texts.jsonl")], output=str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_checkpoint_in_half_precision_is_quantised_as_its_float32_copy(dtype, quantised, models, tmp_path):
    folder, half = quantised("encoder"), shutil.copytree(models("encoder"), tmp_path / "half")
    model = MyBertModel.from_pretrained(half).to(dtype)
    model.save_pretrained(half)
    model.float().save_pretrained(shutil.copytree(half, tmp_path / "float"))
    vectors = []
    for name in ("half", "float"):
        quantize(model=str(tmp_path / name), texts=[str(folder / "../texts.jsonl")], output=str(tmp_path / f"{name}8"))
        vectors.append(Embedder(str(tmp_path / f"{name}8")).texts(TEXTS))
    assert np.corrcoef(*(each.ravel() for each in vectors))[0, 1] > 0.999  # calibration differs by rounding


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_model_in_another_data_type_says_so(dtype, quantised):
    model = MyBertModel.from_pretrained(quantised("encoder")).to(dtype)
    with pytest.raises(ValueError, match=f"scales in float32, not {dtype}; load the model again"):
        model(input_ids=torch.tensor([[2, 7, 3]]))


@pytest.mark.parametrize("command", ["embed", "predict"])
def test_dtype_int8_is_that_of_an_int8_model(command, quantised, tmp_path):
    folder = quantised("classifier")
    words = [folder, folder / "../texts.jsonl", "--dtype", "int8", "--output", tmp_path / "x.jsonl"]
    assert cli.main([command, *map(str, words)]) == 0


def test_a_published_int8_model_is_verified_and_its_card_has_no_claim_of_bert(quantised, tmp_path, capsys):
    assert cli.main(["push", str(quantised("filler")), "--repo-id", "ann/int8", "--dry-run"]) == 0
    assert "The outputs of the saved head and of the encoder are equal" in capsys.readouterr().out
    folder = shutil.copytree(quantised("filler"), tmp_path / "filler")
    card = str(write_card(Bundle(folder, folder), PushSettings(str(folder), "ann/int8"), "v1", "Checked."))
    assert "It needs the package MyBERT, a processor with VNNI instructions" in card
    assert "tokenizer_kwargs={'truncation': True}, device='cpu')" in card
    for claim in ("Without remote code", "With MyBERT's code", "Fine-tune"):
        assert claim not in card


@pytest.mark.parametrize("name", ["filler", "encoder", "classifier"])
def test_pipelines_of_a_published_int8_model_do_not_use_a_gpu(name, quantised, tmp_path, monkeypatch):
    folder, devices = quantised(name), []
    write_reference(folder, tmp_path / "reference")
    call = json.loads((tmp_path / "reference/reference.json").read_text(encoding="utf-8"))["pipeline"]
    fake = type("Pipeline", (str,), {"tokenizer": None})
    monkeypatch.setattr(transformers, "pipeline", lambda *_, device=None, **__: devices.append(device) or fake)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    run_pipeline(str(folder), {}, call)
    EndpointHandler(folder)
    assert devices == ["cpu", "cpu"]


@pytest.mark.parametrize("name", ["encoder", "classifier"])
def test_all_parameters_are_counted_and_the_service_answers_as_the_python_api(name, quantised, models):
    folder = str(quantised(name))
    count = count_parameters(open_checkpoint(folder).model)
    assert count == open_checkpoint(str(models(name))).model.num_parameters() == CardData.of(Path(folder)).parameters
    settings = ServeSettings(folder, device="cpu")
    with TestClient(Service(open_served(settings), settings, None).app) as client:
        assert client.get("/info").json()["model_dtype"] == "int8"
        if name == "classifier":
            found = client.post("/predict", json={"rows": TEXTS[:2]}).json()["predictions"]
            expected = Predictor(folder)(TEXTS[:2])
            assert [one["score"] for one in found] == pytest.approx([one["score"] for one in expected], abs=1e-4)
        else:
            found = client.post("/embed", json={"inputs": TEXTS[:2], "normalize": False}).json()
            np.testing.assert_allclose(found, Embedder(folder).texts(TEXTS[:2]), atol=1e-3)
