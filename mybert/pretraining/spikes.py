"""Steps whose loss stands out from those before it."""

import statistics
from collections import deque
from collections.abc import Sequence

_REMEMBERED, _ENOUGH = 200, 50
_FAR = 8
_LEAST_UNIT = 0.01  # of the median, or every step of a run without noise would stand out


class SpikeMeter:
    """Finds losses far above the median of the last 200, in units of their median absolute deviation.

    The unit is scaled to the standard deviation of normal noise, so that 8 of them are no chance; both measures ignore
    the spikes themselves. Nothing is called a spike before 50 losses are known.
    """

    def __init__(self):
        self._losses: deque[float] = deque(maxlen=_REMEMBERED)

    def find(self, losses: Sequence[float]) -> list[tuple[int, float]]:
        """
        Args:
            losses: of the next steps, in order.

        Returns:
            For each spike its place in `losses` and the median before it.
        """
        spikes = []
        for place, loss in enumerate(losses):
            if len(self._losses) >= _ENOUGH:
                median = statistics.median(self._losses)
                deviation = 1.4826 * statistics.median(abs(known - median) for known in self._losses)
                if loss > median + _FAR * max(deviation, _LEAST_UNIT * median):
                    spikes.append((place, median))
            self._losses.append(loss)
        return spikes
