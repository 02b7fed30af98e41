"""The law of held-out loss, its fit, and where it is shown."""

import dataclasses
import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest

from mybert.pretraining.planning.scaling_law import in_words, scaling_law

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "scaling_law.py"
TINY, MINI = 396_544, 3_159_040  # parameters of the encoder


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("scaling_law_benchmark", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_more_parameters_tokens_and_text_lower_the_loss_and_repeats_count_less():
    law = scaling_law()
    for size in (2_000, law.vocab_size, 100_000):
        loss = law.loss(3e6, 5e7, 1e9, size)
        assert law.loss(6e6, 5e7, 1e9, size) < loss and law.loss(3e6, 1e8, 1e9, size) < loss
        assert loss < law.loss(3e6, 5e7, 1e6, size)
    assert law.counted_tokens(1e6, 1e7) == 1e6
    unique, passes = 1e6, 3
    expected = unique * (1 + law.repeat_limit * (1 - math.exp(-(passes - 1) / law.repeat_limit)))
    assert law.counted_tokens(passes * unique, unique) == pytest.approx(expected)
    assert law.loss(3e6, 1.0, 1e9, law.vocab_size) == law.ceiling
    assert 0 <= law.accuracy(law.ceiling, law.vocab_size) < 0.15


@pytest.mark.parametrize(
    ("encoder", "tokens", "unique", "vocab_size", "loss", "accuracy"),
    [
        (TINY, 1.46e6, 3.03e6, 150, 2.222, 0.381),
        (TINY, 1.58e6, 2.05e6, 600, 3.238, 0.314),
        (TINY, 0.50e6, 1.66e6, 2_000, 4.697, 0.203),
        (MINI, 3.00e6, 38.4e6, 6_016, 3.997, 0.315),
        (MINI, 70.9e6, 36.0e6, 12_032, 3.143, 0.437),
        (MINI, 56.7e6, 34.2e6, 30_528, 3.409, 0.422),
    ],
)
def test_losses_and_accuracies_are_those_of_measured_runs(encoder, tokens, unique, vocab_size, loss, accuracy):
    """The runs are described in benchmarks/RESULTS.md."""
    law = scaling_law()
    assert law.loss(encoder, tokens, unique, vocab_size) == pytest.approx(loss, rel=0.03)
    assert law.accuracy(loss, vocab_size) == pytest.approx(accuracy, abs=0.02)


@pytest.mark.parametrize(
    ("encoder", "tokens", "unique", "loss", "accuracy"),
    [
        (TINY, 1.00e6, 66_500, 5.217, 0.238),
        (TINY, 2.00e6, 33_400, 6.196, 0.197),
        (TINY, 6.70e6, 66_500, 7.000, 0.206),
        (TINY, 16.8e6, 277_200, 5.213, 0.284),
        (MINI, 1.00e6, 66_500, 5.096, 0.250),
    ],
)
def test_the_loss_rises_after_many_passes_and_the_accuracy_hardly_falls(encoder, tokens, unique, loss, accuracy):
    """15 to 101 passes; the runs are described in benchmarks/RESULTS.md."""
    expected = scaling_law().expectation(encoder, tokens, unique, 19_264)
    assert expected["mlm_loss"] == pytest.approx(loss, rel=0.03)
    assert expected["mlm_accuracy"] == pytest.approx(accuracy, abs=0.03)


def test_the_interval_of_the_accuracy_is_that_of_the_loss():
    law, vocab_size = scaling_law(), 12_032
    expected = law.expectation(3e6, 5e7, 1e9, vocab_size)
    highest = law.accuracy(expected["mlm_loss"] - expected["mlm_loss_error"], vocab_size)
    assert expected["mlm_accuracy"] + expected["mlm_accuracy_error"] == pytest.approx(highest)


def test_the_fit_finds_the_law_behind_runs_and_predicts_others(benchmark):
    true = dataclasses.replace(
        scaling_law(),
        floor=1.2,
        size_factor=80.0,
        size_power=0.3,
        token_factor=450.0,
        token_size_power=0.05,
        token_power=0.38,
        vocab_power=0.2,
    )
    rng = np.random.default_rng(0)

    def run(parameters, tokens, noise, vocab_size=true.vocab_size):
        loss = true.loss(parameters, tokens, 1e10, vocab_size) * (1 + noise)
        accuracy = 0.7 - 0.09 * loss * true.split(vocab_size) ** 0.5
        return benchmark.Run("run", int(parameters), int(tokens), 10**10, vocab_size, loss, accuracy)

    sizes, tokens = (4e5, 3e6, 1.3e7, 4e7), (4e6, 1.6e7, 6e7, 2.4e8, 1e9)
    runs = [run(n, d, rng.normal(0, 0.003)) for n in sizes for d in tokens]
    runs += [run(3e6, d, rng.normal(0, 0.003), vocab_size) for d in tokens for vocab_size in (6_000, 30_000)]
    fitted = benchmark.fit(runs, scaling_law())
    for asked in ((1e6, 1e8, 1e10, 12_000), (2e7, 3e8, 1e10, 12_000), (3e6, 1e9, 1e10, 50_000)):
        assert fitted.loss(*asked) == pytest.approx(true.loss(*asked), rel=0.02)
    assert fitted.accuracy_slope == pytest.approx(0.09) and fitted.runs == 30 and fitted.loss_error < 0.05
    one_size = benchmark.fit([run(3e6, count, 0.0) for count in tokens], scaling_law())
    assert one_size.size_power == scaling_law().size_power, "one size does not tell the exponent of the size"


@pytest.mark.parametrize(("vocab_size", "tokens"), [(4_032, 40.35), (6_016, 38.43), (24_064, 34.50), (30_528, 34.21)])
def test_a_smaller_vocabulary_splits_words_into_more_tokens(vocab_size, tokens):
    """Millions of tokens of one text (benchmarks/RESULTS.md); 36.04 with 12,032 tokens of vocabulary."""
    assert scaling_law().split(vocab_size) == pytest.approx(tokens / 36.04, rel=0.005)


@pytest.mark.parametrize(
    ("vocab_size", "loss"), [(600, 5.7), (4_032, 6.66), (6_016, 6.77), (12_032, 6.88), (24_064, 6.90), (30_528, 6.91)]
)
def test_the_highest_loss_is_that_of_the_frequencies_of_tokens(vocab_size, loss):
    """Held-out losses by the counts of the training text; 600: of BBC news (benchmarks/RESULTS.md)."""
    assert scaling_law().highest(vocab_size) == pytest.approx(loss, rel=0.02)
    assert scaling_law().highest(8) == math.log(8)


def test_an_expectation_at_the_ceiling_claims_no_interval():
    law = scaling_law()
    for vocab_size in (30_000, 512, 8):
        shown = in_words(law.expectation(1e5, 300, 300, vocab_size))
        assert "±" not in shown and f"at most {law.highest(vocab_size):.2f}" in shown
    assert "±" in in_words(law.expectation(3e6, 5e7, 1e9, 30_000))
