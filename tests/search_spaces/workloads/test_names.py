"""Unique names."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.workloads.names import Names


@given(st.lists(st.sampled_from(["t", "t2", "t3", "x"]), max_size=12), st.integers(0, 12))
@settings(max_examples=40)
def test_a_name_that_is_taken_has_the_first_free_number_behind_it(wanted: list[str], elsewhere: int) -> None:
    names, taken = Names({"x"}), {"x"}
    for number, name in enumerate(wanted):
        if number == elsewhere:
            names.taken.add("t2")
            taken.add("t2")
        free = next(n for n in (name, *(f"{name}{k}" for k in range(2, 99))) if n not in taken)
        assert names.fresh(name) == free
        taken.add(free)
