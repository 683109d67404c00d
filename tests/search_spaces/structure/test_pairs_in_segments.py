"""Pairs of positions in one segment: which stages need them alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from search_spaces import ops
from search_spaces.structure.pairs_in_segments import needed_parts


def test_what_is_read_in_pairs_of_one_segment_is_needed_there_alone() -> None:
    workload = ops.varlen_attention(64, 2, 8, 16)
    # Of 17 offsets, and one more segment behind the last.
    assert needed_parts(workload) == pytest.approx(dict.fromkeys(("scores", "top", "total", "out"), 1 / 18))
    returned = replace(workload, arguments=(), output_names=("scores", "out"), output_strides=())
    assert needed_parts(returned)["scores"] == 1


def test_all_is_needed_without_such_pairs() -> None:
    for workload in (ops.grouped_matmul(4, 64, 8, 8), ops.softmax(4, 8)):
        assert set(needed_parts(workload).values()) == {1.0}
