"""Sentence encoders: vectors are those of sentence-transformers, whatever their modules are."""

import json
import shutil

import numpy as np
import pytest
import torch
from json_files import change_json
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import CNN, LayerNorm, Pooling
from transformers import BertConfig, BertModel

from mybert import cli
from mybert.common.errors import UserError
from mybert.common.settings import POOLING_MODES
from mybert.embedding.embedder import Embedder
from mybert.embedding.vector_files import read_vectors
from mybert.serving.checkpoint import ServedCheckpoint
from mybert.serving.settings import ServeSettings

TEXTS = ["She ate a green apple.", "", "Apple reported earnings, didn't it?", "word " * 60, "QUITE LOUD", "ok"]


@pytest.fixture(scope="module")
def bert(minilm_folder, tmp_path_factory):
    """A BERT of two small layers with MINILM's tokenizer."""
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    BertModel(BertConfig(**sizes, initializer_range=0.3)).save_pretrained(folder)
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(minilm_folder / name, folder)
    return folder


@pytest.fixture
def encoder(bert, tmp_path):
    """Saves a sentence encoder with the given modules after the BERT, and returns its folder."""

    def encoder(*modules, length=40, **settings):
        model = SentenceTransformer(modules=[Transformer(str(bert), max_seq_length=length), *modules], device="cpu")
        for name, value in settings.items():
            setattr(model, name, value)
        model.save(str(tmp_path / "encoder"))
        return tmp_path / "encoder"

    return encoder


def reference(folder, texts=TEXTS, **options) -> np.ndarray:
    return SentenceTransformer(str(folder), device="cpu").encode(texts, **options)


def difference(folder, **options) -> float:
    return float(np.abs(Embedder(str(folder), device="cpu").texts(TEXTS) - reference(folder, **options)).max())


@pytest.mark.parametrize("mode", [*POOLING_MODES, ("cls", "max"), ("mean", "weightedmean", "lasttoken")])
def test_every_pooling_is_that_of_sentence_transformers(encoder, mode):
    assert difference(encoder(Pooling(32, mode))) < 1e-5


@pytest.mark.parametrize("mode", POOLING_MODES)
def test_keys_of_older_folders_are_read(encoder, mode):
    file = encoder(Pooling(32, mode)) / "1_Pooling/config.json"
    keys = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    old = {f"pooling_mode_{key}": key.startswith(f"{mode}_to") or key == mode for key in keys}
    file.write_text(json.dumps({"word_embedding_dimension": 32, **old}))
    assert sum(old.values()) == 1
    assert difference(file.parents[1]) < 1e-5


@pytest.mark.parametrize("activation", [torch.nn.Tanh(), torch.nn.Identity(), torch.nn.GELU()])
def test_dense_layers_norms_and_normalisation_are_applied_in_order(encoder, activation):
    dense = Dense(32, 16, activation_function=activation), Dense(16, 8, bias=False)
    norm = LayerNorm(8)
    torch.nn.init.normal_(norm.norm.weight)
    folder = encoder(Pooling(32, "cls"), *dense, norm, Normalize())
    assert difference(folder) < 1e-5
    assert Embedder(str(folder), device="cpu").width == 8


def test_length_case_and_dimensions_follow_the_folder(encoder):
    folder = encoder(Pooling(32), length=16, truncate_dim=12)
    change_json(folder / "sentence_bert_config.json", do_lower_case=True)
    change_json(folder / "tokenizer_config.json", do_lower_case=False)
    assert difference(folder) < 1e-5
    embedder = Embedder(str(folder), device="cpu")
    embedder.texts(TEXTS)
    assert (embedder.max_length, embedder.truncated, embedder.width) == (16, 1, 12)


@pytest.mark.parametrize("pools_prompt", [True, False])
@pytest.mark.parametrize("mode", POOLING_MODES)
def test_prompts_are_those_of_the_folder(encoder, mode, pools_prompt):
    prompts = {"query": "find: ", "passage": "a passage says "}
    folder = encoder(Pooling(32, mode, include_prompt=pools_prompt), prompts=prompts, default_prompt_name="passage")
    assert difference(folder) < 1e-5
    embedder = Embedder(str(folder), device="cpu")
    for name in prompts:
        assert np.abs(embedder.texts(TEXTS, prompt_name=name) - reference(folder, prompt_name=name)).max() < 1e-5
    own = Embedder(str(folder), device="cpu", prompt="so: ").texts(TEXTS)
    assert np.abs(own - reference(folder, prompt="so: ")).max() < 1e-5
    with pytest.raises(UserError, match=r"--prompt-name: .*passage, query.* 'queri'"):
        embedder.texts(TEXTS, prompt_name="queri")


def test_an_encoder_in_a_folder_of_its_own_is_read(encoder):
    folder = encoder(Pooling(32, "max"))
    (folder / "0_Transformer").mkdir()
    for path in folder.iterdir():
        if path.is_file() and path.name not in ("modules.json", "config_sentence_transformers.json"):
            path.rename(folder / "0_Transformer" / path.name)
    entries = json.loads((folder / "modules.json").read_text())
    entries[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(entries))
    assert difference(folder) < 1e-5


def test_a_real_encoder_gives_the_same_vectors_also_of_long_texts(sentence_encoder_folder):
    texts = [*TEXTS, "the sea is deep and " * 100]
    found = Embedder(str(sentence_encoder_folder), device="cpu").texts(texts)
    assert np.abs(found - reference(sentence_encoder_folder, texts)).max() < 1e-5


def test_a_pooling_that_is_given_replaces_the_modules_and_is_said(encoder, tmp_path, capsys):
    folder = encoder(Pooling(32, "cls"), Normalize())
    (tmp_path / "t.txt").write_text("\n".join(text for text in TEXTS if text))
    words = [
        "embed",
        folder,
        tmp_path / "t.txt",
        "--output",
        tmp_path / "v.npy",
        "--pooling",
        "mean",
        "--device",
        "cpu",
    ]
    assert cli.main(list(map(str, words))) == 0
    assert "--pooling mean replaces the modules of" in capsys.readouterr().out
    ((found, _),) = read_vectors(tmp_path / "v.npy")
    change_json(folder / "1_Pooling/config.json", pooling_mode="mean")
    (folder / "modules.json").write_text(json.dumps(json.loads((folder / "modules.json").read_text())[:2]))
    assert np.abs(found - reference(folder, [text for text in TEXTS if text])).max() < 1e-5


def test_search_puts_the_prompt_of_queries_before_them(encoder, tmp_path):
    folder = encoder(Pooling(32, "mean"), prompts={"query": "find the text about ", "document": ""})
    texts = [text for text in TEXTS if text]
    (tmp_path / "t.txt").write_text("\n".join(texts))
    assert cli.main(["embed", str(folder), str(tmp_path / "t.txt"), "--output", str(tmp_path / "v.parquet")]) == 0
    command = ["search", str(tmp_path / "v.parquet"), "an apple", "--output", str(tmp_path / "found.jsonl")]
    assert cli.main(command) == 0
    rows = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    model = SentenceTransformer(str(folder), device="cpu")
    query, vectors = model.encode_query("an apple"), model.encode(texts)
    expected = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    assert [row["score"] for row in rows] == pytest.approx(sorted(expected, reverse=True)[:5], abs=1e-5)


def test_the_service_and_windows_use_the_modules_too(encoder):
    folder = encoder(Pooling(32, "cls"), Dense(32, 8), length=None)
    served = ServedCheckpoint(ServeSettings(model=str(folder), device="cpu"))
    found = np.stack(served.compute(served.token_ids(TEXTS), lambda _: None))
    assert np.abs(found - reference(folder)).max() < 1e-5
    windows = Embedder(str(folder), device="cpu", long_texts="window", max_length=20)
    assert windows.texts(TEXTS).shape == (len(TEXTS), 8) and windows.truncated == 0


def test_what_cannot_be_computed_is_refused_by_name_and_another_pooling_is_not(encoder):
    folder = encoder(CNN(32, 16), Pooling(48))
    embedder = Embedder(str(folder), device="cpu")
    with pytest.raises(UserError, match=r"CNN is not supported here; .*--pooling"):
        embedder.texts(TEXTS)
    assert embedder.texts(["ok"], "cls").shape == (1, 32)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "median"}, r"1_Pooling/config.json: pooling_mode is"),
        ("2_Dense/config.json", {"activation_function": "os.system"}, r"'os.system' is not one of torch.nn"),
        ("2_Dense/config.json", {"out_features": 9}, r"2_Dense.config.json: in_features and out_features are"),
        ("sentence_bert_config.json", {"max_seq_length": "long"}, r"max_seq_length is 'long'"),
        ("2_Dense/config.json", {"activation_function": "torch.nn.Linear"}, r"'torch.nn.Linear' is not one of"),
        ("config_sentence_transformers.json", {"prompts": ["a"]}, r"prompts must be an object"),
        ("config_sentence_transformers.json", {"default_prompt_name": ["a"]}, r"default_prompt_name is \['a'\]"),
        ("config_sentence_transformers.json", {"truncate_dim": "x"}, r"truncate_dim is 'x'"),
    ],
)
def test_damaged_settings_are_one_message(encoder, file, change, message):
    folder = encoder(Pooling(32), Dense(32, 8))
    change_json(folder / file, **change)
    with pytest.raises(UserError, match=message):
        Embedder(str(folder), device="cpu").texts(TEXTS)


def test_a_path_out_of_the_folder_is_refused(encoder):
    folder = encoder(Pooling(32))
    entries = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([entries[0], entries[1] | {"path": "../other"}]))
    with pytest.raises(UserError, match="leads out of the folder"):
        Embedder(str(folder), device="cpu").texts(TEXTS)
