"""Schedules in the words of older versions: their anchors and decisions have the names of today."""

import pytest

from search_spaces.build import sketch_names
from search_spaces.schedules.translation import in_todays_words

# Of older sketches some decisions, the anchor of today, and its decisions.
OLDER = (
    ("tiled_dot_gpu", {"split_k": 4, "order": "nm"}, "contraction", {"split": 4, "order": "column_major"}),
    ("fused_dot_gpu", {"parts": 2, "order": "mn"}, "contraction", {"subtiles": 2, "order": "row_major"}),
    ("tiled_dot_cpu", {"prefetch_b": 8, "inner": "ij"}, "contraction", {"prefetch": 8, "inner": "ij"}),
    ("thin_dot_gpu", {"reduce": "each_turn"}, "thin_contraction", {"accumulate": "row"}),
    ("thin_dot_gpu", {"reduce": "after_loop", "split_k": 2}, "thin_contraction", {"accumulate": "point", "split": 2}),
    ("chained_dot_gpu", {"order": "descending"}, "chain", {"direction": "descending"}),
    (
        "chained_dot_cpu",
        {"inner": [8, 16], "carried": [4, 32]},
        "chain",
        {"inner_register": [8, 16], "carried_register": [4, 32], "prefetch": 0},
    ),
)


@pytest.mark.parametrize(("sketch", "values", "anchor", "today"), OLDER)
def test_an_older_schedule_is_read_in_todays_words(
    sketch: str, values: dict[str, object], anchor: str, today: dict[str, object]
) -> None:
    assert in_todays_words(sketch, values) == (anchor, today)
    assert anchor in sketch_names()


@pytest.mark.parametrize(("anchor", "today"), [(anchor, today) for *_, anchor, today in OLDER])
def test_words_of_today_stay_as_they_are(anchor: str, today: dict[str, object]) -> None:
    assert in_todays_words(anchor, today) == (anchor, today)
