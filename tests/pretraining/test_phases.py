import pytest

from mybert.common.quantities import counted, duration, with_unit
from mybert.pretraining.data.batching import example_lengths
from mybert.pretraining.planning.phases import CorpusShape


@pytest.mark.parametrize(
    ("stop", "time"), [(True, "1 min 40 s of training in total"), (False, "35 s of training left")]
)
def test_a_dry_run_prints_the_time_of_all_steps_and_a_run_that_of_the_remaining_ones(make_trainer, stop, time):
    trainer = make_trainer(trainer={"dry_run": stop}, max_steps=20)
    trainer.state.global_step = 13
    assert time in trainer.objective.time_message(seconds=5.0, steps=10, first=0)


def test_the_shape_of_a_corpus_is_that_of_its_sequences(pairs):
    corpus = pairs(50)
    lengths = [len(row) for row in corpus["input_ids"]]
    expected = CorpusShape(50, sum(lengths), max(lengths), sum(length**2 for length in lengths))
    assert CorpusShape.of(example_lengths(corpus)) == expected
    chosen = corpus.select([7, 3])
    assert CorpusShape.of(example_lengths(chosen)).tokens == lengths[7] + lengths[3]


def test_large_numbers_have_units():
    assert with_unit(9.87e9, "FLOP") == "9.87 GFLOP"
    assert with_unit(12, "B") == "12 B"
    assert (with_unit(999_499, "B"), with_unit(999_999, "B"), with_unit(999.9, "B")) == ("999 kB", "1 MB", "1 kB")
    assert duration(59.6) == "1 min" and duration(0) == "0 s"
    assert duration(3.2) == "3 s"
    assert duration(93_784) == "1 d 2 h"


def test_a_count_of_one_is_singular():
    assert [counted(number, "layer") for number in (0, 1, 2000)] == ["0 layers", "1 layer", "2,000 layers"]
