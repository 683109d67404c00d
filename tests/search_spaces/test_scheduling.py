"""Questions before there is a space: has a workload schedules, and which anchor?"""

from __future__ import annotations

import pytest

from chained_workloads import attention
from fused_workloads import gated, prepared
from search_spaces import Workload, ops
from search_spaces.scheduling import has_dots, scheduling_of
from search_spaces.structure.contraction import contraction, contraction_as_named


def test_a_product_of_two_tensors_is_made_around_dots() -> None:
    assert scheduling_of(ops.matmul(64, 64, 64, dtype="float16")).is_dots
    assert has_dots(ops.matmul(64, 64, 64, dtype="float16"))


def test_dots_of_what_is_computed_have_to_be_asked_for() -> None:
    assert not scheduling_of(prepared(64, 64, 64)).is_dots
    assert scheduling_of(prepared(64, 64, 64), computed=True).is_dots
    assert scheduling_of(gated(64, 64, 64), computed=True).is_dots


def test_rows_are_made_around_no_dots() -> None:
    found = scheduling_of(ops.softmax(8, 100))
    assert (found.is_dots, found.why, found.chain) == (False, "", None)


def test_chained_products_have_sizes_and_what_is_none_a_reason() -> None:
    chain = scheduling_of(attention(2, 128, 256, 64), chained=True).chain
    assert chain is not None
    assert (chain.outer, chain.rows, chain.columns, chain.streamed, chain.stored) == (2, 128, 256, (256,), False)
    refused = scheduling_of(ops.softmax(8, 100), chained=True)
    assert refused.chain is None
    assert refused.why


@pytest.mark.parametrize(
    "workload",
    [
        ops.matmul(64, 48, 32, dtype="float16"),
        ops.matmul(64, 48, 32, batch=3, dtype="float16"),
        ops.conv(2, 8, (7, 9), 16, (3, 3), dtype="float16"),
        gated(64, 48, 32),
        prepared(64, 48, 32),
        ops.softmax(8, 100),
    ],
    ids=lambda workload: workload.name,
)
def test_a_contraction_has_the_same_classes_under_any_names(workload: Workload) -> None:
    named, own = contraction(workload), contraction_as_named(workload)
    assert has_dots(workload) == (own is not None)
    if own is None or named is None:
        assert own is named
        return
    assert own.multiplies_tensors == named.multiplies_tensors
    for mine, theirs in zip((*own.classes.values(),), (*named.classes.values(),), strict=True):
        assert [x.extent for x in mine[0]] == [x.extent for x in theirs[0]]
        assert mine[1].extent == theirs[1].extent
