"""Every knob of every sketch, of many structures and sizes: each has a value, and none keeps a sketch from being."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from chained_workloads import Scores, adapter, attention, folded_product, gradients
from dependent_workloads import IN_ONE_WALK, IN_SEVERAL
from fused_workloads import gated, sum_of_products
from random_workloads import random_workload
from scanned_workloads import recurrence
from search_spaces import Target, Workload, anchors, ops
from search_spaces.devices.target import GPUS, cpu
from search_spaces.errors import UnmatchedError
from search_spaces.schedules.limits import USUAL, Offers
from search_spaces.schedules.sketch import Sketch
from structured_workloads import POINTWISE, REDUCTIONS, sums_of_both

CPU = cpu("a CPU", lanes=8, threads=4, l1_bytes=32768, l2_bytes=2**20, fp32_flops=1e11)
TARGETS = (CPU, *(GPUS[name] for name in ("v100", "h200")))
# Fewer than a tile has, about one tile, and a few tiles with a rest.
ROWS = (1, 12, 17, 100)
COLUMNS = (1, 16, 70, 5000)
LEAST = Offers(walks=False)


def products() -> Iterator[Workload]:
    for m, n in itertools.product(ROWS, COLUMNS):
        yield ops.matmul(m, n, 37)
        yield ops.matmul(m, 40, n, dtype="int8", batch=2)
        yield adapter(m, n, 48, 16)
        yield gated(m, n, 33)
        yield sum_of_products(m, n, 20, "float32")


def chains() -> Iterator[Workload]:
    for m, c in itertools.product(ROWS, COLUMNS):
        yield attention(2, m, c, 32, scores=Scores(causal=True))
        yield gradients(1, m, c, 16, causal=True)
        yield folded_product(m, c, 24, "layer_norm")


def rows() -> Iterator[Workload]:
    for m, n in itertools.product(ROWS, (*COLUMNS, 100_003)):
        yield ops.softmax(m, n)
        yield sums_of_both(m, n)
        yield recurrence(m, n)
        yield recurrence(m, n, along="r")


def others() -> Iterator[Workload]:
    yield from (*POINTWISE, *REDUCTIONS, *IN_ONE_WALK, *(workload for workload, _ in IN_SEVERAL))
    yield from map(random_workload, range(40))


def sketches_of(workload: Workload, target: Target, offers: Offers) -> Iterator[Sketch]:
    """Of every anchor; a knob without values, which refuses its sketch, is a failure here."""
    for name, anchor in anchors.anchors():
        try:
            yield from anchor.derive(workload, target, offers)
        except UnmatchedError as why:
            if "has no value" in str(why):
                pytest.fail(f"{name} of {workload.label} on {target.name}: {why}")


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("structures", [products, chains, rows, others], ids=lambda f: f.__name__)
def test_every_knob_of_every_structure_has_a_value(
    structures: Callable[[], Iterator[Workload]], target: Target
) -> None:
    found = [s for w in structures() for offers in (USUAL, LEAST) for s in sketches_of(w, target, offers)]
    assert found
    assert all(knob.values for sketch in found for knob in sketch.knobs)
