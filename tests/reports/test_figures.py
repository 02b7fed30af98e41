"""Pictures of report.html."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from mybert.reports import figures

original = figures.Figure


@pytest.mark.parametrize("values", [{0.0: 1.0, 1.0: 0.98}, {0.0: 1.0, 1.0: 0.9985}, {0.0: 0.1, 1.0: 0.9}])
def test_the_name_of_the_vertical_axis_is_inside_the_picture(values, monkeypatch):
    pictures = []
    monkeypatch.setattr(figures, "Figure", lambda **size: pictures.append(original(**size)) or pictures[-1])
    figures.line_chart("Precision", {"recall": [figures.Line("a", values)]}, y_label="precision", as_share=True)
    (axis,) = pictures[0].axes
    extent = axis.yaxis.label.get_window_extent(FigureCanvasAgg(pictures[0]).get_renderer())
    assert extent.x0 >= 0, extent
