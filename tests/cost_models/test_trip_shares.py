"""Trips of loops over ranges that are data: as many as of equal segments."""

from __future__ import annotations

from best_spaces import build
from cost_models.program_counts import count
from search_spaces import target_named
from segmented_workloads import jagged_fold

H200 = target_named("h200")


def trips(segments: int) -> list[float]:
    """Iterations of the loops of a fold by a program for each segment, by tiles of as many columns as it has."""
    starts = build(jagged_fold(4096, 256, segments), H200).seeds()
    (counts,) = count(next(s for s in starts if "split=1 " in s.one_line).program)
    return [made / loop.extent for _, made, loop in counts.loops if loop.useful]


def test_a_loop_over_a_range_that_is_data_counts_as_one_over_an_equal_segment() -> None:
    for segments in (4, 16, 64):
        (share,) = trips(segments)
        assert 1 / (segments + 1) <= share <= 1 / segments + 2 / 128
