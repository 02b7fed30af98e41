"""How documents are grouped for work in several processes."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from mybert.corpus.text.document_store import even_order


@given(st.lists(st.integers(1, 10**6), max_size=60))
def test_running_sums_of_an_even_order_stay_near_the_average(sizes):
    order = even_order(sizes)
    assert sorted(order) == list(range(len(sizes)))
    average = sum(sizes) / max(1, len(sizes))
    for count, total in enumerate(accumulate(sizes[i] for i in order), 1):
        assert abs(total - count * average) <= 2 * max(sizes)
