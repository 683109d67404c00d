"""The order of launches of a graph's kernels: each when the one before it has ended, or while it ends.

Which is faster is timed where a graph is tuned, and remembered next to its kernels for where it is not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from autosched.torch_compile.graphs import on_data
from autosched.torch_compile.kernel_cache import early_kernels, faster_order, remember_order
from autosched.torch_compile.parts import Part
from autosched.torch_compile.reports import Order
from tuning_logs.text import first_line

_log = logging.getLogger(__name__)
# The first kernel of a plan follows on anything.
_FEWEST_LAUNCHES = 2
# Seconds of a graph by the names of its parts, or the reason that there are none.
Timed = Callable[[Mapping[Order, tuple[Part, ...]]], Mapping[Order, float] | str]


@dataclass(frozen=True)
class Ordered:
    """Parts of a graph with their kernels in an order; `seconds`: of the graph in either, where it was timed now."""

    parts: tuple[Part, ...]
    order: Order = "in order"
    seconds: tuple[tuple[Order, float], ...] = ()


def in_the_faster_order(parts: tuple[Part, ...], graphs: bool, timed: Timed | None) -> Ordered:
    """The parts in the faster order; without `timed`, in that which was faster before, if that is known.

    `graphs`: launches are CUDA graphs.
    """
    usual, key = Ordered(parts), _key(parts, graphs)
    kernels = [p.choice.kernel for p in parts if p.choice.kernel is not None]
    if sum(len(kernel.traced.launched) for kernel in kernels) < _FEWEST_LAUNCHES:
        return usual
    target = kernels[0].target
    if timed is None and faster_order(key, target) != "early":
        return usual
    try:
        early = with_early_launches(parts)
    except Exception as error:
        # A user's model runs all the same.
        _log.info("no kernel is launched early: %s: %s", type(error).__name__, first_line(error))
        return usual
    if early is None or timed is None:
        return usual if early is None else Ordered(early, "early")
    orders: dict[Order, tuple[Part, ...]] = {"in order": parts, "early": early}
    seconds = timed(orders)
    if isinstance(seconds, str) or not seconds:
        return usual
    order: Order = min(seconds, key=lambda each: seconds[each])
    remember_order(key, target, order)
    return Ordered(orders[order], order, tuple(seconds.items()))


def with_early_launches(parts: Sequence[Part]) -> tuple[Part, ...] | None:
    """The same parts by kernels that begin early, as far as there are any; None where there are none.

    Raises:
        AutoschedError: a kernel cannot be built, or is not right.
    """
    with on_data():
        early = early_kernels(each for p in parts if p.choice.kernel is not None for each in p.choice.kernel.kernels)
        if not early:
            return None
        return tuple(p if p.choice.kernel is None else replace(p, call=p.choice.kernel.again(early)) for p in parts)


def _key(parts: Sequence[Part], graphs: bool) -> str:
    """What the times of both orders follow from."""
    kernels = [p.choice.kernel.kernels if p.choice.kernel is not None else () for p in parts]
    sources = [[k.artefact.facts.source for k in each] for each in kernels]
    return repr(([(p.segment.key, p.choice.by) for p in parts], sources, graphs))
