"""Markup and scales: nothing is markup that was not made here, and ticks are on the scale."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.reporting.html.markup import element, joined
from autosched.reporting.html.scales import Scale, log_scale
from search_spaces.plain_text import visible_lines
from seen_page import Seen


@settings(max_examples=50, deadline=None)
@given(st.text(), st.text())
def test_any_text_is_text_and_any_attribute_is_one(content: str, about: str) -> None:
    seen = Seen(element("p", content, title=about, class_="a"))
    assert seen.elements == [("p", {"title": visible_lines(about), "class": "a"})]
    assert seen.text == visible_lines(content)


def test_elements_within_others_stay_what_they_are() -> None:
    inner = element("b", "<")
    assert element("p", inner, ">", x=1.25, data_v=None) == '<p x="1.2"><b>&lt;</b>&gt;</p>'
    assert joined(["&", inner, element("br")]) == "&amp;<b>&lt;</b><br>"


bounds = st.tuples(st.floats(1e-12, 1e12), st.floats(1.001, 1e6))


@settings(deadline=None)
@given(bounds, st.booleans(), st.integers(2, 6))
def test_ticks_are_on_the_scale_in_order_and_few(ends: tuple[float, float], is_log: bool, most: int) -> None:
    low, high = ends[0], ends[0] * ends[1]
    scale = Scale(low, high, 0.0, 100.0, is_log)
    ticks = scale.ticks(most)
    assert ticks == sorted(set(ticks))
    assert len(ticks) <= most + 2
    slack = 1e-9 * high
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    assert [scale(tick) for tick in ticks] == sorted(scale(tick) for tick in ticks)


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (Scale(0, 200, 0, 1), [0, 50, 100, 150, 200]),
        (Scale(0.98, 1.06, 0, 1, is_log=True), [0.98, 1.0, 1.02, 1.04, 1.06]),
        (Scale(0.9, 60, 0, 1, is_log=True), [1, 2, 5, 10, 20, 50]),
        (Scale(1e9, 1e15, 0, 1, is_log=True), [1e10, 1e12, 1e14]),
    ],
)
def test_ticks_are_round_figures(scale: Scale, ticks: list[float]) -> None:
    assert scale.ticks() == pytest.approx(ticks)


def test_figures_beyond_a_scale_are_at_its_ends() -> None:
    scale = log_scale([1.0, 4.0], 10, 30, margin=1.0)
    assert [scale(x) for x in (0.1, 1.0, 2.0, 4.0, 9.0)] == pytest.approx([10, 10, 20, 30, 30])
