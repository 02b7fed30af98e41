"""Detection of steps whose loss stands out from those before them."""

import statistics
from collections import deque
from collections.abc import Mapping

_WINDOW, _MIN_KNOWN = 200, 50
_MAX_DEVIATIONS = 8
_MIN_DEVIATION = 0.01  # of the median; without it every step of a run without noise would stand out


class LossSpikes:
    """Finds losses far above the median of the last 200, in units of their median absolute deviation.

    The unit is scaled to the standard deviation of normal noise. Median and deviation are robust to the spikes
    themselves. No spike is reported before 50 losses of a phase are known: longer sequences have higher losses.
    """

    def __init__(self):
        self._losses: deque[float] = deque(maxlen=_WINDOW)
        self._phase: object = None

    def find(self, losses: Mapping[int, float], phase: object = None) -> list[tuple[int, float]]:
        """Step and previous median of each spike among the losses, which are in the order of their steps.

        Losses of earlier calls with another `phase` are forgotten.
        """
        if phase is not self._phase:
            self._losses.clear()
            self._phase = phase
        spikes = []
        for step, loss in losses.items():
            if len(self._losses) >= _MIN_KNOWN:
                median = statistics.median(self._losses)
                deviation = 1.4826 * statistics.median(abs(known - median) for known in self._losses)
                if loss > median + _MAX_DEVIATIONS * max(deviation, _MIN_DEVIATION * median):
                    spikes.append((step, median))
            self._losses.append(loss)
        return spikes
