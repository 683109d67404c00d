"""Measured peaks of the device: the rate of dots by element type, and the bandwidth of a copy; nothing nominal."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from autosched.baselines.baselines import library_call, library_settings
from autosched.checking.random_inputs import empty, random_inputs
from autosched.machine import timing
from autosched.machine.timing import Run, Timer, timer_for
from autosched.tracing import TracedFunction
from search_spaces import AutoschedError, Target, Workload, ops
from search_spaces.workloads.dtypes import FLOAT8

Op = Workload | TracedFunction

# Sides of square products, of which the fastest counts: large enough to hide the edges; where power is the limit, the
# largest is not the fastest.
_SIDES = {"gpu": (4096, 8192, 12288), "cpu": (512, 1024, 2048)}
# Bytes of the copied tensor: many times the caches.
_COPIED_BYTES = {"gpu": 2**30, "cpu": 2**28}
# The best of so many calls counts, as a peak is the highest rate; fewer if one call takes long because the library has
# no fast code for that type.
_CALLS = 20
_PATIENCE_S = 0.5


@dataclass(frozen=True)
class Peaks:
    """Rates per second, each that of the fastest call.

    `dots` has the operations of square products by the library, by the element type of the operands ("tf32" is one of
    its own), without types that the library does not multiply. `copied` is bytes of a copy, read and written.
    """

    dots: tuple[tuple[str, float], ...]
    copied: float

    def dot_rate(self, op: Op) -> float | None:
        """The peak rate for its first dots; None if it has none, or the library none of that type."""
        return dict(self.dots).get(dot_dtype(op) or "")

    def bound_s(self, op: Op) -> float | None:
        """Seconds at these rates (roofline): its dots, or each byte from or to memory once, whichever takes longer.

        For a function, all of its dots, and the bytes of its arguments and results: tensors between its kernels need
        not be in memory. None if it has dots of a type without a measured rate. Operands in a cache can be faster.
        """
        dots = self._dots_s(op)
        return None if dots is None else max(dots, op.min_bytes / self.copied)

    def bounded_by_dots(self, op: Op) -> bool:
        """True if it is compute-bound: its dots take longer."""
        return (self._dots_s(op) or 0.0) > op.min_bytes / self.copied

    def _dots_s(self, op: Op) -> float | None:
        rates, seconds = dict(self.dots), 0.0
        for workload in launched(op):
            if dots := dot_flops(workload):
                rate = rates.get(dot_dtype(workload) or "")
                if rate is None:
                    return None
                seconds += dots / rate
        return seconds


def launched(op: Op) -> tuple[Workload, ...]:
    """The workloads of its kernels, one for every launch."""
    return op.launched if isinstance(op, TracedFunction) else (op,)


def dot_flops(op: Op) -> int:
    """Operations of its contractions, a multiply-add being two; 0 when it has none."""
    return sum(stage.dot_flops for workload in launched(op) for stage in workload.stages if stage.is_contraction)


def dot_dtype(op: Op) -> str | None:
    """The element type that its first contraction multiplies, "tf32" being one; None when it has none."""
    if not op.contracted:
        return None
    return "tf32" if op.precision == "tf32" else op.contracted[0]


def measure_peaks(computed: Iterable[Op], target: Target) -> Peaks:
    """The peaks that bound these, on a target that must be on this machine."""
    dtypes = sorted({dtype for op in computed for w in launched(op) if (dtype := dot_dtype(w)) is not None})
    # A CPU computes in float32 with narrower types, for which its library may have no fast code.
    floor = {"float32"} if target.kind == "cpu" and dtypes else set()
    rates = {dtype: max(_dot_rates(dtype, target), default=0.0) for dtype in {*dtypes, *floor}}
    reached = ((dtype, max(rates[d] for d in {dtype, *floor})) for dtype in dtypes)
    return Peaks(tuple((dtype, rate) for dtype, rate in reached if rate), _copy_rate(target))


def _dot_rates(dtype: str, target: Target) -> Iterator[float]:
    """The rates of the sides that work: the library may refuse a type, and a small device lacks the memory."""
    for side in _SIDES[target.kind]:
        try:
            seconds = _square_s(side, dtype, target)
        except (AutoschedError, RuntimeError):
            return
        if seconds is None:
            return
        yield 2 * side**3 / seconds
        if seconds > _PATIENCE_S:
            return


def _square_s(side: int, dtype: str, target: Target) -> float | None:
    """The fastest call of the library's product; None if it has none.

    Raises:
        AutoschedError, RuntimeError: it refuses the type, or memory is short.
    """
    # Stored as [n, k], like the weights of a linear layer, as 8-bit types must be. These at the rate of the tensor
    # core's own accumulator, which is the highest.
    square = ops.matmul(side, side, side, dtype=dtype, layout="nt", fast_accum=dtype in FLOAT8)
    device = _device(target)
    with library_settings(square.precision, target), torch.no_grad():
        inputs = random_inputs(square, 0, device)
        outs = [empty(t, device) for t in square.outputs]
        call = library_call(square, inputs, outs)
        return None if call is None else _fastest_s(call, timer_for(target, "hot", products=True))


def _copy_rate(target: Target) -> float:
    elements = _COPIED_BYTES[target.kind] // 4
    # Declares the timer's workload: memory-bound.
    stream = ops.gelu_scale(elements)
    with library_settings(stream.precision, target):
        (source,) = random_inputs(stream, 0, _device(target))
        copy = torch.empty_like(source)
        return 2 * 4 * elements / _fastest_s(lambda: copy.copy_(source), timer_for(target, "hot"))


def _fastest_s(call: Run, timer: Timer) -> float:
    call()
    begin = time.perf_counter()
    (first,) = timing.interleaved({"": call}, 1, timer)[""]
    round_s = max(time.perf_counter() - begin, 1e-6)
    more = min(max(1, int(_PATIENCE_S / round_s)), _CALLS)
    return min(first, *timing.interleaved({"": call}, more, timer)[""])


def _device(target: Target) -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if target.kind == "gpu" else torch.device("cpu")
