"""Saved folders are data files that transformers reads, with the same ids, without this project."""

import copy
import json
import pickle
from pathlib import Path

import pytest
from tokenizers import AddedToken
from transformers import AutoTokenizer, BertTokenizer

from tokenization import MyBertTokenizer

TEXT = "Hello worlds, unsing [MASK] 中 É!"

LOAD = """
import json
from transformers import AutoTokenizer, dynamic_module_utils
dynamic_module_utils.TIME_OUT_REMOTE_CODE = 1  # seconds for the answer to a question
folder, text = sys.argv[1:]
for options in ({}, {"trust_remote_code": False}, {"trust_remote_code": True}):
    tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    print()  # ends the line of a question about remote code
    print(json.dumps([type(tokenizer).__name__, tokenizer(text, text)["input_ids"], tokenizer.mask_token_id]))
"""


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if "tok" in path.name or "vocab" in path.name}


def test_the_folder_holds_data_alone(tokenizer, tmp_path, pieces):
    saved = tokenizer.save_pretrained(tmp_path)
    assert set(files(tmp_path)) == {"vocab.txt", "tokenizer.json", "tokenizer_config.json"}
    assert sorted(saved) == sorted(str(path) for path in tmp_path.iterdir())
    assert (tmp_path / "vocab.txt").read_text(encoding="utf-8") == "".join(f"{piece}\n" for piece in pieces)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["tokenizer_class"] == "BertTokenizer"
    assert "auto_map" not in config
    assert not any(str(tmp_path) in str(value) for value in config.values())


@pytest.mark.parametrize("options", [{}, {"do_lower_case": False}, {"strip_accents": False, "model_max_length": 128}])
def test_every_reader_of_the_folder_gives_the_same_ids(pieces, tmp_path, options):
    tokenizer = MyBertTokenizer(pieces, **options)
    tokenizer.save_pretrained(tmp_path)
    for read in (MyBertTokenizer.from_pretrained, BertTokenizer.from_pretrained, AutoTokenizer.from_pretrained):
        loaded = read(tmp_path)
        assert loaded(TEXT, TEXT).data == tokenizer(TEXT, TEXT).data
        assert loaded.special_tokens_map == tokenizer.special_tokens_map
        assert loaded.model_max_length == tokenizer.model_max_length


def test_a_process_without_this_project_reads_the_folder_of_a_mybert_model(tokenizer, tmp_path, run_foreign):
    tokenizer.save_pretrained(tmp_path)
    config = {"model_type": "mybert", "auto_map": {"AutoConfig": "configuration_mybert.MyBertConfig"}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "configuration_mybert.py").write_text(
        "from transformers import PreTrainedConfig\n"
        "class MyBertConfig(PreTrainedConfig):\n    model_type = 'mybert'\n",
        encoding="utf-8",
    )
    lines = run_foreign(LOAD, tmp_path, TEXT)
    seen = [json.loads(line) for line in lines if line.startswith("[")]
    assert seen == [["BertTokenizer", tokenizer(TEXT, TEXT)["input_ids"], tokenizer.mask_token_id]] * 3


def test_saving_again_after_loading_changes_no_byte(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path / "a")
    MyBertTokenizer.from_pretrained(tmp_path / "a").save_pretrained(tmp_path / "b")
    MyBertTokenizer.from_pretrained(tmp_path / "b").save_pretrained(tmp_path / "c")
    assert files(tmp_path / "b") == files(tmp_path / "c")
    assert {n: c for n, c in files(tmp_path / "a").items() if "config" not in n} == {
        n: c for n, c in files(tmp_path / "b").items() if "config" not in n
    }


def test_the_last_call_leaves_no_trace_in_the_folder(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path / "before")
    tokenizer(TEXT, truncation=True, max_length=4, padding="max_length", split_special_tokens=True)
    tokenizer.save_pretrained(tmp_path / "after")
    assert files(tmp_path / "before") == files(tmp_path / "after")


def test_a_stock_checkpoint_gains_its_vocab_txt(minilm_folder, tmp_path):
    MyBertTokenizer.from_pretrained(minilm_folder).save_pretrained(tmp_path)
    assert (tmp_path / "vocab.txt").read_bytes() == (minilm_folder / "vocab.txt").read_bytes()


def test_added_words_match_whole_words_only_and_leave_no_stale_vocabulary(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    tokenizer.add_tokens(["covid-19", "worl", "中日", AddedToken("hel")])
    saved = tokenizer.save_pretrained(tmp_path)
    assert "vocab.txt" not in files(tmp_path) and all(Path(path).is_file() for path in saved)
    text = "hello covid-19, covid-19s world worl 大中日大"
    for read in (MyBertTokenizer.from_pretrained, AutoTokenizer.from_pretrained):
        assert read(tmp_path)(text).data == tokenizer(text).data
    ids = tokenizer(text)["input_ids"]
    words = ("covid-19", "worl", "中日", "hel", "world")
    assert [ids.count(tokenizer.convert_tokens_to_ids(word)) for word in words] == [1] * 5


def test_a_special_token_that_replaces_another_is_read_back(tokenizer, tmp_path):
    tokenizer.add_tokens(["covid"])
    tokenizer.add_special_tokens({"mask_token": "<m>"})
    tokenizer.save_pretrained(tmp_path)
    for read in (MyBertTokenizer.from_pretrained, AutoTokenizer.from_pretrained):
        loaded = read(tmp_path)
        assert loaded("hello <m> covid [MASK]").data == tokenizer("hello <m> covid [MASK]").data
        assert loaded.mask_token_id == tokenizer.mask_token_id == len(tokenizer) - 1


def test_training_anew_as_transformers_does_gives_a_tokenizer_of_this_class(tokenizer, tmp_path):
    trained = tokenizer.train_new_from_iterator([["banana bandana banana"]], 40)
    assert type(trained) is MyBertTokenizer
    trained.save_pretrained(tmp_path)
    assert MyBertTokenizer.from_pretrained(tmp_path)("banana").data == trained("banana").data


def test_copies_and_pickles_behave_the_same(tokenizer):
    for other in (copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        assert other(TEXT).data == tokenizer(TEXT).data
        assert other.plain_text_backend().encode(TEXT).ids == tokenizer.plain_text_backend().encode(TEXT).ids
