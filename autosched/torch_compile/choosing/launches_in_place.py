"""Other ways to launch the kernels of a segment, where they are faster in their place.

Early: kernels are on the device before those before them end, which hides the time of a launch. It also takes room from
the kernel that ends, and spreads the next one less evenly.

Weights ahead: while kernels run that leave the memory idle, a branch of the graph brings the weights of later ones into
the L2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from autosched.backends.gpu.early_launch import launches_early
from autosched.kernels.kernel import Kernel
from autosched.planning.weights_ahead import FEWEST_BYTES, brings_ahead
from autosched.torch_compile.choosing.place import Place, noted
from autosched.tracing import TracedKernel
from search_spaces import Target
from tuning_logs import Measurement
from tuning_logs.alternative import Alternative


@dataclass(frozen=True)
class _Way:
    """A way to launch. `of`: its note in a measurement; `noted`: one with it; `on`: devices; `pays`: for a kernel."""

    name: str
    of: Callable[[Measurement], Alternative | None]
    noted: Callable[[Measurement, Alternative], Measurement]
    on: Callable[[Target], bool]
    pays: Callable[[Kernel], bool]


_WAYS = (
    _Way("early launch", lambda m: m.early, lambda m, note: replace(m, early=note), launches_early, lambda _: True),
    _Way(
        "weights ahead",
        lambda m: m.ahead,
        lambda m, note: replace(m, ahead=note),
        brings_ahead,
        lambda kernel: max(kernel.input_bytes, default=0) >= FEWEST_BYTES,
    ),
)


def with_launches_in_place(kernel: TracedKernel, place: Place) -> TracedKernel:
    """The segment with its kernels launched in the ways that are faster in place beyond noise; noted in their records.

    Only ways that none of these has a note of.
    """
    for way in _WAYS:
        kernel = _with_way(way, kernel, place)
    return kernel


def _with_way(way: _Way, kernel: TracedKernel, place: Place) -> TracedKernel:
    own = {w.key: kernel.by_key[w.key] for w in kernel.traced.launched}
    known = any(way.of(k.record.measurement) for k in own.values())
    if known or place.deadline.over or len(kernel.traced.launched) < 2 or not way.on(kernel.target):
        return kernel
    if not any(map(way.pays, own.values())):
        return kernel

    def launched(note: Alternative) -> TracedKernel:
        return kernel.with_kernels({k: noted(o, way.noted(o.record.measurement, note)) for k, o in own.items()})

    found = place.timed(way.name, kernel, launched(Alternative(way.name, 1.0, 1.0, 1.0, taken=True)))
    return kernel if found is None else launched(found)
