"""The quickstart, on other text and for a few steps."""

import shlex
from pathlib import Path

import pytest

from mybert import cli
from mybert.artifacts.manifest import read_manifest, write_manifest
from mybert.artifacts.places import check_places
from mybert.common.errors import UserError
from mybert.pretraining.planning.measurement import StepTimes
from mybert.training.stopping import Preempted
from mybert.workflows.quickstart import QuickstartSettings, _pretrain, quickstart

DOCS = Path(__file__).parents[2] / "docs"


def write_text(path: Path, paragraphs: int = 60) -> Path:
    texts = [f"A cat sleeps for {n} hours. A dog runs. It rains." for n in range(paragraphs)]
    path.write_text("\n\n".join(texts), "utf-8")
    return path


@pytest.fixture
def without_training(monkeypatch):
    for name in ("_pretrain", "load_in_clean_process"):
        monkeypatch.setattr(f"mybert.workflows.quickstart.{name}", lambda *_: None)


@pytest.mark.slow
def test_a_model_is_trained_from_text_and_guesses_in_a_process_without_mybert(tmp_path, capfd):
    text = tmp_path / "text.txt"
    text.write_text(
        "\n\n\n".join(path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("guides/*.md"))), "utf-8"
    )
    model = quickstart(QuickstartSettings(str(tmp_path / "out"), text=[str(text)], max_steps=4))
    assert (model / "model.safetensors").is_file() and (model / "report.html").is_file()
    lines = capfd.readouterr().out.splitlines()
    guesses = [line for line in lines if "[MASK]" in line]
    pairs = [float(line.split()[3]) for line in lines if "P(next sentence) =" in line]
    assert len(guesses) == 5 and len(pairs) == 4
    assert all(0 <= probability <= 1 for probability in pairs)
    assert quickstart(QuickstartSettings(str(tmp_path / "out"), text=[str(text)], resume=True)) == model
    printed = capfd.readouterr().out
    assert "is finished: 4 steps" in printed and "time since --resume" in printed


def test_a_quickstart_that_is_stopped_continues_with_what_is_there(tmp_path, monkeypatch):
    calls = []

    def stop(choices, arguments, objective):
        calls.append((choices.resume, objective.command))
        raise Preempted

    monkeypatch.setattr("mybert.pretraining.run.pretrain", stop)
    text = write_text(tmp_path / "text.txt")
    given = {"output": str(tmp_path / "out"), "text": [str(text)]}
    with pytest.raises(Preempted):
        quickstart(QuickstartSettings(**given))
    with pytest.raises(UserError, match="add --resume"):
        check_places([QuickstartSettings(**given)])
    for changed, made in (
        ({"seed": 1}, "corpus was made with --seed 0, not --seed 1"),
        ({"language": "de"}, "tokenizer was made with --language en, not --language de"),
        ({"uncased": False}, "tokenizer was made with --uncased, not --cased"),
        ({"strip_accents": False}, "tokenizer was made with .*strip-accents"),
    ):
        with pytest.raises(UserError, match=made):
            quickstart(QuickstartSettings(**given, **changed, resume=True))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    with pytest.raises(Preempted):
        quickstart(QuickstartSettings(**given, resume=True))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before
    assert calls == [(False, "quickstart"), (True, "quickstart")]
    finished = {"settings": {}, "inputs": {"corpus": {"sha256": "of other examples"}}, "counts": {"steps": 8}}
    (tmp_path / "out/model").mkdir()  # of a finished quickstart; a second one with --overwrite stopped before training
    write_manifest(tmp_path / "out/model", "pretrain", **finished, complete=True)
    with pytest.raises(UserError, match=r"model was trained on other examples than .*corpus; start again with --over"):
        quickstart(QuickstartSettings(**given, resume=True))
    text.write_text("other text", "utf-8")
    with pytest.raises(UserError, match="tokenizer was made from other text"):
        quickstart(QuickstartSettings(**given, resume=True))


def test_an_interruption_before_the_training_names_resume(tmp_path, monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    command = ["quickstart", "--output", str(tmp_path / "out"), "--text", str(write_text(tmp_path / "text.txt"))]
    with monkeypatch.context() as patch:
        patch.setattr("mybert.workflows.quickstart.build_examples", interrupt)
        assert cli.main(command) == 130
    printed = capsys.readouterr()
    assert "\n2. build MLM and NSP examples\nsplitting the documents into sentences and tokens\n" in printed.out
    *_, message, hint, last = printed.err.splitlines()
    assert message.startswith("to continue with the vocabulary and examples in")
    assert shlex.split(hint) == ["mybert", *command, "--resume"]
    assert last == "mybert quickstart: interrupted"
    monkeypatch.setattr("mybert.workflows.quickstart._pretrain", interrupt)
    assert cli.main(shlex.split(hint)[1:]) == 130
    assert f"the vocabulary in {tmp_path / 'out/tokenizer'} is used again" in capsys.readouterr().out
    assert (tmp_path / "out/corpus/manifest.json").is_file()


def test_some_of_a_few_long_files_is_held_out(tmp_path, without_training):
    """As by `mybert pretrain --text`: each file is a document, and few documents are split."""
    files = [str(write_text(tmp_path / f"{number}.txt", number)) for number in (1000, 1001, 1002)]
    quickstart(QuickstartSettings(str(tmp_path / "out"), text=files))
    made = read_manifest(tmp_path / "out/corpus")["settings"]
    assert made["document_per_file"] and made["split_documents"] > 1
    assert (tmp_path / "out/corpus/validation").is_dir()


def test_a_text_of_a_few_words_is_an_error_that_names_no_option_of_another_command(tmp_path):
    text = write_text(tmp_path / "text.txt", paragraphs=1)
    with pytest.raises(UserError, match="the text is one document of 11 words; give 200 words or more"):
        quickstart(QuickstartSettings(str(tmp_path / "out"), text=[str(text)]))


def test_the_vocabulary_and_the_sentences_follow_the_language(tmp_path, without_training):
    text = "\n\n".join(f"में कुल {n} है। मैं कूल हूँ। वह Bäcker ist z. B. Café." for n in range(60))
    (tmp_path / "text.csv").write_text("body\n" + "".join(f'"{part}"\n' for part in text.split("\n\n")), "utf-8")
    given = {"text": [str(tmp_path / "text.csv")], "text_column": "body"}
    for name, options, words in (
        ("hi", {"language": "hi"}, ["में", "मैं", "कुल", "कूल", "Café"]),
        ("cased", {"uncased": False}, ["Café", "Bäcker", "मैं"]),
        ("kept", {"strip_accents": False}, ["café", "bäcker"]),
    ):
        quickstart(QuickstartSettings(str(tmp_path / name), **given, **options))
        vocabulary = (tmp_path / name / "tokenizer/vocab.txt").read_text("utf-8").splitlines()
        assert set(words) <= set(vocabulary), name
        settings = read_manifest(tmp_path / name / "corpus")["settings"]
        assert settings["language"] == options.get("language", "en")


@pytest.mark.parametrize(("muon", "chosen"), [(0.01, ("muon", 3e-3)), (1.0, ("adamw", 2.5e-3))])
def test_the_optimizer_is_the_one_whose_measured_steps_are_worth_more(muon, chosen, monkeypatch, tmp_path):
    times, calls = StepTimes(None, {"float32": 1e-4}, {"muon": muon, "adamw": 0.0}), []
    monkeypatch.setattr("mybert.pretraining.planning.measurement.measure_steps", lambda *_, **__: times)
    monkeypatch.setattr("mybert.pretraining.corpus_loading.Corpus.load", lambda name: None)
    monkeypatch.setattr(
        "mybert.pretraining.run.pretrain",
        lambda choices, arguments, objective: calls.append((choices.optimizer, arguments.learning_rate)),
    )
    settings = QuickstartSettings(str(tmp_path), resume=True)
    (tmp_path / "model").mkdir()
    _pretrain(settings, "corpus", str(tmp_path / "model"))
    for started in ("muon", "adamw"):  # a resumed run keeps its own
        chosen_before = {"settings": {"optimizer": started}, "inputs": {}, "counts": {}}
        write_manifest(tmp_path / "model", "pretrain", **chosen_before, complete=False)
        _pretrain(settings, "corpus", str(tmp_path / "model"))
    assert calls == [chosen, ("muon", 3e-3), ("adamw", 2.5e-3)]
