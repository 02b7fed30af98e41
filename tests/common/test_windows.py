"""Windows: every piece is seen, and counts once, where it has most context."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from mybert.common.text_windows import cut_windows


@given(st.integers(0, 200), st.integers(1, 40), st.data())
def test_each_piece_is_kept_once_in_the_window_that_gives_it_most_context(length, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    windows = cut_windows(length, size, overlap)

    def context(window, piece) -> float:
        """Neighbours on the poorer side; at an end of the text that side lacks nothing."""
        left = math.inf if window.start == 0 else piece - window.start
        right = math.inf if window.end == length else window.end - 1 - piece
        return min(left, right)

    kept = [piece for window in windows for piece in range(window.kept_start, window.kept_end)]
    assert kept == list(range(length))
    for window in windows:
        assert window.start <= window.kept_start <= window.kept_end <= window.end
        assert window.end - window.start == min(size, length)
        for piece in range(window.kept_start, window.kept_end):
            assert context(window, piece) == max(context(w, piece) for w in windows if w.start <= piece < w.end)


@given(st.integers(2, 200), st.integers(2, 40), st.data())
def test_neighbours_share_what_was_asked_for_and_only_the_last_shares_more(length, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    windows = cut_windows(length, size, overlap)
    shared = [a.end - b.start for a, b in itertools.pairwise(windows)]
    assert shared[:-1] == [overlap] * len(shared[:-1])
    assert all(count >= overlap for count in shared[-1:])
