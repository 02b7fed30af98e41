"""The model card: metadata that the Hub accepts, recorded facts, runnable examples, and escaping of names."""

import hashlib
import json
import re
import shlex
import shutil
from pathlib import Path

import httpx
import pytest
import torch
import yaml
from hub_protocol import MAIN, File
from hub_server import REPO
from huggingface_hub import ModelCard, ModelCardData
from hypothesis import given
from hypothesis import strategies as st
from json_files import write_lines
from markdown_it import MarkdownIt
from sentence_transformers import CrossEncoder
from transformers import AutoTokenizer

import modeling_mybert
import mybert
from modeling_mybert import AUTO_MAP
from mybert.artifacts.manifest import fingerprint, write_json
from mybert.common.machine import hardware
from mybert.finetuning.arguments import FinetuningArguments
from mybert.finetuning.run import finetune
from mybert.finetuning.settings import FinetuneSettings
from mybert.release.card.markdown_escaping import in_markdown, in_metadata
from mybert.release.card.model_card import EXAMPLES, widget, write_card
from mybert.release.hub.bundle import Bundle, make_bundle
from mybert.release.hub.bundle_checks import read_object
from mybert.release.settings import PushSettings

HEADS = sorted({name.split(".")[1] for name in AUTO_MAP.values()} - {"MyBertConfig", "MyBertLMHeadModel"})


def card_of(checkpoint: Path, **settings) -> ModelCard:
    """The card of a checkpoint, as saved in its bundle."""
    settings = PushSettings(str(checkpoint), REPO, **settings)
    folder = checkpoint.parent / f"bundle of {checkpoint.name}"
    shutil.rmtree(folder, ignore_errors=True)
    write_card(make_bundle(settings, folder), settings, "v1", "Checked.")
    return ModelCard.load(folder / "README.md")


@pytest.fixture(scope="module")
def card(trained, tmp_path_factory) -> ModelCard:
    """The card of `trained`."""
    checkpoint = Path(shutil.copytree(trained, tmp_path_factory.mktemp("card") / "checkpoint"))
    return card_of(checkpoint, license="apache-2.0", language=["en", "de"])


def validate(card: ModelCard, hub) -> None:
    """The Hub's check of the metadata. `ModelCard.validate` of huggingface_hub 1.17 always asks huggingface.co."""
    body = {"repoType": "model", "content": str(card)}
    answer = httpx.post(f"{hub.url}/api/validate-yaml", json=body)
    assert answer.status_code == 200, answer.text


def edit(path: Path, change) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def test_the_hub_accepts_the_metadata(card, hub):
    validate(card, hub)
    data = card.data.to_dict()
    assert data["library_name"] == "transformers" and data["pipeline_tag"] == "fill-mask"
    assert data["license"] == "apache-2.0" and data["language"] == ["en", "de"]
    assert set(data["tags"]) == {"mybert", "bert"}


def test_the_examples_are_in_the_language_of_the_model_or_those_of_the_user(card, checkpoint):
    german = card_of(checkpoint, language=["de", "en"])
    assert german.data.widget == [{"text": "Die Datei konnte nicht [MASK] werden."}]
    assert "Die Datei konnte nicht {tokenizer.mask_token} werden." in german.text and "The file" not in german.text
    assert card.data.widget == [{"text": "The file could not be [MASK]."}]
    unknown = card_of(checkpoint, language=["fi"])
    assert "widget" not in unknown.data.to_dict() and "The file could not be" in unknown.text
    for language, found in EXAMPLES.items():
        assert found.keys() == EXAMPLES["en"].keys() and "{mask}" in found["mask"], language
        assert widget("question-answering", [language], "[MASK]")[0].keys() == {"text", "context"}
    modeling_mybert.MyBertForSequenceClassification.from_pretrained(checkpoint).save_pretrained(checkpoint)
    made = card_of(checkpoint, language=["fi"], example=["Hyvä elokuva.", "Huono | elokuva."])
    assert made.data.widget == [{"text": "Hyvä elokuva."}, {"text": "Huono | elokuva."}]
    assert "print(pipe(['Hyvä elokuva.', 'Huono | elokuva.']))" in made.text and "Ada lives" not in made.text


def test_the_example_of_a_classifier_of_pairs_is_a_pair(models, tmp_path):
    card = card_of(Path(shutil.copytree(models("pairs"), tmp_path / "pairs")), example=["a?", "b", "c"])
    assert "Classify pairs of texts:" in card.text and '{"inputs": [{"text": "a?", "text_pair": "b"}' in card.text
    assert "print(pipe([{'text': 'a?', 'text_pair': 'b'}, {'text': 'a?', 'text_pair': 'c'}]))" in card.text


def test_the_results_are_those_of_results_json(card, trained):
    results = json.loads((trained / "results.json").read_text())
    metrics = results["metrics"]
    assert {(r.task_type, r.metric_type): r.metric_value for r in card.data.eval_results} == {
        ("fill-mask", "accuracy"): metrics["mlm_accuracy"],
        ("fill-mask", "perplexity"): metrics["perplexity"],
        ("text-classification", "accuracy"): metrics["nsp_accuracy"],
    }
    for name in ("mlm_accuracy", "nsp_accuracy"):
        low, high = results[f"{name}_interval_95"]
        assert low <= metrics[name] <= high
        assert f"| {name.replace('_', ' ')} | {metrics[name]:.4g} | {low:.4g} to {high:.4g} |" in card.text


def test_recorded_facts_are_in_the_card(card, checkpoint):
    folder = Path(json.loads((checkpoint / "manifest.json").read_text())["settings"]["corpus"])
    corpus = json.loads((folder / "manifest.json").read_text())
    source = corpus["inputs"]["input-0"]
    named = f"- books.txt, {source['bytes']:,} bytes, SHA-256 {source['sha256'][:16]}"
    assert named in card_of(checkpoint, name_sources=True).text
    for words in (
        f"- a local source, {source['bytes']:,} bytes, SHA-256 ",
        f"{corpus['counts']['documents']} documents",
        f"{corpus['counts']['tokens']:,} tokens of text",
        *("| peak learning rate | 0.0001 |", "| seed | 42 |", "| initial weights | new, random |"),
        "torch " + torch.__version__.split("+")[0],
        f"| hardware | {in_markdown(hardware())} |",
        *("| training time (seconds) | ", "| floating-point operations | ", "| tokens seen | "),
        *("(training_curves.png)", "| maximum sequence length | 32 |"),  # the max_length of the corpus
        "trained on sequences of at most 32 tokens",
        "accepts 512 tokens, but this training used only the first 32 positions",
        "tokenizer_kwargs={'truncation': True}",
    ):
        assert words in card.text, words
    assert "duplicate documents removed" not in card.text, "the corpus was built without deduplication"
    calls = re.findall(r"tokenizer\(.*\)", card.text)
    assert calls and all("truncation=True" in call for call in calls)


def test_unknown_facts_are_left_out(checkpoint):
    for name in ("results.json", "manifest.json", "training_curves.png"):
        (checkpoint / name).unlink()
    made = card_of(checkpoint)
    assert not {"license", "language", "base_model", "datasets", "model-index", "metrics"} & made.data.to_dict().keys()
    assert not re.search(r"## Training|## Evaluation|!\[|None|null|unknown|with MyBERT|It was|sequences", made.text)
    assert "Its tokenizer truncates texts to 32 tokens." in made.text


@pytest.mark.parametrize(("stage", "verb"), [("trim", "trimmed"), ("quantize", "quantised"), ("merge", "merged")])
def test_the_card_of_a_converted_model_states_no_training_that_the_manifests_lack(checkpoint, stage, verb):
    (checkpoint / "results.json").unlink()
    write_json(checkpoint / "manifest.json", {"stage": stage, "inputs": {"model": {"path": "ann/bert"}}})
    text = card_of(checkpoint).text
    assert f"It was {verb} with MyBERT." in text
    assert not re.search(r"trained with MyBERT|trained on|sequence length|## Training|this training", text)


def test_the_card_of_a_trimmed_model_states_the_training_of_its_parent(checkpoint, trained):
    inputs = {"model": {"path": str(trained), "sha256": fingerprint(trained / "manifest.json")}}
    write_json(checkpoint / "manifest.json", {"stage": "trim", "inputs": inputs})
    assert "trained on sequences of at most 32 tokens" in card_of(checkpoint).text


def test_models_and_data_sets_of_the_hub_are_in_the_metadata(checkpoint):
    corpus = Path(json.loads((checkpoint / "manifest.json").read_text())["settings"]["corpus"])
    chain = Path(shutil.copytree(corpus, checkpoint.parent / "corpus"))
    edit(chain / "manifest.json", lambda m: m["inputs"].update({"input-0": {"path": "ann/stories:all:train"}}))
    sha256 = hashlib.sha256((chain / "manifest.json").read_bytes()).hexdigest()
    inputs = {"corpus": {"path": str(chain), "sha256": sha256}, "init_from": {"path": "ann/bert"}}
    edit(checkpoint / "manifest.json", lambda m: m.update(inputs=inputs))
    data = card_of(checkpoint).data
    assert data.datasets == ["ann/stories"] and data.base_model == "ann/bert"


LABELS = ["yes", "null", "1", "- x: y", "<b>bold</b> | [a](http://e.example)\n---\nlicense: mit"]


def test_a_fine_tuned_model_keeps_odd_labels_and_records_its_training_and_results(trained, tmp_path, hub):
    rows = [{"text": f"the cat sat {i}", "label": LABELS[i % len(LABELS)]} for i in range(20)]
    names = {name: str(write_lines(tmp_path / f"{name}.jsonl", rows)) for name in ("train", "validation")}
    classifier = tmp_path / "classifier"
    words = {"task": "text-classification", "model": str(trained), "output": str(classifier), "max_length": 16}
    finetune(
        FinetuneSettings(**words, **names),
        FinetuningArguments(str(classifier), num_train_epochs=1, use_cpu=True, disable_tqdm=True),
    )
    training = json.loads((classifier / "manifest.json").read_text())["training"]
    tokens = len(rows) * 8  # [CLS] the cat sat, the number in one or two tokens, [SEP]
    assert 0.5 * tokens < training["tokens_seen"] < 2 * tokens
    assert training["steps"] == 1 and training["seconds"] > 0 and training["flops"] > 0
    made = card_of(classifier)
    validate(made, hub)
    config = json.loads((tmp_path / "bundle of classifier" / "config.json").read_text())
    assert sorted(config["id2label"].values()) == sorted(LABELS)
    assert "license" not in made.data.to_dict() and "<b>" not in made.text and "Labels: " in made.text
    found = json.loads((classifier / "results.json").read_text())["validation"]
    shown = {(one.task_type, one.metric_type): one.metric_value for one in made.data.eval_results}
    assert made.data.pipeline_tag == "text-classification"
    assert shown["text-classification", "accuracy"] == found["metrics"]["accuracy"]
    low, high = found["intervals_95"]["accuracy"]
    row = f"| accuracy | {found['metrics']['accuracy']:.4g} | {low:.4g} to {high:.4g} |"
    for words in (
        f"{row} {found['constant_baselines']['accuracy']:.4g} |",
        *("train: 20 rows of a local source", "- a local source, ", "| initial weights | a local checkpoint |"),
        *("| tokens seen | ", "| hardware | ", "| steps | 1 |"),
    ):
        assert words in made.text, words
    assert "train: 20 rows of train.jsonl" in card_of(classifier, name_sources=True).text


EVIL = [
    "x\n---\nlicense: mit\n---\n# Mine",
    "a: b\n- c\n'\"{}[]&*!|>%@`",
    "<script>alert(1)</script><img src=x onerror=y>",
    "[click](javascript:alert(1)) ![x](http://evil.example/p.png)",
    "| a | b |\n| --- | --- |\n```python\nimport os\n```",
    "{{ 7 * 7 }} {% raw %}",
    "https://evil.example www.evil.example *b* _i_ ~~s~~ # h",
    "a\x00b\x1b[31mc\u202ed",
]


def test_a_name_cannot_change_the_structure_and_the_metadata_of_the_card(checkpoint):
    results, manifest = checkpoint / "results.json", checkpoint / "manifest.json"

    def insert(name: str) -> ModelCard:
        edit(results, lambda r: r.update(data={"train": {"rows": 1, "source": name}}))
        edit(results, lambda r: r["training_arguments"].update(optim=name))
        edit(results, lambda r: r["metrics"].update({name: 0.5}))
        edit(manifest, lambda m: m["versions"].update({name: name}))
        edit(manifest, lambda m: m["inputs"].update(init_from={"path": name}))
        made = card_of(checkpoint)
        edit(results, lambda r: r["metrics"].pop(name))
        edit(manifest, lambda m: m["versions"].pop(name))
        return made

    plain = insert("x")
    for evil in EVIL:
        made = insert(evil)
        assert made.data.to_dict() == plain.data.to_dict() | {"base_model": in_metadata(evil)}
        assert blocks(made.text) == blocks(plain.text), "the same headings, lists, tables, links, images, code, HTML"


def blocks(text: str) -> list[str]:
    """The types of Markdown elements in a text, without the words."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    inside = [
        child.type for token in tokens for child in token.children or () if child.type not in ("text", "text_special")
    ]
    return [token.type for token in tokens] + inside


@given(st.text())
def test_any_text_is_one_paragraph_of_words(text):
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(f"before {in_markdown(text)} after")
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    assert {child.type for child in tokens[1].children} <= {"text", "text_special"}


@given(st.text())
def test_any_text_survives_the_metadata(text):
    data = ModelCardData(base_model=in_metadata(text) or "x", tags=["a"])
    card = ModelCard(f"---\n{data.to_yaml()}\n---\n\nbody")
    assert yaml.safe_load(data.to_yaml())["tags"] == ["a"]
    assert card.data.base_model == (in_metadata(text) or "x") and card.text.strip() == "body"


RUN_BLOCKS = """
import json, sys, torch
torch.manual_seed(0)
for name, block in json.loads(open(sys.argv[1]).read()):
    try:
        exec(compile(block, name, "exec"), {})
    except BaseException as error:
        print(json.dumps(f"{name}: {type(error).__name__}: {error}"))
        break
else:
    print(json.dumps("all ran"))
"""


@pytest.fixture(scope="module")
def search_models(trained, tmp_path_factory) -> dict[str, Path]:
    """A retriever and a reranker of a few rows."""
    folder = tmp_path_factory.mktemp("search models")
    names = ("ada", "bo", "cy", "dan")
    rows = [{"query": f"where is {name}", "positive": f"{name} is in the north"} for name in names]
    train = [str(write_lines(folder / "rows.jsonl", rows))]
    found = {task: folder / task for task in ("retrieval", "reranking")}
    for task, output in found.items():
        steps = {"max_steps": 1, "per_device_train_batch_size": 2}
        mybert.finetune(task=task, model=str(trained), train=train, output=str(output), **steps)
    return found


def test_the_card_of_a_search_model_is_one_of_sentence_transformers(search_models, hub, tmp_path):
    for task, hub_task in (("retrieval", "sentence-similarity"), ("reranking", "text-ranking")):
        folder = Path(shutil.copytree(search_models[task], tmp_path / task))
        card, results = card_of(folder, license="mit", language=["en"]), read_object(folder / "results.json")
        validate(card, hub)
        assert (card.data.library_name, card.data.pipeline_tag) == ("sentence-transformers", hub_task)
        entry = {result.metric_type: result.metric_value for result in card.data.eval_results}
        assert entry == results["held_out"]["metrics"]
        assert f"| {in_markdown(results['held_out']['metrics']['mrr@10'])} |" in card.text
        assert "1 held-out query" in card.text and "3 training pairs" in card.text
        assert "without a trained head" not in card.text and "Classify" not in card.text
    widget_of = widget("sentence-similarity", None, "", ["a query", "a passage", "another"])
    assert widget_of == [{"source_sentence": "a query", "sentences": ["a passage", "another"]}]


def test_a_query_in_the_shell_commands_is_one_word_of_the_shell(search_models):
    query = 'what\'s "this" `id` $HOME?\n```'
    for folder in search_models.values():
        line = next(
            line for line in card_of(folder, example=[query, "a"]).text.splitlines() if "mybert search" in line
        )
        assert shlex.split(line)[3] == " ".join(query.split())


def test_a_cross_encoder_with_several_scores_is_a_classifier(search_models, tmp_path):
    CrossEncoder(str(search_models["retrieval"]), num_labels=3).save_pretrained(str(tmp_path / "three"))
    card = card_of(tmp_path / "three")
    assert card.data.pipeline_tag == "text-classification" and ".rank(" not in card.text


def test_the_card_of_a_retriever_says_what_its_settings_and_results_say(search_models, tmp_path):
    folder = Path(shutil.copytree(search_models["retrieval"], tmp_path / "retriever"))
    edit(folder / "config_sentence_transformers.json", lambda settings: settings.update(similarity_fn_name="dot"))
    edit(folder / "results.json", lambda results: results["pairs"].update(held_out_queries="1\n# [Title](x)"))
    edit(folder / "results.json", lambda results: results["best"].update(steps=0))  # documents alone
    text = card_of(folder).text
    assert "by their dot product" in text and "by their cosine" not in text
    assert "On the held-out queries: " in text and "Title" not in text
    assert "Its tokenizer truncates texts to" in text and "It was trained on sequences" not in text


def test_every_python_example_of_every_head_runs_also_on_long_texts(
    hub, checkpoint, search_models, clean_process, tmp_path
):
    blocks, long = [], "long " * 200
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    assert len(tokenizer.tokenize(long)) > 512, "the premise: more than the model has positions"
    for head in HEADS:
        getattr(modeling_mybert, head).from_pretrained(checkpoint).save_pretrained(tmp_path / head)
        tokenizer.save_pretrained(tmp_path / head)
    for task, folder in search_models.items():
        shutil.copytree(folder, tmp_path / task)
    for head in (*HEADS, *search_models):
        folder, name = tmp_path / head, f"alice/{head.lower()}"
        card = write_card(Bundle(folder, folder), PushSettings(str(folder), name), "v1", "Checked.")
        repo = hub.new_repo(name)
        paths = [path for path in folder.rglob("*") if path.is_file()]
        files = {path.relative_to(folder).as_posix(): File(path.read_bytes()) for path in paths}
        repo.refs["refs/tags/v1"] = repo.commit(MAIN, files, "all")
        found = re.findall(r"```python\n(.*?)```", card.text, re.S)
        assert found, head
        end = r"(\bopened(?=\.)|in Rome(?=\.')|Open the file|read it|Oslo|mask_token\})"
        found += [re.sub(end, rf"\1 {long}", block) for block in found]
        blocks += [(f"{head} {number}", block) for number, block in enumerate(found, 1)]
    (tmp_path / "blocks.json").write_text(json.dumps(blocks))
    assert clean_process(RUN_BLOCKS, tmp_path / "blocks.json") == "all ran"
    assert len(blocks) > 2 * len(HEADS)
