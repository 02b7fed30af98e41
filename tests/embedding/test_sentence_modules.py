"""Sentence encoders: vectors are those of sentence-transformers, whatever their modules are."""

import functools
import json

import numpy as np
import onnxruntime
import pytest
import torch
from json_files import change_json, write_lines
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import CNN, LayerNorm, Pooling
from transformers import AutoTokenizer

from mybert import cli, quantize
from mybert.common.errors import UserError, warn_once
from mybert.embedding.embedder import Embedder
from mybert.embedding.vector_files import read_vectors
from mybert.explanation.explainer import Explainer
from mybert.inference.cpu.int8 import int8_obstacle
from mybert.inference.sentence_modules import read_sentence_modules
from mybert.release.convert.export import export
from mybert.release.settings import ExportSettings
from mybert.serving.served import open_served
from mybert.serving.settings import ServeSettings
from mybert.settings.shared import POOLING_MODES

TEXTS = ["She ate a green apple.", "", "Apple reported earnings, didn't it?", "word " * 60, "QUITE LOUD", "ok"]


@pytest.fixture(scope="module")
def save(tiny_bert):
    """A function that saves a sentence encoder with the given modules after the BERT, and returns its folder."""

    def save(folder, *modules, length=40, **settings):
        first = Transformer(str(tiny_bert), max_seq_length=length)
        model = SentenceTransformer(modules=[first, *modules], device="cpu")
        for name, value in settings.items():
            setattr(model, name, value)
        model.save(str(folder), create_model_card=False)
        return folder

    return save


@pytest.fixture
def encoder(save, tmp_path):
    return functools.partial(save, tmp_path / "encoder")


def reference(folder, texts=TEXTS, **options) -> np.ndarray:
    return SentenceTransformer(str(folder), device="cpu").encode(texts, **options)


def difference(folder, **options) -> float:
    return float(np.abs(Embedder(str(folder), device="cpu").texts(TEXTS) - reference(folder, **options)).max())


@pytest.mark.parametrize("mode", [*POOLING_MODES, ("cls", "max"), ("mean", "weightedmean", "lasttoken")])
def test_every_pooling_is_that_of_sentence_transformers_and_keys_of_older_folders_are_read(encoder, mode):
    folder = encoder(Pooling(32, mode))
    expected = reference(folder)
    assert np.abs(Embedder(str(folder), device="cpu").texts(TEXTS) - expected).max() < 1e-5
    keys = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    modes = {mode} if isinstance(mode, str) else {*mode}
    old = {f"pooling_mode_{key}": bool(modes & {key, key.rpartition("_to")[0]}) for key in keys}
    assert sum(old.values()) == len(modes)
    (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": 32, **old}))
    assert np.abs(Embedder(str(folder), device="cpu").texts(TEXTS) - expected).max() < 1e-5


def normed(width: int) -> LayerNorm:
    layer = LayerNorm(width)
    torch.nn.init.normal_(layer.norm.weight)
    return layer


def dense(*activations: torch.nn.Module, **settings) -> list[Dense]:
    return [Dense(32, 32, activation_function=activation, **settings) for activation in activations]


LENGTH, PROMPTS = "sentence_bert_config.json", "config_sentence_transformers.json"
LONG = {"prompts": {"long": "represent the text " * 4}, "default_prompt_name": "long", "length": 8}
SHORT = {"prompts": {"q": "query: "}, "default_prompt_name": "q"}
TWO = dense(torch.nn.Tanh(), torch.nn.GELU())
TRAINED = Dense(32, 8, use_residual=True, activation_function=torch.nn.PReLU(init=0.7))
SAME = {"model_args": {"trust_remote_code": True}, "unpad_inputs": False}
ENCODERS = {  # modules, settings, and changes of files
    "layers in order": ([Pooling(32, "cls"), *TWO, normed(32), Normalize()], {}, {}),
    "no activation and no bias": ([Pooling(32), *dense(torch.nn.Identity()), Dense(32, 8, bias=False)], {}, {}),
    "a residual": ([Pooling(32, "max"), *dense(torch.nn.Tanh(), use_residual=True)], {}, {}),
    "a trained activation": ([Pooling(32), TRAINED], {}, {}),
    "a prompt that fills the length": ([Pooling(32, POOLING_MODES, include_prompt=False)], LONG, {}),
    **{
        f"{name} is {value}": ([Pooling(32), Dense(32, 8, bias=False)], SHORT, {file: {name: value}})
        for name, file in (("include_prompt", "1_Pooling/config.json"), ("bias", "2_Dense/config.json"))
        for value in (0, None, False)
    },
    "an empty default prompt": ([Pooling(32)], {}, {PROMPTS: {"prompts": {"q": None}, "default_prompt_name": "q"}}),
    "a prompt of every encoder": ([Pooling(32)], {}, {PROMPTS: {"prompts": {}, "default_prompt_name": "query"}}),
    "settings that change no vector": ([Pooling(32), Dense(32, 8)], {}, {LENGTH: SAME}),
}


@pytest.mark.parametrize(("modules", "settings", "changes"), ENCODERS.values(), ids=ENCODERS)
def test_vectors_are_those_of_sentence_transformers(encoder, modules, settings, changes):
    folder = encoder(*modules, **settings)
    for file, change in changes.items():
        change_json(folder / file, **change)
    assert difference(folder) < 1e-5


def test_length_case_and_dimensions_follow_the_folder(encoder):
    folder = encoder(Pooling(32), length=16, truncate_dim=12)
    change_json(folder / "sentence_bert_config.json", do_lower_case=True)
    change_json(folder / "tokenizer_config.json", do_lower_case=False)
    assert difference(folder) < 1e-5
    embedder = Embedder(str(folder), device="cpu")
    embedder.texts(TEXTS)
    assert (embedder.max_length, embedder.truncated, embedder.width) == (16, 1, 12)


@pytest.mark.parametrize(("own", "kind"), [(16, "roberta"), (64, "bert")])
def test_the_length_of_the_encoder_replaces_that_of_the_tokenizer_and_the_end_is_kept_if_it_says_so(
    encoder, own, kind
):
    folder = encoder(Pooling(32), length=40)
    change_json(folder / "sentence_bert_config.json", max_seq_length=own)
    (folder / "sentence_bert_config.json").rename(folder / f"sentence_{kind}_config.json")
    change_json(folder / "tokenizer_config.json", truncation_side="left")
    texts = [" ".join(f"tree {number}" for number in range(50)), *TEXTS]
    embedder = Embedder(str(folder), device="cpu")
    assert np.abs(embedder.texts(texts) - reference(folder, texts)).max() < 1e-5
    served = open_served(ServeSettings(model=str(folder), device="cpu"))
    cut = [embedder.cut(ids) for ids in served.token_ids(texts)]
    assert np.abs(np.stack(served.compute(cut, lambda _: None)) - reference(folder, texts)).max() < 1e-5


@pytest.mark.parametrize("is_pooled", [True, False])
def test_the_special_tokens_in_a_prompt_are_tokens(encoder, is_pooled):
    prompts = ["query [SEP] ", "[MASK]query[SEP]", "[CLS] [UNK] a [PAD] query: ", "[sep] Query: ", "   "]
    names = {f"{number}": prompt for number, prompt in enumerate(prompts)}
    folder = encoder(Pooling(32, include_prompt=is_pooled), prompts=names, default_prompt_name="0")
    for change in ({}, {"do_lower_case": True}):
        change_json(folder / "sentence_bert_config.json", **change)
        check_prompts(folder, {}, *({"prompt_name": name} for name in names))


def check_prompts(folder, *given: dict) -> None:
    """Compares vectors with prompts that are given as arguments."""
    embedder, model = Embedder(str(folder), device="cpu"), SentenceTransformer(str(folder), device="cpu")
    for words in given:
        assert np.abs(embedder.texts(TEXTS, **words) - model.encode(TEXTS, **words)).max() < 1e-5, words


def test_similarities_are_not_explained_if_the_texts_are_changed_first(encoder):
    folder = encoder(Pooling(32), prompts={"query": "find: "}, default_prompt_name="query")
    with pytest.raises(UserError, match="changes texts first"):
        Explainer(str(folder), device="cpu")


@pytest.mark.parametrize(("mode", "pools_prompt"), [("mean", True), (POOLING_MODES, False)])
def test_prompts_are_those_of_the_folder(encoder, mode, pools_prompt):
    prompts = {"query": "find: ", "passage": "a passage says "}
    folder = encoder(Pooling(32, mode, include_prompt=pools_prompt), prompts=prompts, default_prompt_name="passage")
    check_prompts(folder, {}, *({"prompt_name": name} for name in prompts))
    embedder = Embedder(str(folder), device="cpu", prompt="so: ")
    assert np.abs(embedder.texts(TEXTS) - reference(folder, prompt="so: ")).max() < 1e-5
    named = embedder.texts(TEXTS, prompt_name="query")
    assert np.abs(named - reference(folder, prompt="find: ")).max() < 1e-5


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


def test_a_real_encoder_gives_the_same_vectors_also_of_long_texts(minilm_folder):
    texts = [*TEXTS, "the sea is deep and " * 100]
    found = Embedder(str(minilm_folder), device="cpu").texts(texts)
    assert np.abs(found - reference(minilm_folder, texts)).max() < 1e-5


def test_a_pooling_that_is_given_replaces_the_modules_and_is_said(encoder, tmp_path, capsys):
    folder = encoder(Pooling(32, "cls"), Normalize())
    (tmp_path / "t.txt").write_text("\n".join(text for text in TEXTS if text))
    paths = [str(path) for path in (folder, tmp_path / "t.txt")]
    assert cli.main(["embed", *paths, "--output", str(tmp_path / "v.npy"), "--pooling", "mean"]) == 0
    assert "--pooling mean replaces the modules of" in capsys.readouterr().out
    ((found, _),) = read_vectors(tmp_path / "v.npy")
    change_json(folder / "1_Pooling/config.json", pooling_mode="mean")
    (folder / "modules.json").write_text(json.dumps(json.loads((folder / "modules.json").read_text())[:2]))
    assert np.abs(found - reference(folder, [text for text in TEXTS if text])).max() < 1e-5


@pytest.mark.parametrize("name", ["document", "corpus"])
def test_search_asks_for_vectors_with_the_prompt_of_documents(encoder, tmp_path, caplog, name):
    folder, texts = encoder(Pooling(32, "cls"), prompts={"query": "find: ", name: "a text: "}), ["red apple", "sea"]
    (tmp_path / "t.txt").write_text("\n".join(texts))
    model = SentenceTransformer(str(folder), device="cpu")
    for words, vectors in (
        ((), model.encode(texts)),
        (("--prompt-name", name), model.encode(texts, prompt_name=name)),
    ):
        target, scores = tmp_path / f"{len(words)}.jsonl", tmp_path / f"found{len(words)}.jsonl"
        assert cli.main(["embed", str(folder), str(tmp_path / "t.txt"), "--output", str(target), *words]) == 0
        caplog.clear()
        assert cli.main(["search", str(target), "an apple", "--output", str(scores)]) == 0
        assert (f"made without the prompt '{name}'" in caplog.text) == (not words)
        expected = model.similarity(model.encode_query("an apple"), vectors)[0]
        found = {row["text"]: row["score"] for row in map(json.loads, scores.read_text().splitlines())}
        assert [found[text] for text in texts] == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.mark.parametrize("layers", [(), (Normalize(),)])
def test_another_order_than_that_of_the_encoder_is_said(encoder, tmp_path, caplog, layers):
    folder = encoder(Pooling(32, "cls"), *layers)
    (tmp_path / "t.txt").write_text("red apple\nsea")
    for similarity in ("cosine", "dot", "euclidean", "manhattan"):
        change_json(folder / "config_sentence_transformers.json", similarity_fn_name=similarity)
        vectors = str(tmp_path / f"{similarity}.npy")
        assert cli.main(["embed", str(folder), str(tmp_path / "t.txt"), "--output", vectors]) == 0
        index = ["index", str(folder), str(tmp_path / "t.txt"), "--overwrite", "--output", str(tmp_path / "index")]
        same = similarity == "cosine" or (layers and similarity != "manhattan")
        for words in (["search", vectors, "an apple"], index):
            warn_once.cache_clear()
            caplog.clear()
            assert cli.main(words) == 0
            assert (f"compares texts by '{similarity}'" in caplog.text) == (not same)


@pytest.mark.skipif(int8_obstacle() is not None, reason=str(int8_obstacle()))
def test_an_int8_copy_keeps_the_modules(encoder, tmp_path):
    folder = encoder(Pooling(32, ("cls", "max")), Dense(64, 16), Normalize())
    texts = write_lines(tmp_path / "t.jsonl", [{"text": text} for text in TEXTS if text])
    quantize(model=str(folder), texts=[str(texts)], output=str(tmp_path / "int8"))
    found = Embedder(str(tmp_path / "int8"), device="cpu").texts(TEXTS)
    model = SentenceTransformer(str(tmp_path / "int8"), device="cpu", trust_remote_code=True)
    assert np.abs(found - model.encode(TEXTS, batch_size=1)).max() < 1e-4
    cosines = (found * reference(folder)).sum(1)
    assert cosines.min() > 0.98 and np.abs(found - reference(folder)).max() > 1e-5


def test_an_onnx_copy_keeps_the_modules(encoder, tmp_path):
    folder, copied = encoder(Pooling(32, "cls"), Dense(32, 8), Normalize()), tmp_path / "onnx"
    export(ExportSettings(model=str(folder), output=str(copied)))
    session = onnxruntime.InferenceSession(copied / "onnx" / "model.onnx")
    tokenizer = AutoTokenizer.from_pretrained(copied)
    modules = read_sentence_modules(copied)
    texts = [text for text in TEXTS if text]
    batch = tokenizer(texts, padding=True, truncation=True, max_length=modules.max_length, return_tensors="np")
    states = session.run(["last_hidden_state"], {name: batch[name] for name in batch})[0]
    with torch.inference_mode():
        found = modules.apply(torch.from_numpy(states[:, 0])).numpy()
    assert modules.poolings == ("cls",) and np.abs(found - reference(folder, texts)).max() < 1e-4


def test_the_service_and_windows_use_the_modules_too(encoder):
    folder = encoder(Pooling(32, "cls"), Dense(32, 8), length=None)
    served = open_served(ServeSettings(model=str(folder), device="cpu"))
    found = np.stack(served.compute(served.token_ids(TEXTS), lambda _: None))
    assert np.abs(found - reference(folder)).max() < 1e-5
    windows = Embedder(str(folder), device="cpu", long_texts="window", max_length=20)
    assert windows.texts(TEXTS).shape == (len(TEXTS), 8) and windows.truncated == 0


def test_modules_that_cannot_be_computed_can_be_replaced_by_a_pooling(encoder):
    folder = encoder(CNN(32, 16), Pooling(48))
    embedder = Embedder(str(folder), device="cpu")
    with pytest.raises(UserError, match="CNN"):
        embedder.texts(TEXTS)
    assert embedder.texts(["ok"], "cls").shape == (1, 32)
    assert open_served(ServeSettings(model=str(folder), device="cpu", pooling="cls"))
