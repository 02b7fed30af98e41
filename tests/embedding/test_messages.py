"""Messages of `mybert embed` and of searches in vectors: for each mistake, what its one line must say."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from json_files import change_json, write_lines
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from mybert import Embedder, UserError, cli


@pytest.fixture(scope="module")
def made(models, tmp_path_factory):
    """Models, texts and vectors that tests copy."""
    folder = tmp_path_factory.mktemp("made")
    for name in ("plain", "other", "spoilt", "listless", "tagger"):
        source = models("tagger" if name == "tagger" else "encoder")
        shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("*.py"))
    (folder / "listless/modules.json").write_text("7")
    change_json(folder / "other/config.json", layer_norm_eps=0.1)
    weights = load_file(folder / "plain/model.safetensors")
    spoilt = {name: value * torch.nan if "LayerNorm" in name else value for name, value in weights.items()}
    save_file(spoilt, folder / "spoilt/model.safetensors", {"format": "pt"})
    shutil.copytree(folder / "plain", folder / "export", ignore=shutil.ignore_patterns("*.safetensors"))
    (folder / "export/onnx").mkdir()
    (folder / "export/onnx/model.onnx").touch()
    first = Transformer(str(folder / "plain"), max_seq_length=40)
    encoder = SentenceTransformer(
        modules=[first, Pooling(32), Dense(32, 8)], prompts={"passage": "p: ", "query": "q: "}, device="cpu"
    )
    encoder.save(str(folder / "encoder"), create_model_card=False)
    CrossEncoder(str(models("regression")), device="cpu").save_pretrained(str(folder / "reranker"))
    write_texts(folder)
    write_vectors(folder)
    return folder


def write_texts(folder) -> None:
    (folder / "texts.txt").write_text("a a\n\nb b b b\n")
    (folder / "bytes.txt").write_bytes(b"good\nb\xe4d\n")
    (folder / "blank.txt").write_text("\n \n")
    (folder / "long.txt").write_text("a " * 63)
    (folder / "rows.jsonl").write_text('{"text": "a", "title": ["\\ud83d"]}\n')


def write_vectors(folder) -> None:
    texts = str(folder / "texts.txt")
    for name, words in (("v.npy", []), ("words.parquet", ["--pooling", "words"])):
        assert cli.main(["embed", str(folder / "plain"), texts, "--output", str(folder / name), *words]) == 0
    np.save(folder / "mine.npy", np.ones((3, 5), np.float32))
    pq.write_table(pa.table({"text": ["a"]}), folder / "a.parquet")
    (folder / "b.jsonl").write_text('{"vector": [1, 2], "text": "a"}\n{"vector": [1]}\n')
    (folder / "c.npy").write_bytes(b"no vectors")
    (folder / "d.jsonl").write_text("{broken\n")
    (folder / "e.jsonl").write_text('{"vector": 5, "text": "a"}\n')
    np.save(folder / "f.npy", np.ones(32, np.float32))
    holed = np.ones((10, 32), np.float32)
    holed[7:9, 3] = np.nan
    np.save(folder / "g.npy", holed)


OF_EMBED = [  # words of a command that writes new.npy, and message; " … " in a message stands for anything
    ("plain texts.txt --pooling words", ".npy cannot store the words"),
    ("plain texts.txt --pooling words --prompt a", "--prompt has no effect with --pooling words"),
    ("plain bytes.txt", "bytes.txt, line 2: not UTF-8"),
    ("plain blank.txt", "the inputs hold no text … ; check them and --text-column"),
    ("plain long.txt", "long.txt, line 1: more than 64 tokens (65; --long-texts window splits"),
    (
        "plain texts.txt --max-length 3 --errors skip",
        "hold no text (skipped: blank lines (1), more than 3 tokens (2)); check them",
    ),
    ("plain rows.jsonl", "rows.jsonl, line 1: another column cannot be stored ('\\ud83d' is half a surrogate pair"),
    (
        "plain texts.txt --pooling pooler --layers 1",
        "--layers has no effect with --pooling pooler; remove one of them",
    ),
    ("tagger texts.txt --pooling pooler", "tagger has no trained pooler; use mean or cls"),
    ("plain texts.txt --layers 3", "--layers: expected -3 to 2, found 3"),
    ("plain texts.txt --max-length 65", "--max-length 65: … has 64 positions"),
    (
        "plain texts.txt --max-length 10 --stride 8 --long-texts window",
        "--stride 8: expected less than the 8 tokens of a window's text",
    ),
    ("plain texts.txt --stride 8", "--stride has no effect without --long-texts window; add that or remove"),
    ("plain texts.txt --device cuda:99", "--device cuda:99 cannot be used"),
    ("plain texts.txt --device meta", "--device meta cannot be used"),
    ("plain texts.txt --dtype float8", "--dtype: expected float32 or bfloat16 or int8, found 'float8'"),
    (
        "spoilt texts.txt",
        "spoilt gives vectors with NaN or infinite values; … copy it again, or train it with a lower",
    ),
    ("listless texts.txt", "listless/modules.json is not a list of modules … ; restore it, or remove it"),
    ("export texts.txt", "export is an ONNX export; name the checkpoint that it was made from"),
    ("reranker texts.txt", "the model is a cross-encoder, which scores pairs"),
    ("encoder texts.txt --prompt-name queri", "--prompt-name: … passage, query … 'queri'"),
]
OF_SEARCH = [
    (
        f"v.npy cat {'word-' * 400}",
        "query 2: … tokens, more than 64; shorten it, or run … again with --long-texts window",
    ),
    ("v.npy cat -", "leave it or the other queries out"),
    ("v.npy cat --model other", "was made by … plain, and other has other files"),
    ("v.npy cat --model ./gone", "gone: no such folder"),
    ("v.npy cat --output texts.txt", "--overwrite"),
    ("mine.npy cat", "mine.npy has no manifest"),
    ("mine.npy cat --model plain", "has vectors of 5 dimensions, the model's have 32"),
    ("words.parquet cat", "vectors of words"),
    ("missing.npy cat", "missing.npy: no such file"),
    ("a.txt cat", ".npy or .parquet or .jsonl"),
    ("g.npy cat --model plain", "g.npy cannot be read as vectors (vector 7 has a NaN or infinite value)"),
    *(
        (f"{name} cat --model plain", f"{name} cannot be read as vectors")
        for name in ("a.parquet", "b.jsonl", "c.npy", "d.jsonl", "e.jsonl", "f.npy")
    ),
]
MISTAKES = [(f"embed {words} --output new.npy", message) for words, message in OF_EMBED]
MISTAKES += [(f"search {words}", message) for words, message in OF_SEARCH]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_a_mistake_is_one_line(made, tmp_path, assert_refused, words, message):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    assert_refused(words.split(), message)


POOLING, DENSE = "1_Pooling/config.json", "2_Dense/config.json"
LENGTH, PROMPTS = "sentence_bert_config.json", "config_sentence_transformers.json"
SETTINGS = [  # a file of a sentence encoder, its change, and message
    (LENGTH, {"processing_kwargs": {"text": {"max_length": 9}}}, "processing_kwargs"),
    (LENGTH, {"tokenizer_args": {"do_lower_case": False}}, "tokenizer_args"),
    (LENGTH, {"config_kwargs": {"num_hidden_layers": 1}}, "config_kwargs"),
    (LENGTH, {"transformer_task": "fill-mask"}, "transformer_task 'fill-mask'"),
    (LENGTH, {"max_seq_length": "long"}, "max_seq_length is 'long'"),
    (POOLING, {"pooling_mode": []}, "pooling_mode is"),
    (POOLING, {"pooling_mode": "median"}, f"{POOLING}: pooling_mode is"),
    (DENSE, {"module_output_name": "other"}, "module_output_name 'other'"),
    (DENSE, {"activation_function": "os.system"}, "'os.system' is not one of torch.nn"),
    (DENSE, {"activation_function": "torch.nn.Linear"}, "'torch.nn.Linear' is not one of"),
    (DENSE, {"out_features": 9}, "2_Dense: its weights do not fit config.json ( … size mismatch for linear.weight"),
    (PROMPTS, {"prompts": ["a"]}, "prompts must be an object"),
    (PROMPTS, {"default_prompt_name": ["a"]}, "default_prompt_name is ['a']"),
    (PROMPTS, {"default_prompt_name": "p"}, "default_prompt_name is 'p', expected one of document, passage, query"),
    (PROMPTS, {"truncate_dim": "x"}, "truncate_dim is 'x'"),
]


@pytest.mark.parametrize(("file", "change", "message"), SETTINGS)
def test_a_setting_that_is_damaged_or_changes_vectors_in_another_way(
    made, tmp_path, assert_refused, file, change, message
):
    shutil.copytree(made / "encoder", tmp_path / "encoder")
    change_json(tmp_path / "encoder" / file, **change)
    (tmp_path / "texts.txt").write_text("a\n")
    assert_refused(["embed", "encoder", "texts.txt", "--output", "new.npy"], message)


FIRST = [
    (
        {"path": path, "type": f"sentence_transformers.models.{kind}"},
        f"begins with sentence_transformers.models.{kind}, expected Transformer",
    )
    for kind in ("CLIPModel", "StaticEmbedding", "WordEmbeddings", "Router")
    for path in ("", "0_First")
]
MODULES = [  # the number of a module, what is changed, and message
    *((0, change, message) for change, message in FIRST),
    (1, {"type": "custom.Pooling"}, "custom.Pooling is not supported here"),
    (1, {"path": "../other"}, "leads out of the folder"),
    (2, {"type": "sentence_transformers.models.CNN"}, "CNN is not supported here; … --pooling"),
]


@pytest.mark.parametrize(
    "command",
    [
        "embed encoder texts.txt --output new.npy",
        "serve encoder --port 0",
        "explain encoder rows.jsonl --output new.html",
    ],
)
@pytest.mark.parametrize(("number", "change", "message"), MODULES)
def test_a_module_that_cannot_be_computed(made, tmp_path, assert_refused, command, number, change, message):
    shutil.copytree(made / "encoder", tmp_path / "encoder")
    (tmp_path / "texts.txt").write_text("a\n")
    write_lines(tmp_path / "rows.jsonl", [{"text": "a", "text_pair": "b"}])
    modules = json.loads((tmp_path / "encoder/modules.json").read_text())
    modules[number] |= change
    (tmp_path / "encoder/modules.json").write_text(json.dumps(modules))
    assert_refused(command.split(), message)


OF_PYTHON = [  # settings of an Embedder, arguments of `texts`, and message
    ({"layers": [1]}, (["a"], "pooler"), "no effect on the output of the pooler"),
    ({}, (["a", "a " * 63],), r"text 1: 65 tokens, more than 64; .*long_texts='window'"),
]


@pytest.mark.parametrize(("settings", "arguments", "message"), OF_PYTHON)
def test_an_argument_of_the_embedder_that_cannot_be_used(models, settings, arguments, message):
    embedder = Embedder(str(models("encoder")), device="cpu", **settings)
    with pytest.raises(UserError, match=message):
        embedder.texts(*arguments)
