"""Windows over long texts: each token is kept once, in the window with most context."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from mybert.common.text_windows import cut_windows


@given(st.integers(0, 200), st.integers(1, 40), st.data())
def test_each_token_is_kept_once_in_the_window_with_most_context(length, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    windows = cut_windows(length, size, overlap)

    def context(window, token) -> float:
        """The number of tokens on the shorter side; the ends of the text do not count as short."""
        left = math.inf if window.start == 0 else token - window.start
        right = math.inf if window.end == length else window.end - 1 - token
        return min(left, right)

    kept = [token for window in windows for token in range(window.kept_start, window.kept_end)]
    assert kept == list(range(length))
    for window in windows:
        assert window.start <= window.kept_start <= window.kept_end <= window.end
        assert window.end - window.start == min(size, length)
        for token in range(window.kept_start, window.kept_end):
            assert context(window, token) == max(context(w, token) for w in windows if w.start <= token < w.end)
    shared = [a.end - b.start for a, b in itertools.pairwise(windows)]
    assert shared[:-1] == [overlap] * len(shared[:-1])
    assert all(count >= overlap for count in shared[-1:])
