import json
import os
import shutil
import subprocess
import sys

import datasets
import pytest
import torch
from trained_runs import have_same_weights, read_log, read_results, steps_saved, weights_of
from transformers import AutoTokenizer, BertForMaskedLM, BertForPreTraining, BertTokenizer

from modeling_mybert import attention_mybert
from mybert.artifacts.manifest import MANIFEST, read_manifest, write_json
from mybert.common import machine
from mybert.common.errors import UserError
from mybert.common.quantities import with_unit
from mybert.pretraining.arguments import PretrainingArguments
from mybert.pretraining.data.counter_based_random import permutation
from mybert.pretraining.run import _drop_checkpoints, pretrain
from mybert.pretraining.settings import PretrainSettings
from mybert.training import arguments as arguments_of_training
from mybert.training.nonfinite import DeferredRead, NonFiniteSteps


def test_a_checkpoint_is_continued_with_words_in_place_of_unused_tokens(
    run, tokenizer, save_bert, corpus_folder, tmp_path
):
    vocab = tokenizer.get_vocab()
    vocab["covid"] = vocab.pop("[unused1]")
    corpus = shutil.copytree(corpus_folder, tmp_path / "corpus")
    BertTokenizer(vocab=dict(sorted(vocab.items(), key=lambda item: item[1]))).save_pretrained(corpus / "tokenizer")
    run(corpus=corpus, init_from=save_bert(tokenizer, tmp_path / "bert"), max_steps=1)
    assert AutoTokenizer.from_pretrained(tmp_path / "out").convert_tokens_to_ids("covid") == vocab["covid"]
    vocab["w0"], vocab["w1"] = vocab["w1"], vocab["w0"]
    BertTokenizer(vocab=dict(sorted(vocab.items(), key=lambda item: item[1]))).save_pretrained(corpus / "tokenizer")
    with pytest.raises(UserError, match="vocabulary"):
        run("other", corpus=corpus, init_from=str(tmp_path / "bert"), max_steps=1)


@pytest.mark.draws
def test_a_run_learns_and_writes_a_complete_model_with_its_results(run, tokenizer):
    output = run(num_train_epochs=10, learning_rate=2e-3, warmup_steps=0.1, save_strategy="no")
    results = read_results(output)
    assert results["metrics"]["mlm_accuracy"] > 1.3 * results["constant_baselines"]["mlm_accuracy"]
    assert results["nsp_accuracy_interval_95"][0] > results["constant_baselines"]["nsp_accuracy"]
    assert results["steps"] == 10 * 13
    corpus = datasets.load_from_disk(results["settings"]["corpus"])
    assert results["tokens_seen"] == 10 * sum(map(len, corpus["input_ids"]))
    trained = AutoTokenizer.from_pretrained(output, trust_remote_code=True).model_max_length
    assert trained == max(map(len, corpus["input_ids"])) < 512, "what is cut there was never trained"
    assert (output / "training_curves.png").read_bytes().startswith(b"\x89PNG")
    manifest = read_manifest(output)
    assert manifest["complete"] and manifest["counts"]["steps"] == 10 * 13
    assert AutoTokenizer.from_pretrained(output).get_vocab() == tokenizer.get_vocab()
    assert weights_of(output)["bert.embeddings.word_embeddings.weight"].shape == (len(tokenizer), 128)
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    assert (output / "vocab.txt").read_text(encoding="utf-8").split() == pieces
    assert not list(output.glob("*.bin")), "no pickles in the finished model"


SCHEDULED = {
    "length_schedule": ["12:0.25", "16:0.5", "24"],
    "start_tokens_per_batch": 64,
    "max_tokens_per_batch": 256,
    "start_mlm_probability": 0.4,
}


@pytest.mark.parametrize(("at", "how"), [(14, {}), (14, {"max_tokens_per_batch": 300}), (7, SCHEDULED)])
def test_a_run_that_was_cut_off_resumes_to_the_same_weights(run, tmp_path, at, how):
    arguments = {"max_steps": 16, "save_steps": 7, "save_total_limit": None, "learning_rate": 1e-3, **how}
    whole = run("whole", **arguments)
    cut = shutil.copytree(whole, tmp_path / "cut")
    for path in cut.iterdir():
        if path.is_dir() and int(path.name.removeprefix("checkpoint-")) > at:
            shutil.rmtree(path)
        elif path.is_file() and path.name != "manifest.json":
            path.unlink()
    run("cut", resume=True, **arguments)
    assert have_same_weights(cut, whole)
    expected, found = read_results(whole), read_results(cut)
    assert [found[name] for name in ("metrics", "epochs")] == [expected[name] for name in ("metrics", "epochs")]


@pytest.mark.parametrize("started", ["bfloat16", "float32"])
def test_a_resumed_run_keeps_its_type_on_a_machine_where_another_is_faster(run, monkeypatch, capsys, started):
    def machine(faster: str) -> None:
        monkeypatch.setattr(arguments_of_training, "has_bfloat16_products", lambda: faster == "bfloat16")

    machine(started)
    output = run(max_steps=2, bf16=True)
    machine("float32" if started == "bfloat16" else "bfloat16")
    run(max_steps=4, bf16=True, resume=True)
    assert read_results(output)["training_arguments"]["bf16"] == (started == "bfloat16")
    printed = capsys.readouterr().out
    assert f"--resume: training goes on in {started}" in printed
    assert ("a new run in float32 would be faster" in printed) == (started == "bfloat16")


def test_a_resumed_run_has_the_threads_of_its_checkpoint(run, monkeypatch, capsys):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(machine, "usable_cores", lambda: 2)
    arguments = {"save_steps": 2, "logging_steps": 1}
    output = run(max_steps=2, **arguments)
    try:
        torch.set_num_threads(2)
        run(max_steps=4, resume=True, **arguments)
        assert [log["threads"] for log in read_log(output) if "loss" in log] == [1] * 4
        assert read_manifest(output)["threads"] == 1
        torch.set_num_threads(2)
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        run(max_steps=6, resume=True, **arguments)
        notice = "the run has used 1 thread so far, now 2: sums are rounded differently"
        assert notice in capsys.readouterr().out
    finally:
        torch.set_num_threads(1)


def test_resume_starts_a_new_run_and_continues_one_killed_before_its_first_checkpoint(run, capsys):
    whole = run("whole", max_steps=2)
    output = run(max_steps=2, resume=True)  # where nothing is
    for path in [*output.glob("checkpoint-*"), output / "model.safetensors"]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(UserError, match="no checkpoint"):
        run(max_steps=2, resume=True)
    write_json(output / MANIFEST, read_manifest(output) | {"complete": False})
    run(max_steps=2, resume=True)
    assert "has no checkpoint yet: starting from the first step" in capsys.readouterr().out
    assert have_same_weights(output, whole)


def test_resuming_with_another_number_of_steps_prints_the_new_plan_and_follows_it(run, capsys, caplog):
    arguments = {"save_total_limit": None, "eval_steps": 0.5}
    run(max_steps=20, save_steps=10, **arguments)
    assert "planned steps" not in capsys.readouterr().out
    output = run(max_steps=40, save_steps=15, logging_steps=10, resume=True, **arguments)
    notice = "--resume: 20 of 20 planned steps are done; the plan is now 40 steps"
    printed = capsys.readouterr().out
    assert notice in printed and "20 steps of this session, to 40, in " in printed
    assert "trainer_state.json" not in caplog.text
    assert steps_saved(output) == [10, 20, 30, 40]
    assert [log["step"] for log in read_log(output, "loss")] == [20, 30, 40]
    assert [log["step"] for log in read_log(output, "eval_loss")] == [10, 20, 40]
    run(max_steps=3, resume=True, **arguments)
    notice = "--resume: 40 of 40 planned steps are done, and 3 are asked for now: nothing is trained"
    assert notice in capsys.readouterr().out and steps_saved(output) == [10, 20, 30, 40]


def test_a_checkpoint_at_the_end_of_an_epoch_contains_its_evaluation(run):
    output = run(max_steps=-1, num_train_epochs=2, save_steps=13, save_total_limit=None, eval_strategy="epoch")
    states = [json.loads(path.read_text()) for path in output.glob("checkpoint-*/trainer_state.json")]
    assert sorted(state["epoch"] for state in states) == [1, 2]
    for state in states:
        assert any("eval_loss" in log and log["step"] == state["global_step"] for log in state["log_history"])


@pytest.mark.parametrize(
    ("keep", "left"), [(None, {"checkpoint-2", "checkpoint-4"}), (1, {"checkpoint-4"}), (0, set())]
)
def test_a_finished_run_keeps_as_many_checkpoints_as_asked(run, capsys, keep, left):
    output = run(max_steps=4, save_steps=2, keep_checkpoints=keep)
    assert {path.name for path in output.glob("checkpoint-*")} == left
    size = sum(file.stat().st_size for name in left for file in (output / name).rglob("*") if file.is_file())
    printed = capsys.readouterr().out
    assert ("for --resume; delete them" in printed) == bool(left)
    assert not left or f"({with_unit(size, 'B')}) for --resume" in printed
    assert (output / "model.safetensors").is_file()


def test_folders_that_are_no_checkpoints_of_the_run_are_kept(tmp_path):
    names = ("checkpoint-2", "checkpoint-10", "checkpoint-best", "checkpoint-2-backup")
    for name in names:
        (tmp_path / name).mkdir()
    (tmp_path / "checkpoint-99").touch()
    _drop_checkpoints(tmp_path, 1)
    assert {path.name for path in tmp_path.iterdir()} == {*names, "checkpoint-99"} - {"checkpoint-2"}
    _drop_checkpoints(tmp_path, 0)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-99", "checkpoint-best", "checkpoint-2-backup"}


def test_a_dry_run_prints_the_plan_and_the_time_and_writes_nothing(corpus_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("mybert.pretraining.run.on_signals", lambda ask: pytest.fail("nothing could be continued"))
    settings = PretrainSettings(corpus=str(corpus_folder), output=str(tmp_path / "out"), size="tiny", dry_run=True)
    arguments = PretrainingArguments(output_dir=settings.output, max_steps=1000, use_cpu=True, disable_tqdm=True)
    before = arguments.to_dict()
    output = pretrain(settings, arguments)
    assert arguments.to_dict() == before
    printed = capsys.readouterr().out
    assert all(words in printed for words in ("parameters", "memory", "measured 10 steps", "in total,"))
    assert not output.exists()


def test_a_corpus_without_held_out_documents_is_trained_on_without_evaluation(run, corpus_folder, tmp_path):
    shutil.copytree(corpus_folder, tmp_path / "corpus", ignore=shutil.ignore_patterns("validation"))
    assert read_results(run(corpus=tmp_path / "corpus", max_steps=2))["metrics"] == {}


@pytest.mark.parametrize("family", ["bert", "mybert"])
def test_training_continues_from_a_checkpoint_with_the_same_vocabulary(run, tokenizer, save_bert, tmp_path, family):
    start = tmp_path / "start"
    if family == "mybert":
        run(output=start, max_steps=1)
    else:
        save_bert(tokenizer, start)
    output = run(init_from=str(start), max_steps=1, learning_rate=0.0)
    lengths = [AutoTokenizer.from_pretrained(folder).model_max_length for folder in (start, output)]
    assert lengths[1] == (lengths[0] if family == "mybert" else 32), "of BERT, all positions count as trained"
    assert have_same_weights(output, start)


def test_a_checkpoint_in_16_bits_is_trained_in_32(run, tokenizer, save_bert, tmp_path):
    start = save_bert(tokenizer, tmp_path / "start")
    BertForPreTraining.from_pretrained(start).to(torch.bfloat16).save_pretrained(start)
    found = weights_of(run(init_from=start, max_steps=1, learning_rate=0.0))
    assert {value.dtype for value in found.values()} == {torch.float32}
    assert all(torch.equal(found[name], value.float()) for name, value in weights_of(start).items())


def test_a_missing_head_is_initialised_and_named(run, tokenizer, save_bert, tmp_path, capsys):
    start = tmp_path / "start"
    model = BertForMaskedLM.from_pretrained(save_bert(tokenizer, tmp_path / "both"))
    model.config.words_weight = 6.5
    model.save_pretrained(start)
    tokenizer.save_pretrained(start)
    output = run(init_from=str(start), max_steps=1, learning_rate=0.0)
    assert "words_weight" in (start / "config.json").read_text()
    assert "words_weight" not in (output / "config.json").read_text(), "it is no retriever"
    printed = capsys.readouterr().out
    assert f"{start} lacks weights of pooler, next-sentence head: these are newly initialised\n" in printed
    name = "cls.predictions.transform.dense.weight"
    assert torch.equal(weights_of(output)[name], weights_of(tmp_path / "both")[name])


def test_an_attention_backend_is_chosen_by_name(run, monkeypatch):
    used = []
    eager = attention_mybert.eager_attention_forward
    monkeypatch.setattr(attention_mybert, "eager_attention_forward", lambda *a, **k: used.append(1) or eager(*a, **k))
    run(max_steps=1, attn_implementation="eager", dropout=0.0)
    assert used


def test_a_last_step_that_is_neither_logged_nor_saved_is_checked_too(run, tmp_path, monkeypatch):
    """On a GPU a step is checked when the next one is queued; here each of them waits, and the last is broken."""

    def check_later(self, step, norm, device):
        self._pending = (step, DeferredRead(torch.tensor([1.0 if step < 2 else torch.nan])))

    monkeypatch.setattr(NonFiniteSteps, "check_gradient", check_later)
    quiet = {"save_strategy": "no", "eval_strategy": "no", "logging_strategy": "no"}
    with pytest.raises(UserError, match="step 3"):
        run(max_steps=3, **quiet)
    assert not (tmp_path / "out" / "model.safetensors").exists()


TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ACCELERATE = ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
ACCELERATE += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]


@pytest.mark.parametrize("launcher", [TORCHRUN, ACCELERATE], ids=["torchrun", "accelerate launch"])
def test_the_command_on_two_processes_gives_the_model_of_one(
    run, start_processes, corpus_folder, tokenizer, save_bert, tmp_path, launcher
):
    start = save_bert(tokenizer, tmp_path / "start", dropout=0.0)
    arguments = {"max_steps": 12, "learning_rate": 1e-3, "whole_word_masking": True}  # 10 steps are an epoch
    alone = run(init_from=start, output=tmp_path / "alone", per_device_train_batch_size=20, **arguments)
    words = ["--corpus", corpus_folder, "--output", tmp_path / "out", "--init-from", start, "--whole-word-masking"]
    words += ["--max-steps", 12, "--learning-rate", 1e-3, "--per_device_train_batch_size", 10, "--use_cpu"]
    words += ["--ddp_backend", "gloo", "--logging-steps", 4]
    statuses, printed = start_processes(["-m", *launcher, "-m", "mybert.cli", "pretrain", *words])
    assert statuses == [0], printed
    assert printed.count("best constant prediction") == 1
    assert f"\nthe output is in {tmp_path / 'out'}\n" in printed
    torch.testing.assert_close(weights_of(tmp_path / "out"), weights_of(alone), atol=2e-5, rtol=0)
    results = [read_results(folder) for folder in (alone, tmp_path / "out")]
    assert results[0]["tokens_seen"] == results[1]["tokens_seen"]
    assert results[0]["useful_flops"] == pytest.approx(results[1]["useful_flops"])
    assert results[0]["metrics"] == pytest.approx(results[1]["metrics"], rel=1e-4)
    lengths = [len(row) for row in datasets.load_from_disk(corpus_folder)["input_ids"]]
    order = [index for epoch in range(2) for index in permutation(200, 42, epoch)]
    mine, other = (
        [sum(lengths[i] for i in order[place : place + 10]) for place in range(first, 240, 20)] for first in (0, 10)
    )
    waited = 1 - (sum(mine) + sum(other)) / 2 / sum(map(max, mine, other))
    assert [result["idle_share"] for result in results] == [None, pytest.approx(waited, abs=2e-4)]


def test_a_peak_that_was_measured_under_load_rises_to_the_speed_of_the_training(run, monkeypatch):
    monkeypatch.setattr("mybert.training.speed.measure_peak", lambda *_: 1.0)
    shares = [entry["mfu"] for entry in read_log(run(max_steps=3, logging_steps=1), "mfu")]
    assert len(shares) == 3 and shares[0] == max(shares) == 1


def test_the_log_has_speed_and_remaining_time(run):
    output = run(max_steps=4, logging_steps=1, peak_flops=1e9)
    results, logs = read_results(output), read_log(output, "loss")
    for left, log in zip((3, 2, 1, 0), logs, strict=True):
        flops = results["useful_flops"] / results["tokens_seen"]
        assert log["mfu"] * 1e9 == pytest.approx(log["tokens_per_second"] * flops, rel=0.1)
        assert log["seconds_left"] <= 60 * left
    assert logs[-1]["seconds_left"] == 0
    assert logs[-1]["tokens"] == results["tokens_seen"]
    assert [log["step"] for log in read_log(output, "eval_loss")] == [4], "shares of few steps are rounded up to 10"


AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
"""Lets a newer processor compute as one without instructions for bfloat16."""
TYPES_OF_A_RUN = """
import sys, torch
from torch.utils._python_dispatch import TorchDispatchMode
from mybert import pretrain
from mybert.pretraining.arguments import PretrainingArguments
from mybert.pretraining.planning.candidates import types_to_compare

class Types(TorchDispatchMode):
    seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        self.seen |= {str(x.dtype) for x in (found,) if isinstance(x, torch.Tensor)}
        return found

corpus, output = sys.argv[1:]
compared = types_to_compare(PretrainingArguments(output_dir=output, use_cpu=True), is_given=False)  # by measuring both
with Types():
    pretrain(corpus=corpus, output=output, size="tiny", optimizer="muon", max_steps=2, use_cpu=True)
print(compared, *sorted(Types.seen))
"""


def test_a_processor_without_instructions_for_bfloat16_trains_in_float32(corpus_folder, tmp_path):
    words = [sys.executable, "-c", TYPES_OF_A_RUN, str(corpus_folder), str(tmp_path / "out")]
    done = subprocess.run(words, env=os.environ | AVX2, check=True, capture_output=True, text=True)
    last = done.stdout.splitlines()[-1]
    assert last.startswith("['float32'] ") and "torch.float32" in last and "bfloat16" not in last
    assert "AVX2 by environment" in read_manifest(tmp_path / "out")["hardware"]
    assert read_results(tmp_path / "out")["steps"] == 2
