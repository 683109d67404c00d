"""Labels of a chart: each at the first of its places that covers nothing, and so the roofline's."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.reporting.analysis.roofline import RooflinePosition
from autosched.reporting.html.charts.labels import Labels
from autosched.reporting.html.charts.roofline_chart import roofline_chart

PLACES = [(100.0, 100.0, "start"), (100.0, 150.0, "start")]


def height(labels: Labels) -> float:
    found = re.search(r'y="([0-9.]+)"', labels.placed("a label", PLACES))
    assert found
    return float(found[1])


def test_a_label_is_at_its_first_place_unless_a_dot_a_line_or_a_label_is_there() -> None:
    assert height(Labels()) == 100.0
    dotted, lined, labelled = Labels(), Labels(), Labels()
    dotted.avoid_dot(110.0, 96.0, 4.0)
    lined.avoid_line([(60.0, 50.0), (180.0, 150.0)])
    labelled.placed("another", [(140.0, 104.0, "end")])
    assert [height(labels) for labels in (dotted, lined, labelled)] == [150.0] * 3


def test_without_a_free_place_or_one_within_the_frame_a_label_is_at_the_first() -> None:
    labels = Labels()
    labels.avoid_line([(104.0, 60.0), (104.0, 180.0)])
    assert height(labels) == 100.0
    outside = Labels().placed("far too long a label for it", [(300.0, 100.0, "start"), (300.0, 100.0, "end")])
    assert 'text-anchor="end"' in outside


@given(intensity=st.floats(1.0, 1e4), of_bound=st.floats(0.02, 1.0), behind=st.floats(0.5, 2.0))
@settings(max_examples=50, deadline=None)
def test_the_labels_of_a_roofline_do_not_cover_each_other(intensity: float, of_bound: float, behind: float) -> None:
    peak, bandwidth, flops = 1e15, 4.8e12, 1e12
    latency_s = flops / (of_bound * min(peak, intensity * bandwidth))
    bound_s = max(flops / peak, flops / intensity / bandwidth)
    count, size = round(flops), round(flops / intensity)
    position = RooflinePosition("float16", count, size, peak, bandwidth, latency_s, bound_s, behind * latency_s)
    drawn = roofline_chart(position)
    assert drawn is not None
    labels = [
        (float(x), float(y), anchor, len(content))
        for x, y, anchor, content in re.findall(
            r'<text x="([\d.]+)" y="([\d.]+)" class="label[^"]*" text-anchor="(\w+)">([^<]*)', drawn
        )
    ]
    assert len(labels) == 3
    for n, one in enumerate(labels):
        for other in labels[:n]:
            assert abs(one[1] - other[1]) > 11 or not crossing(one, other)


def crossing(one: tuple[float, float, str, int], other: tuple[float, float, str, int]) -> bool:
    """True if two texts of 6 units a character share a column."""
    (first, first_end), (second, second_end) = (
        (x - 6 * count, x) if anchor == "end" else (x, x + 6 * count) for x, _, anchor, count in (one, other)
    )
    return first < second_end and second < first_end
