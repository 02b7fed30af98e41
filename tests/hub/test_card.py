"""The card: what the Hub accepts, what can be known, and nothing that a name could smuggle in."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from hub_protocol import MAIN, File
from hub_server import REPO
from huggingface_hub import ModelCard
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from transformers import AutoTokenizer

import modeling_mybert
from modeling_mybert import AUTO_MAP
from mybert.common.machine import commit, hardware
from mybert.finetuning.run import finetune
from mybert.finetuning.settings import FinetuneSettings, FinetuningArguments
from mybert.release.card.escaping import in_markdown, in_metadata
from mybert.release.card.model_card import write_card
from mybert.release.hub.bundle import Bundle, make_bundle
from mybert.release.settings import PushSettings

HEADS = sorted({name.split(".")[1] for auto, name in AUTO_MAP.items() if auto != "AutoConfig"})


@pytest.fixture
def card(checkpoint, tmp_path):
    """The card of the checkpoint as it is now."""

    def call(**settings) -> ModelCard:
        settings = PushSettings(str(checkpoint), REPO, **settings)
        folder = tmp_path / "bundle"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        bundle = make_bundle(settings, folder)
        write_card(bundle, settings, "v1", "Checked.")
        return ModelCard.load(folder / "README.md")

    return call


def edit(path: Path, change) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def test_the_hub_accepts_the_metadata(card, hub, client):
    made = card(license="apache-2.0", language=["en", "de"])
    made.validate()
    data = made.data.to_dict()
    assert data["library_name"] == "transformers" and data["pipeline_tag"] == "fill-mask"
    assert data["license"] == "apache-2.0" and data["language"] == ["en", "de"]
    assert {"mybert", "custom_code"} <= set(data["tags"])


def test_the_results_are_those_of_results_json(card, checkpoint):
    results = json.loads((checkpoint / "results.json").read_text())
    made = card()
    found = {(r.task_type, r.metric_type): r.metric_value for r in made.data.eval_results}
    metrics = results["metrics"]
    assert found == {
        ("fill-mask", "accuracy"): metrics["mlm_accuracy"],
        ("fill-mask", "perplexity"): metrics["perplexity"],
        ("text-classification", "accuracy"): metrics["nsp_accuracy"],
    }
    for name in ("mlm_accuracy", "nsp_accuracy"):
        low, high = results[f"{name}_interval_95"]
        title = name.replace("_", " ")
        assert low < metrics[name] < high
        assert f"| {title} | {metrics[name]:.4g} | {low:.4g} to {high:.4g} |" in made.text


def test_what_was_recorded_is_said(card, checkpoint):
    corpus = json.loads(
        (
            Path(json.loads((checkpoint / "manifest.json").read_text())["settings"]["corpus"]) / "manifest.json"
        ).read_text()
    )
    text = card().text
    for said in (
        "- books.txt, ",
        f"{corpus['counts']['documents']} documents",
        f"{corpus['counts']['tokens']:,} tokens of text",
        "repeated documents were not looked for",
        "| peak learning rate | 0.0001 |",
        "| seed | 42 |",
        "torch " + torch.__version__.split("+")[0],
        "![Curves of the training](training_curves.png)",
        "at most 32 tokens at once",
        f"| hardware | {in_markdown(hardware())} |",
        "| seconds of training | ",
        "| floating-point operations | ",
        "| tokens seen | ",
        *([f"| commit of MyBERT | {commit()} |"] if commit() else []),
    ):
        assert said in text, said


def test_what_was_not_recorded_is_left_out(card, checkpoint):
    for name in ("results.json", "manifest.json", "training_curves.png"):
        (checkpoint / name).unlink()
    made = card()
    assert not {"license", "language", "base_model", "datasets", "model-index", "metrics"} & made.data.to_dict().keys()
    assert not re.search(r"## Training|## Results|!\[|None|null|unknown", made.text)


def test_names_on_the_hub_in_the_chain_are_named_in_the_metadata(card, checkpoint):
    corpus = Path(json.loads((checkpoint / "manifest.json").read_text())["settings"]["corpus"])
    chain = checkpoint.parent / "corpus"
    shutil.copytree(corpus, chain)
    edit(chain / "manifest.json", lambda m: m["inputs"].update({"input-0": {"path": "ann/stories:all:train"}}))

    def point(manifest):
        import hashlib

        sha256 = hashlib.sha256((chain / "manifest.json").read_bytes()).hexdigest()
        manifest["inputs"] = {"corpus": {"path": str(chain), "sha256": sha256}, "init_from": {"path": "ann/bert"}}

    edit(checkpoint / "manifest.json", point)
    data = card().data
    assert data.datasets == ["ann/stories"] and data.base_model == "ann/bert"


def test_a_fine_tuned_model_is_described_by_its_rows_and_results(card, checkpoint):
    model = modeling_mybert.MyBertForSequenceClassification.from_pretrained(checkpoint)
    model.save_pretrained(checkpoint)
    score = {"metrics": {"accuracy": 0.75, "f1": 0.5}, "intervals_95": {"accuracy": [0.7, 0.8]}, "rows": 40}
    score["constant_baselines"] = {"accuracy": 0.55}
    results = {
        "task": "text-classification",
        "test": score,
        "best": {"learning_rate": 2e-5, "seed": 3},
        "data": {
            "train": {"rows": 100, "source": "/home/ann/train.csv"},
            "test": {"rows": 40, "source": "ann/reviews"},
        },
    }
    (checkpoint / "results.json").write_text(json.dumps(results))
    edit(checkpoint / "manifest.json", lambda m: m.update(stage="finetune"))
    made = card()
    assert made.data.pipeline_tag == "text-classification" and made.data.metrics == ["accuracy", "f1"]
    result = made.data.eval_results[0]
    assert (result.task_type, result.dataset_name, result.dataset_split) == (
        "text-classification",
        "ann/reviews",
        "test",
    )
    for said in ("| accuracy | 0.75 | 0.7 to 0.8 | 0.55 |", "train: 100 rows of train.csv", "| seed | 3 |", "2e-05"):
        assert said in made.text, said


LABELS = ["yes", "null", "1.0", "- x: y", "<b>bold</b> | [a](http://e.example)\n---\nlicense: mit"]


def test_a_model_that_was_really_fine_tuned_keeps_odd_labels_and_says_what_it_took(trained, tmp_path, hub, client):
    rows = [{"text": f"the cat sat {i}", "label": LABELS[i % len(LABELS)]} for i in range(20)]
    for name in ("train", "dev"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    finetune(
        FinetuneSettings(
            task="text-classification",
            model=str(trained),
            train=str(tmp_path / "train.jsonl"),
            validation=str(tmp_path / "dev.jsonl"),
            output=str(tmp_path / "classifier"),
            max_length=16,
        ),
        FinetuningArguments(str(tmp_path / "classifier"), num_train_epochs=1, use_cpu=True, disable_tqdm=True),
    )
    took = json.loads((tmp_path / "classifier" / "manifest.json").read_text())["training"]
    tokens = len(rows) * 8  # [CLS] the cat sat, the number in one or two pieces, [SEP]
    assert 0.5 * tokens < took["tokens_seen"] < 2 * tokens
    assert took["steps"] == 1 and took["seconds"] > 0 and took["flops"] > 0
    settings = PushSettings(str(tmp_path / "classifier"), REPO)
    (tmp_path / "bundle").mkdir()
    made = write_card(make_bundle(settings, tmp_path / "bundle"), settings, "v1", "Checked.")
    made.validate()
    config = json.loads((tmp_path / "bundle" / "config.json").read_text())
    assert sorted(config["id2label"].values()) == sorted(LABELS)
    assert "license" not in made.data.to_dict() and "<b>" not in made.text
    for said in ("- books.txt, ", "| started from | model |", "| tokens seen | ", "| hardware | ", "| steps | 1 |"):
        assert said in made.text, said


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


@pytest.mark.parametrize("evil", EVIL)
def test_a_name_cannot_break_out_of_its_place(card, checkpoint, evil):
    def spoil(results):
        results["data"] = {"train": {"rows": 1, "source": evil}}
        results["training_arguments"]["optim"] = evil
        results["metrics"][evil] = 0.5

    edit(checkpoint / "results.json", lambda r: r.update(data={"train": {"rows": 1, "source": "x"}}))
    edit(checkpoint / "results.json", lambda r: r["metrics"].update(x=0.5))
    plain = card()
    structure = blocks(plain.text)
    edit(checkpoint / "results.json", lambda r: r["metrics"].pop("x"))
    edit(checkpoint / "results.json", spoil)
    edit(checkpoint / "manifest.json", lambda m: m["versions"].update({evil: evil}))
    made = card()
    assert made.data.to_dict() == plain.data.to_dict()
    assert blocks(made.text) == structure, "no heading, list, table, link, picture, code or HTML more than before"


@pytest.mark.parametrize("evil", EVIL)
def test_a_name_in_the_metadata_stays_one_string(card, checkpoint, evil):
    edit(checkpoint / "manifest.json", lambda m: m["inputs"].update(init_from={"path": evil}))
    made = card()
    data = made.data.to_dict()
    assert data["base_model"] == in_metadata(evil) and data["library_name"] == "transformers"
    assert data.keys() - {"base_model"} == {"library_name", "pipeline_tag", "metrics", "tags", "model-index"}
    assert made.text.lstrip().startswith("# tiny")


def blocks(text: str) -> list[str]:
    """What Markdown makes of a text, all but the words."""
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
    from huggingface_hub import ModelCardData

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


def test_every_python_block_of_every_heads_card_runs(hub, checkpoint, stranger, tmp_path):
    blocks = []
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    for head in [*HEADS, "MyBertEncoderDecoderModel"]:
        folder, name = tmp_path / head, f"alice/{head.lower()}"
        if head in HEADS:
            model = getattr(modeling_mybert, head).from_pretrained(checkpoint)
        else:
            model = getattr(modeling_mybert, head).from_encoder_decoder_pretrained(checkpoint, checkpoint)
            model.config.decoder_start_token_id = tokenizer.cls_token_id
            model.config.pad_token_id = tokenizer.pad_token_id
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        card = write_card(Bundle(folder, folder), PushSettings(str(folder), name), "v1", "Checked.")
        repo = hub.new_repo(name)
        files = {path.name: File(path.read_bytes()) for path in folder.iterdir()}
        repo.refs["refs/tags/v1"] = repo.commit(MAIN, files, "all")
        found = re.findall(r"```python\n(.*?)```", card.text, re.S)
        assert found, head
        blocks += [(f"{head} {number}", block) for number, block in enumerate(found, 1)]
    (tmp_path / "blocks.json").write_text(json.dumps(blocks))
    assert stranger(RUN_BLOCKS, tmp_path / "blocks.json") == "all ran"
    assert len(blocks) > len(HEADS)
