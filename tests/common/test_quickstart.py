"""The quickstart, on other text and for a few steps."""

from pathlib import Path

import pytest

from mybert.common.errors import UserError
from mybert.common.manifest import write_manifest
from mybert.pretraining.planning.measurement import StepTimes
from mybert.training.stopping import Preempted
from mybert.workflows.quickstart import QuickstartSettings, _pretrain, quickstart

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_a_model_is_trained_from_text_and_guesses_in_a_process_without_mybert(tmp_path, capfd):
    text = tmp_path / "text.txt"
    text.write_text("\n\n\n".join(path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))), "utf-8")
    model = quickstart(QuickstartSettings(str(tmp_path / "out"), text=[str(text)], max_steps=8))
    assert (model / "model.safetensors").is_file() and (model / "report.html").is_file()
    lines = capfd.readouterr().out.splitlines()
    guesses = [line for line in lines if "[MASK]" in line]
    pairs = [float(line.split()[3]) for line in lines if "P(next sentence) =" in line]
    assert len(guesses) == 5 and len(pairs) == 4
    assert all(0 <= probability <= 1 for probability in pairs)
    assert quickstart(QuickstartSettings(str(tmp_path / "out"), text=[str(text)], resume=True)) == model
    printed = capfd.readouterr().out
    assert "is finished: 8 steps" in printed and "time since --resume" in printed


def test_a_quickstart_that_is_stopped_continues_with_what_is_there(tmp_path, monkeypatch):
    calls = []

    def stop(choices, arguments, objective):
        calls.append((choices.resume, objective.command))
        raise Preempted

    monkeypatch.setattr("mybert.pretraining.run.pretrain", stop)
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"A cat sleeps for {n} hours. A dog runs. It rains." for n in range(60)), "utf-8")
    given = {"output": str(tmp_path / "out"), "text": [str(text)]}
    with pytest.raises(Preempted):
        quickstart(QuickstartSettings(**given))
    with pytest.raises(UserError, match="exists"):
        quickstart(QuickstartSettings(**given))
    with pytest.raises(UserError, match="corpus was made with --seed 0, not --seed 1"):
        quickstart(QuickstartSettings(**given, seed=1, resume=True))
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


def test_standard_input_is_refused_before_anything_is_written():
    """The vocabulary would use it up, and the examples would find no text."""
    with pytest.raises(UserError, match="--text: expected files: standard input can be read only once"):
        QuickstartSettings(text=["-"])
