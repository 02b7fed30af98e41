"""Card data from the manifests that the stages write."""

import json

import datasets
import pytest

from mybert.artifacts.manifest import read_manifest
from mybert.corpus.build import build_corpus
from mybert.corpus.settings import CorpusSettings, TokenizerSettings
from mybert.corpus.train_tokenizer import build_tokenizer
from mybert.release.card.card_data import CardData
from mybert.release.card.sections import data_lines, quality_lines, result_tables, training_rows
from mybert.release.hub.public_records import manifest_chain

TEXTS = [f"The cat sat on mat {number}.\nThe dog ran in house {number}." for number in range(8)]


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """A corpus of a file, with a tokenizer trained on that file and on a data set of the Hub."""

    def load_dataset(*arguments, **options):
        return datasets.Dataset.from_dict({"text": TEXTS}).to_iterable_dataset()

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(TEXTS))
    tokenizer = str(tmp_path / "tokenizer")
    build_tokenizer(
        TokenizerSettings(["ann/stories:all:dev", str(text)], output=tokenizer, vocab_size=150, num_proc=1)
    )
    settings = CorpusSettings([str(text)], tokenizer=tokenizer, output=str(tmp_path / "corpus"), num_proc=1)
    return build_corpus(settings)


def card_data(folder) -> CardData:
    chain, gaps = manifest_chain(folder)
    assert not gaps
    return CardData({}, 0, read_manifest(folder), {}, chain)


def test_a_data_set_used_only_for_the_tokenizer_is_in_the_card(corpus):
    assert card_data(corpus).datasets() == ["ann/stories"]
    assert "ann" not in json.dumps(read_manifest(corpus)), "the manifest of the corpus does not name it"


def test_a_data_set_of_rows_without_labels_is_in_the_card():
    inputs = {"train": {"path": "own.csv", "sha256": "a" * 64}, "unlabelled": {"path": "ann/more:all:train"}}
    assert CardData({}, 0, {"stage": "finetune", "inputs": inputs}, {}, {}).datasets() == ["ann/more"]


def test_all_stages_describe_a_file_in_the_same_way(corpus):
    of_corpus, of_tokenizer = read_manifest(corpus)["inputs"], read_manifest(corpus.parent / "tokenizer")["inputs"]
    assert of_tokenizer == {"input-0": {"path": "ann/stories:all:dev"}, "input-1": of_corpus["input-0"]}
    assert of_corpus["input-0"]["bytes"] == (corpus.parent / "text.txt").stat().st_size


def test_the_card_of_a_student_names_its_teachers_and_what_they_learned_from():
    def of(stage: str, **inputs: str) -> dict:
        named = {name.replace("_", "-"): {"path": path, "sha256": "a" * 64} for name, path in inputs.items()}
        return {"stage": stage, "settings": {"deduplicate": True}, "inputs": named}

    student = of("finetune", model="small", train="own.csv", teacher="classifier")
    chain = {
        "model": of("distill", corpus="corpus", teacher="large"),
        "model/corpus": of("corpus", input_0="books.txt"),
        "model/teacher": of("pretrain", corpus="old"),
        "model/teacher/corpus": of("corpus", input_0="news.txt"),
        "teacher": of("finetune", model="adapted", train="labels.csv"),
        "teacher/model": of("adapt", input_0="papers.txt", replay_0="general.txt"),
    }
    lines = [line.partition(", SHA-256")[0] for line in data_lines(CardData({}, 0, student, {}, chain))]
    assert lines == [
        "teacher: classifier",
        "teacher: large",
        "books.txt",
        "for the teacher: news.txt",
        "for the teacher: labelled rows: labels.csv",
        "for the teacher: papers.txt",
        "for the teacher: general text, mixed in: general.txt",
    ]


def test_the_text_of_merged_models_is_listed_once():
    source = {"path": "books.txt", "sha256": "a" * 64}
    corpus = {"stage": "corpus", "inputs": {"input-0": source}, "counts": {"documents": 7, "sentences": 9}}
    chain = {f"model-{number}/model/corpus": corpus for number in range(3)}
    lines = data_lines(CardData({}, 0, {"stage": "merge"}, {}, chain))
    assert lines == [f"books.txt, SHA-256 {'a' * 16}…", "7 documents, 9 sentences"]


@pytest.mark.parametrize(
    ("exact", "near", "line"),
    [
        (False, None, "7 documents, 1 sentence; duplicates were not removed"),
        (True, None, "7 documents, 2 duplicate documents removed, 1 sentence"),
        (False, 0.8, "7 documents, 2 duplicate documents removed, 3 near duplicates removed, 1 sentence"),
    ],
)
def test_the_card_counts_the_duplicates_that_were_removed(exact, near, line):
    counts = {"documents": 7, "documents_duplicate": 2, "documents_near_duplicate": 3, "sentences": 1}
    corpus = {"stage": "corpus", "settings": {"deduplicate": exact, "deduplicate_near": near}, "counts": counts}
    assert data_lines(CardData({}, 0, {"stage": "pretrain"}, {}, {"corpus": corpus})) == [line]


@pytest.mark.parametrize(
    ("stage", "losses", "nsp", "masked_tokens", "next_sentences"),
    [
        ("pretrain", None, True, True, True),
        ("pretrain", None, False, True, False),
        ("adapt", None, True, True, False),
        ("distill", ["soft=5", "hard=2"], True, True, True),
        ("distill", ["soft=5", "hard=2"], False, True, False),
        ("distill", ["soft=5"], True, True, False),
        ("distill", ["relations=1"], True, False, False),
    ],
)
def test_the_card_shows_the_heads_that_were_trained(stage, losses, nsp, masked_tokens, next_sentences):
    manifest = {"stage": stage, "settings": {"losses": losses}}
    chain = {"corpus": {"stage": "corpus", "settings": {"nsp": nsp}}}
    if stage == "distill":  # whatever the teacher has learned
        chain["teacher/corpus"] = {"stage": "corpus", "settings": {"nsp": True}}
    trimmed = {"model": manifest} | {f"model/{name}": entry for name, entry in chain.items()}
    for own, inputs in ((manifest, chain), ({"stage": "trim"}, trimmed)):
        data = CardData({"architectures": ["MyBertForPreTraining"]}, 0, own, {}, inputs)
        assert (data.predicts_masked_tokens, data.predicts_next_sentences) == (masked_tokens, next_sentences)
        assert data.untrained_heads == [
            name
            for name, is_trained in (
                ("masked language modelling", masked_tokens),
                ("next sentence prediction", next_sentences),
            )
            if not is_trained
        ]


@pytest.mark.parametrize(("max_steps", "epochs"), [(-1, "4"), (100, None)])
def test_the_card_states_the_hyperparameters_of_the_best_run(max_steps, epochs):
    best = {"learning_rate": 3e-4, "batch_size": 16, "epochs": 4.0, "seed": 7, "steps": 100, "seconds": 12.5}
    arguments = {"learning_rate": 5e-5, "per_device_train_batch_size": 32, "seed": 42, "max_steps": max_steps}
    results = {"best": best, "training_arguments": arguments, "settings": {"model": "model"}}
    rows = dict(training_rows(CardData({}, 0, {"stage": "finetune"}, results, {})))
    names = ("batch size per device", "peak learning rate", "seed", "steps", "training time (seconds)")
    assert [rows[name] for name in names] == ["16", "0.0003", "7", "100", "12.5"]
    assert rows.get("epochs") == epochs


@pytest.mark.parametrize(("given", "trained"), [(None, 128), (64, 64), (512, 256)])
def test_a_retriever_reads_more_than_in_training_and_its_tables_name_bm25(given, trained):
    scores = {"metrics": {"ndcg@10": 0.5}}
    results = {"task": "retrieval", "settings": {"max_length": given}, "held_out": scores}
    data = CardData({}, 0, {"stage": "finetune"}, results, {}, tokenizer={"model_max_length": 256})
    assert data.max_length == 256 and dict(training_rows(data))["maximum sequence length"] == str(trained)
    data.results["task"] = "reranking"
    assert [title for title, *_ in result_tables(data)] == [
        "The held-out queries, mined from its documents, together with BM25"
    ]


def test_the_card_of_few_labels_names_its_method_and_cross_validation():
    labels = {"often": {"f1": 0.9, "true": 30}, "also": {"f1": 0.7, "true": 12}, "rare": {"f1": 0.1, "true": 3}}
    scores = {"metrics": {"accuracy": 0.8}, "rows": 45, "labels": labels}
    arguments = {
        "optim": "adamw_torch_fused",
        "lr_scheduler_type": "linear",
        "adam_epsilon": 1e-6,
        "weight_decay": 0.01,
    }
    results = {"metric": "accuracy", "validation": scores, "folds": {"seconds": 3.0}, "few_labels": True}
    data = CardData({}, 0, {"stage": "finetune"}, {**results, "training_arguments": arguments}, {})
    (line,) = quality_lines(data)
    assert line.startswith("In cross-validation of its training rows (45 rows): accuracy 0.8")
    assert line.endswith("Best label of those with 10 rows or more: often (F1 0.900); worst: also (F1 0.700)")
    ((title, *_),) = result_tables(data)
    assert title == "validation set (cross-validation of the training rows, 45 rows)"
    rows = dict(training_rows(data))
    assert rows["learning rate schedule"] == "one cycle" and rows["optimizer"].startswith("AdamW for contrastive")
    assert "Adam epsilon" not in rows and rows["weight decay"] == "0.01"
