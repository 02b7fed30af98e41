"""A saved folder is a BERT folder: transformers reads it without remote code, to the same numbers."""

import json
import pickle
from pathlib import Path

import pytest
import torch
import transformers
from json_files import change_json
from tiny_models import tiny_config
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertLMHeadModel,
    BertModel,
    BertTokenizer,
    EncoderDecoderModel,
    pipeline,
)

import modeling_mybert
from modeling_mybert import AUTO_MAP, MyBertConfig, MyBertForSequenceClassification, MyBertModel, use_for_bert
from modeling_mybert.configuration_mybert import MODULES_OF_HEADS

ROOT = Path(modeling_mybert.__file__).parents[1]
HEADS = {auto: name.split(".")[1] for auto, name in AUTO_MAP.items() if auto != "AutoConfig"}

COMPARE = """
import json, torch, transformers
transformers.logging.set_verbosity_error()
torch.manual_seed(0)
ids, real = torch.randint(5, 90, (3, 12)), torch.arange(12) < torch.tensor([[12], [7], [3]])
for folder, auto in json.loads(sys.argv[1]):
    models = [getattr(transformers, auto).from_pretrained(folder, trust_remote_code=x) for x in (None, False, True)]
    inputs = {"input_ids": ids * real, "attention_mask": real.long()}
    if auto.endswith("MultipleChoice"):
        inputs = {name: x[:, None].repeat(1, 2, 1) for name, x in inputs.items()}
    found = {"names": [type(model).__name__ for model in models]}
    plain, _, ours = models
    for name, train in (("eval", False), ("train", True)):
        expected, outputs = plain.train(train)(**inputs), ours.train(train)(**inputs)
        assert expected.keys() == outputs.keys()
        differences = []
        for key in expected:
            one, other = expected[key], outputs[key]
            if one.shape[:2] == (3, 12):  # values at padding differ: MyBERT computes none
                one, other = one[real], other[real]
            differences.append((one - other).abs().max().item())
        found[name] = max(differences)
    for model in (plain, ours):
        sum(x.float().square().sum() for x in [next(iter(model(**inputs).values()))[..., :1, :]]).backward()
    weights = dict(ours.named_parameters())
    found["gradient"] = max(
        ((x.grad - weights[name].grad).norm() / (1 + x.grad.norm())).item()
        for name, x in plain.named_parameters() if x.grad is not None
    )
    print(json.dumps(found))
"""


def small(**settings) -> MyBertConfig:
    settings |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return tiny_config(intermediate_size=37, max_position_embeddings=16, initializer_range=0.2, **settings)


def test_every_head_is_read_with_and_without_remote_code_to_the_same_numbers(tmp_path, run_foreign):
    for auto, head in HEADS.items():
        torch.manual_seed(1)
        getattr(modeling_mybert, head)(small(num_labels=3)).save_pretrained(tmp_path / auto)
    found = [json.loads(line) for line in run_foreign(COMPARE, json.dumps([[str(tmp_path / x), x] for x in HEADS]))]
    for head, result in zip(HEADS.values(), found, strict=True):
        bert = head.removeprefix("My")
        assert result["names"] == [bert, bert, head]
        assert max(result["eval"], result["train"]) < 2e-6, head
        assert result["gradient"] < 1e-5, head


def test_the_configuration_on_disk_is_that_of_bert(tmp_path):
    modeling_mybert.MyBertForQuestionAnswering(small(num_labels=5)).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert (saved["model_type"], saved["architectures"]) == ("bert", ["BertForQuestionAnswering"])
    assert saved["position_embedding_type"] == "absolute" and "int8_outliers" not in saved
    assert BertConfig.from_pretrained(tmp_path).num_labels == 2, "start and end"
    assert MyBertConfig.from_pretrained(tmp_path).to_dict() == MyBertConfig.from_dict(saved).to_dict()


def test_with_the_package_a_folder_of_mybert_is_mybert_and_one_of_bert_is_bert(tmp_path):
    model = MyBertForSequenceClassification(small())
    model.save_pretrained(tmp_path / "ours")
    BertModel(BertConfig(**small().to_dict())).save_pretrained(tmp_path / "plain")
    for trust in (None, False):
        assert type(AutoModel.from_pretrained(tmp_path / "ours", trust_remote_code=trust)) is MyBertModel
        assert type(AutoModel.from_pretrained(tmp_path / "plain", trust_remote_code=trust)) is BertModel
    assert type(AutoConfig.from_pretrained(tmp_path / "plain")) is BertConfig
    assert type(AutoConfig.for_model("bert", hidden_size=8)) is BertConfig


def test_folders_of_earlier_versions_are_read(tmp_path):
    MyBertForSequenceClassification(small()).save_pretrained(tmp_path)
    custom = {"impl": "pipelines_mybert.MyBertTextClassificationPipeline", "pt": ["AutoModel"], "type": "text"}
    old = {"model_type": "mybert", "architectures": ["MyBertForSequenceClassification"]}
    change_json(tmp_path / "config.json", **old, custom_pipelines={"text-classification": custom})
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(model) is MyBertForSequenceClassification
    model.save_pretrained(tmp_path / "new")
    new = json.loads((tmp_path / "new/config.json").read_text())
    assert new["model_type"] == "bert" and "custom_pipelines" not in new


OTHER_CODE = """
from transformers import BertConfig, BertModel

class OtherConfig(BertConfig):
    pass

class OtherModel(BertModel):
    config_class = OtherConfig
"""


def test_remote_code_of_others_under_the_type_bert_is_loaded_as_before(tmp_path):
    model = BertModel(BertConfig(**small().to_dict()))
    model.config.auto_map = {"AutoConfig": "other.OtherConfig", "AutoModel": "other.OtherModel"}
    model.save_pretrained(tmp_path)
    (tmp_path / "other.py").write_text(OTHER_CODE)
    with use_for_bert():
        assert type(AutoModel.from_pretrained(tmp_path, trust_remote_code=True)).__name__ == "OtherModel"
        assert type(AutoModel.from_pretrained(tmp_path, trust_remote_code=False)) is BertModel


def test_use_for_bert_holds_until_its_last_end(minilm_folder):
    ids = torch.tensor([[101, 7592, 2088, 102]])

    def loaded():
        return AutoModel.from_pretrained(minilm_folder).eval()

    first, second = use_for_bert(), use_for_bert()
    model = loaded()
    first.close()
    first.close()
    assert type(model) is type(loaded()) is MyBertModel
    second.close()
    plain = loaded()
    assert type(plain) is BertModel
    with use_for_bert():
        assert type(pipeline("feature-extraction", model=str(minilm_folder)).model) is MyBertModel
    assert type(loaded()) is BertModel
    with torch.no_grad():
        torch.testing.assert_close(model(ids)[0], plain(ids)[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("setting", "asked"),
    [
        ({"is_decoder": True}, {}),
        ({"position_embedding_type": "relative_key"}, {}),
        ({"pad_token_id": -1}, {}),
        ({}, {"is_decoder": True}),
    ],
)
def test_use_for_bert_leaves_what_mybert_does_not_compute(setting, asked, tmp_path):
    BertModel(BertConfig(**small().to_dict())).save_pretrained(tmp_path)
    change_json(tmp_path / "config.json", **setting)
    with use_for_bert():
        assert type(AutoModel.from_pretrained(tmp_path, **asked)) is BertModel


def test_a_tokenizer_without_a_class_is_that_of_bert(tmp_path):
    BertModel(BertConfig(**small().to_dict())).save_pretrained(tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    expected = AutoTokenizer.from_pretrained(tmp_path)("One", "two")
    assert expected["token_type_ids"] == [0, 0, 0, 1, 1]
    with use_for_bert():
        tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert type(tokenizer) is BertTokenizer and dict(tokenizer("One", "two")) == dict(expected)


def test_the_configuration_class_of_the_type_bert_stands_for_that_of_bert():
    found = CONFIG_MAPPING["bert"]
    assert pickle.loads(pickle.dumps(CONFIG_MAPPING))["bert"] is pickle.loads(pickle.dumps(found)) is found
    assert isinstance(BertConfig(), found) and not isinstance(MyBertConfig(), found)
    for mapping in (transformers.MODEL_MAPPING, transformers.MODEL_FOR_MASKED_LM_MAPPING):
        assert mapping[found] is mapping[BertConfig]
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    with use_for_bert():  # as run_mlm.py starts from random weights
        assert type(AutoModel.from_config(AutoConfig.for_model("bert", **sizes))) is MyBertModel
        assert type(found(is_decoder=True)) is BertConfig
    assert type(AutoModel.from_config(AutoConfig.for_model("bert", **sizes))) is BertModel


SAVE_AGAIN = """
import os, shutil, transformers
from huggingface_hub.constants import HF_HUB_CACHE
name, target, commit = sys.argv[1], sys.argv[2], "0123456789" * 4
if len(sys.argv) > 3:
    cache = os.path.join(HF_HUB_CACHE, "models--someone--reader")
    shutil.copytree(name, os.path.join(cache, "snapshots", commit))
    os.mkdir(os.path.join(cache, "refs"))
    with open(os.path.join(cache, "refs", "main"), "w") as file:
        file.write(commit)
    shutil.rmtree(name)
    name = "someone/reader"
model = transformers.AutoModelForQuestionAnswering.from_pretrained(name, trust_remote_code=True)
model.save_pretrained(target)
"""


@pytest.mark.parametrize("words", [[], ["by the name of its repository"]])
def test_a_folder_is_the_same_after_it_is_saved_again_without_this_project(tmp_path, run_foreign, words):
    modeling_mybert.MyBertForQuestionAnswering(small()).save_pretrained(tmp_path / "hub")
    files = {path.name: path.read_bytes() for path in (tmp_path / "hub").iterdir()}
    run_foreign(SAVE_AGAIN, tmp_path / "hub", tmp_path / "saved", *words)
    saved = {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()}
    expected, found = (json.loads(some.pop("config.json")) for some in (files, saved))
    assert saved == files
    assert [found[name] for name in ("custom_pipelines", "auto_map")] == [expected["custom_pipelines"], AUTO_MAP]


def test_an_encoder_decoder_of_transformers_takes_the_folder(tmp_path):
    modeling_mybert.MyBertForPreTraining(small()).save_pretrained(tmp_path / "ours")
    model = EncoderDecoderModel.from_encoder_decoder_pretrained(tmp_path / "ours", tmp_path / "ours")
    model.config.decoder_start_token_id, model.config.pad_token_id = 2, 0
    assert type(model.encoder) is MyBertModel and isinstance(model.decoder, BertLMHeadModel)
    ids, labels = torch.tensor([[2, 7, 9, 3]]), torch.tensor([[7, 3]])
    model.save_pretrained(tmp_path / "both")
    again = EncoderDecoderModel.from_pretrained(tmp_path / "both").eval()
    torch.testing.assert_close(again(ids, labels=labels).loss, model.eval()(ids, labels=labels).loss)
    assert again.generate(ids, max_new_tokens=3, decoder_start_token_id=2).shape[1] <= 4


WITH_PACKAGE = """
import torch
from transformers import AutoModel
del sys.modules["mybert"]
sys.path.append(sys.argv[2])
plain, ours = (AutoModel.from_pretrained(sys.argv[1], trust_remote_code=x).eval() for x in (False, True))
from mybert.inference.cpu import optimize_for_inference, prepacked
prepacked.are_faster = lambda device, dtype: True
ids, real = torch.randint(5, 90, (3, 12)), torch.arange(12) < torch.tensor([[12], [7], [3]])
inputs = {"input_ids": ids * real, "attention_mask": real.long()}
with torch.no_grad():
    expected = plain(**inputs)[0][real]
    for model in (ours, optimize_for_inference(ours)):
        print((model(**inputs)[0][real] - expected).abs().max().item())
print(sys.modules[type(ours).__module__.replace("backbone", "operations")].faster is not None)
print(ours.encoder.prepacked._state[1] is not None)
"""


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this PyTorch has no oneDNN")
def test_the_code_of_a_folder_uses_the_package_where_it_is_installed(tmp_path, run_foreign):
    MyBertModel(small()).save_pretrained(tmp_path / "folder")
    *differences, is_used, is_prepacked = run_foreign(WITH_PACKAGE, tmp_path / "folder", ROOT)
    assert max(map(float, differences)) < 2e-6
    assert is_used == is_prepacked == "True"


@pytest.mark.parametrize(
    ("head", "modules"),
    [
        ("MyBertForPreTraining", ()),
        ("MyBertForQuestionAnswering", MODULES_OF_HEADS["ForQuestionAnswering"]),
        ("MyBertForTokenClassification", MODULES_OF_HEADS["ForTokenClassification"]),
    ],
)
def test_the_modules_of_a_pipeline_travel_with_its_head_only(head, modules, tmp_path):
    getattr(modeling_mybert, head)(small()).save_pretrained(tmp_path)
    saved = {path.stem for path in tmp_path.glob("*_mybert.py")}
    others = {name for names in MODULES_OF_HEADS.values() for name in names}
    assert saved & others == set(modules)
    assert saved - others == {path.stem for path in (ROOT / "modeling_mybert").glob("*_mybert.py")} - others


def test_int8_weights_have_no_decoder():
    with pytest.raises(ValueError, match="int8 weights have no decoder"):
        modeling_mybert.MyBertLMHeadModel(small(int8_outliers=0))
