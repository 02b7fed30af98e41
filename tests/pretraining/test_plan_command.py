"""`mybert plan`: its numbers against the formulas, its tables against the documentation."""

import re
from pathlib import Path

import pytest
import torch

from modeling_mybert import MyBertConfig
from mybert import cli
from mybert.common.quantities import with_unit
from mybert.pretraining.planning import plan_command
from mybert.pretraining.planning.measurement import StepTimes
from mybert.pretraining.planning.parallel_configs import parallel_configs
from mybert.pretraining.planning.settings import PlanSettings
from mybert.settings.parse import parse_settings

NEEDED = "--tokens 3.3B --peak-flops 400T"


def settings(*argv):
    return parse_settings((PlanSettings,), [*NEEDED.split(), *argv], "mybert plan")[0]


def cells(text, row):
    """The cells of the first line of a table that starts with `row`."""
    line = next(line for line in text.splitlines() if line.split("│")[1:] and line.split("│")[1].strip() == row)
    return [cell.strip() for cell in line.split("│")[2:-1]]


@pytest.fixture
def plan(capsys):
    """A function from the words of `mybert plan` to what it prints."""

    def run(words: str) -> str:
        assert cli.main(["plan", *words.split()]) == 0
        return capsys.readouterr().out

    return run


def test_bert_base_costs_what_the_formulas_give(plan):
    text = plan(f"{NEEDED} --devices 8 --memory 80G --price 2 --bandwidth 100G")
    hidden, layers, length, vocabulary, parameters = 768, 12, 128, 30522, 110_106_428
    assert f"base, {parameters:,} parameters" in text
    read = 0.15 + 1 / length  # the last layer reads these, except for keys and values
    useful = 6 * (
        (layers - 1 + read) * (12 * hidden**2 + 2 * hidden * length)
        + (1 - read) * 2 * hidden**2
        + 0.15 * hidden * (hidden + vocabulary)
        + hidden * (hidden + 2) / length
    )
    rate = 8 * 400e12 * 0.4 / useful
    assert cells(text, "tokens per second")[0] == f"{rate:,.0f}"
    assert cells(text, "MFU")[0] == "40.0%"
    assert cells(text, "tokens per step") == ["32,768"] * 4
    assert cells(text, "steps") == [f"{3.3e9 / 32768:,.0f}"] * 4
    sent = 2 * 7 / 8 * 4 * parameters
    assert cells(text, "sent per step")[0] == f"{sent / 1e6:.3g} MB"
    assert cells(text, "sending, s per step")[0] == f"{sent / 100e9:.3g}"
    assert cells(text, "price of 1B")[0] == f"{2 * 8 * 1e9 / rate / 3600:.2f}"
    assert cells(text, "fits 80 GB") == ["yes"] * 4
    assert re.search(r"checkpoint of base\s+│ 1.32 GB, 3.96 GB while training", text)


def test_a_slow_network_limits_the_speed():
    slow = parallel_configs(settings("--devices", "8", "--bandwidth", "1G"), "base", 8)[0]
    assert slow.send_seconds > slow.compute_seconds
    assert slow.tokens_per_second == pytest.approx(slow.step_tokens / slow.send_seconds)
    assert slow.mfu < 0.4
    fuller = parallel_configs(
        settings("--devices", "8", "--bandwidth", "1G", "--gradient-accumulation-steps", "64"), "base", 8
    )
    assert fuller[0].mfu == pytest.approx(0.4)


def test_gradient_checkpointing_saves_memory_and_costs_a_quarter_to_a_third():
    plain, checkpointing = parallel_configs(settings(), "large", 1)
    assert sum(checkpointing.memory.values()) < sum(plain.memory.values())
    assert 1.2 < checkpointing.compute_seconds / plain.compute_seconds < 4 / 3


def test_several_combinations_print_one_line_each_in_the_fastest_configuration_that_fits(plan):
    argv = ["--size", "mini", "large", "--devices", "1", "64", "--memory", "3G"]
    lines = [line for line in plan(f"{NEEDED} {' '.join(argv)}").splitlines() if re.match(r"│ (mini|large) ", line)]
    found = [tuple(cell.strip() for cell in line.split("│")[1:5]) for line in lines]
    assert [row[:3] for row in found] == [
        ("mini", "1", "one device"),
        ("mini", "64", "DDP"),
        ("large", "1", "does not fit"),
        ("large", "64", "FSDP, checkpointing"),
    ]
    assert found[3][3] == with_unit(sum(parallel_configs(settings(*argv), "large", 64)[3].memory.values()), "B")


def budget_rows(text):
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    return {(size, optimizer): numbers for size, optimizer, *numbers in rows if size}


def test_a_time_budget_compares_optimizers_by_arithmetic(plan):
    text = plan(f"{NEEDED} --time-budget 1h --size mini base")
    rows = budget_rows(text)
    assert rows.keys() == {(size, name) for size in ("mini", "base") for name in ("muon", "adamw")}
    for size, hidden, layers in (("mini", 256, 4), ("base", 768, 12)):
        config = parallel_configs(settings(), size, 1)[0]
        products = (
            5 * 2 * hidden**3 * 3,
            2 * hidden**3 * (2 * 4 + 4 * 5 - 3),
        )  # of square matrices, of those 4 times as wide
        step = layers * (4 * products[0] + 2 * products[1]) / (400e12 * 0.4)
        expected = 32 * 128 / (32 * 128 / config.tokens_per_second + step)
        assert rows[size, "muon"][0] == with_unit(expected, "")
        assert rows[size, "adamw"][0] == with_unit(config.tokens_per_second, "")
    assert text.splitlines()[-1].endswith("with muon")


def test_a_time_budget_on_this_machine_compares_measured_steps(monkeypatch, plan):
    asked = []

    def measure(settings, arguments, corpus, tokens, limit, *, types, optimizers):
        asked.append((settings.size, tokens, limit, types, optimizers))
        assert corpus.shape.longest == 64 and settings.start_mlm_probability == 0.3
        costs = corpus.shape.costs(MyBertConfig.from_size(settings.size), 0.15, True)
        return StepTimes(costs, {"float32": 1e-3, "bfloat16": 5e-4}, {"muon": 4.096, "adamw": 0.0})

    monkeypatch.setattr(plan_command, "measure_steps", measure)
    text = plan("--tokens 1M --time-budget 10m --size tiny mini --max-length 64 --per-device-train-batch-size 64")
    rows = budget_rows(text)
    assert [rows["tiny", name][:2] for name in ("muon", "adamw")] == [["667", "400 k"], ["2 k", "1.2 M"]]
    assert "measured on this machine" in text and "with adamw" in text.splitlines()[-1]
    assert [(size, tokens, limit) for size, tokens, limit, *_ in asked] == [("tiny", 4096, 12), ("mini", 4096, 6)]
    assert all(optimizers == ["muon", "adamw"] for *_, optimizers in asked)


def test_a_text_is_read_as_often_as_by_a_run_with_the_time_budget(plan):
    rows = budget_rows(plan(f"{NEEDED} --tokens 1M --time-budget 1h --size tiny"))
    assert [numbers[1:3] for numbers in rows.values()] == [["20 M", "20.0"]] * 2


@pytest.mark.parametrize("tokens, flops", [("1e24", "1"), ("1", "1e24")])
def test_the_ends_of_all_ranges_are_printed_without_overflow(tokens, flops, plan):
    few = "0.001" if flops == "1" else "1"
    most = "1000000000"
    words = f"--tokens {tokens} --peak-flops {flops} --mfu {few} --bandwidth 1 --num-train-epochs {most}"
    words += f" --price {most} --vocab-size {most} --per-device-train-batch-size {most}"
    words += f" --gradient-accumulation-steps {most}"
    for devices in ("1", most, f"1 {most}"):
        assert not re.search(r"\b(nan|inf)\b", plan(f"{words} --devices {devices}"))


def test_the_processor_is_measured_where_torch_supports_a_gpu_that_is_not_there(monkeypatch, plan):
    """As torch of PyPI on Linux does; the meta device can compute no time."""
    compiled_for = torch.device("meta")
    monkeypatch.setattr(
        torch.accelerator,
        "current_accelerator",
        lambda check_available=False: None if check_available else compiled_for,
    )
    assert "tiny" in plan("--tokens 1M --size tiny")


def test_large_numbers_have_suffixes(tmp_path):
    found = settings("--tokens", "1.5e3k", "--memory", "80g")
    assert (found.tokens, found.peak_flops, found.memory, found.bandwidth) == (1.5e6, 4e14, 8e10, 5e10)
    (tmp_path / "plan.yaml").write_text("tokens: 3.3B\npeak_flops: 4.0e14\n")
    (read,) = parse_settings((PlanSettings,), ["--config", str(tmp_path / "plan.yaml")], "mybert plan")
    assert (read.tokens, read.peak_flops) == (3.3e9, 4e14)


def test_the_tables_of_the_documentation_are_what_its_commands_print(plan):
    docs = Path(__file__).parents[2] / "docs"
    pages = [docs / "guides/scale-out.md", docs / "reference/cost-model.md"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    shown = re.findall(r"^    mybert plan ([^\n]*)\n\n```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(shown) == 2
    for command, expected in shown:
        assert [line.rstrip() for line in plan(command).splitlines()] == expected.splitlines()
