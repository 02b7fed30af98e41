"""What a card can know, from the manifests that stages really write."""

import json

import datasets
import pytest

from mybert.common.manifest import read_manifest
from mybert.corpus.build import build_corpus
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.tokenizer_settings import TokenizerSettings
from mybert.corpus.train_tokenizer import build_tokenizer
from mybert.release.card.card_data import Facts
from mybert.release.card.manifest_chain import provenance

TEXTS = [f"The cat sat on mat {number}.\nThe dog ran in house {number}." for number in range(8)]


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Of a file, by a vocabulary of that file and of a data set of the Hub."""

    def load_dataset(*arguments, **options):
        return datasets.Dataset.from_dict({"text": TEXTS}).to_iterable_dataset()

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(TEXTS))
    tokenizer = str(tmp_path / "tokenizer")
    build_tokenizer(TokenizerSettings(["ann/stories:all:dev", str(text)], tokenizer, vocab_size=150, num_proc=1))
    settings = CorpusSettings([str(text)], tokenizer=tokenizer, output=str(tmp_path / "corpus"), num_proc=1)
    return build_corpus(settings)


def facts(folder) -> Facts:
    return Facts({}, 0, read_manifest(folder), {}, provenance(folder))


def test_a_data_set_of_the_hub_that_made_the_vocabulary_alone_is_among_those_that_were_read(corpus):
    assert facts(corpus).datasets() == ["ann/stories"]
    assert "ann" not in json.dumps(read_manifest(corpus)), "the corpus itself does not know"


def test_a_manifest_says_the_same_of_a_file_whichever_stage_read_it(corpus):
    of_corpus, of_tokenizer = read_manifest(corpus)["inputs"], read_manifest(corpus.parent / "tokenizer")["inputs"]
    assert of_tokenizer == {"input-0": {"path": "ann/stories:all:dev"}, "input-1": of_corpus["input-0"]}
    assert of_corpus["input-0"]["bytes"] == (corpus.parent / "text.txt").stat().st_size


def test_manifests_of_vocabularies_made_before_inputs_had_numbers_are_read(corpus):
    path = corpus.parent / "tokenizer" / "manifest.json"
    manifest = json.loads(path.read_text())
    text = manifest["inputs"]["input-1"]
    manifest["inputs"] = {text["path"]: {name: text[name] for name in ("path", "sha256")}, "ann/stories": {}, "-": {}}
    path.write_text(json.dumps(manifest))
    found = facts(corpus)
    assert "tokenizer" in found.manifests and found.datasets() == []
