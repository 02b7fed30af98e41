"""`mybert merge`: the average that safetensors files give, and pairs that have none."""

import json
import re

import pytest
import torch
from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from safetensors.torch import load_file
from transformers.utils import logging

import modeling_mybert
from mybert import cli, merge
from mybert.release.card.model_card import write_card
from mybert.release.hub.bundle import make_bundle
from mybert.release.settings import PushSettings

CLASSIFIER = "MyBertForSequenceClassification"


@pytest.mark.parametrize("head", ["MyBertForPreTraining", "MyBertForTokenClassification"])
def test_weights_are_the_weighted_average_of_the_files(head, saved_head, tmp_path):
    models = [str(saved_head(head, f"m{seed}", seed)) for seed in range(3)]
    found = merge(models=models, weights=[1, 2, 5], output=str(tmp_path / "merged"))
    files = [load_file(f"{model}/model.safetensors") for model in models]
    merged = load_file(found.path / "model.safetensors")
    assert merged.keys() == files[0].keys()
    for key, value in merged.items():
        expected = sum(share * file[key].double() for share, file in zip((0.125, 0.25, 0.625), files, strict=True))
        torch.testing.assert_close(value, expected.float(), rtol=0, atol=1e-7)
    model = getattr(modeling_mybert, head).from_pretrained(found.path)
    if head == "MyBertForPreTraining":
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert (found.path / "vocab.txt").read_bytes() == (tmp_path / "m0/vocab.txt").read_bytes()
    assert found.manifest["weights"] == [0.125, 0.25, 0.625]


def test_equal_weights_of_equal_models_give_its_bits_again(saved_head, tmp_path, capsys):
    model, same = (str(saved_head(CLASSIFIER, name)) for name in "ab")
    logging.enable_progress_bar()
    disable_progress_bars()  # those of downloads, as a user may
    capsys.readouterr()
    assert cli.main(["merge", model, same, "--output", str(tmp_path / "same")]) == 0
    assert capsys.readouterr().err == ""  # no progress bar of transformers between the lines
    assert logging.is_progress_bar_enabled() and are_progress_bars_disabled()
    enable_progress_bars()
    merged, before = (load_file(f"{folder}/model.safetensors") for folder in (tmp_path / "same", model))
    assert all(torch.equal(merged[key], before[key]) for key in before)
    assert json.loads((tmp_path / "same/manifest.json").read_bytes())["counts"]["parameters"] > 0


@pytest.mark.parametrize(
    "settings",
    [{"problem_type": "single_label_classification"}, {"tag_scheme": "IOB1"}, {"finetuned": {"task": "own"}}],
)
def test_a_checkpoint_that_does_not_tell_its_task_is_merged(settings, saved_head, tmp_path):
    models = [str(saved_head(CLASSIFIER, "a", **settings)), str(saved_head(CLASSIFIER, "b"))]
    assert merge(models=models, output=str(tmp_path / "merged")).path.is_dir()


def test_the_model_card_names_the_models_and_their_weights(saved_head, tmp_path):
    models = [str(saved_head(CLASSIFIER, name)) for name in ("first", "second")]
    merged = merge(models=models, weights=[1, 3], output=str(tmp_path / "merged")).path
    settings = PushSettings(str(merged), "me/merged")
    bundle = make_bundle(settings, tmp_path / "bundle")
    assert [note.split(" (")[0] for note in bundle.notes if "has no manifest.json" in note] == ["model-0", "model-1"]
    card = write_card(bundle, settings, "v1", "Checked.").text
    rows = card.split("## Merged models")[1].split("\n## ")[0]
    assert re.search(
        r"\| a local checkpoint, SHA-256 \w+… \| 0.25 \|\n\| a local checkpoint, SHA-256 \w+… \| 0.75 \|\n", rows
    )
