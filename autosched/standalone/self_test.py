"""The check of a stand-alone file, before its first call and when it is run, between guard bands, and its latency.

Inputs are random, and PyTorch in float64 is what results are compared with.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from autosched.backends.printing.quoting import comment, quoted
from autosched.standalone.launchers import FIRST_CALL, LaidOut
from search_spaces import Workload
from search_spaces.workloads.dtypes import FLOAT8

_GUARDS = '''\
# Bytes before and after every tensor while the kernels are checked.
_BAND = 2**16


class _Guards:
    """Allocates like torch.empty_strided, between two bands, and fills all of it with what kernels do not compute."""

    def __init__(self):
        self.memory = []
        self.bands = []

    def __call__(self, shape, strides, dtype, device):
        size = (1 + sum((size - 1) * stride for size, stride in zip(shape, strides))) * dtype.itemsize
        # NaN in every floating-point type.
        fill = 0xFF if dtype.is_floating_point else 0x5A
        memory = torch.full((size + 2 * _BAND,), fill, dtype=torch.uint8, device=device)
        self.memory.append(memory)
        self.bands += [(memory[:_BAND], fill), (memory[-_BAND:], fill)]
        return memory[_BAND:-_BAND].view(dtype).as_strided(shape, strides)

    def damaged(self):
        """True if a band was written to."""
        return any(bool((band != fill).any()) for band, fill in self.bands)'''

_WORST = '''\
def _worst{suffix}(device):
    """Largest error of the kernels on random inputs, as a fraction of the tolerance.

    Infinite where they leave a part of a result unwritten, or write to their inputs or outside of any tensor.
    """
    guards = _Guards()
    inputs = _inputs{suffix}(torch.Generator(device).manual_seed(0), guards)
    before = [memory.clone() for memory in guards.memory]
    got = {launched}(*inputs, guards)
    if guards.damaged() or not all(map(torch.equal, guards.memory, before)):
        return math.inf
{compared}
    return max(_error(*tensors) for tensors in zip(got, exact, usual))'''

_CHECKED = '''\
@functools.cache
def {checked}(device):
    """Raise RuntimeError unless the kernels are right on this device: asked once, before the first call there."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("{function} checks its kernels at its first call; expected one before a graph is captured")
    worst = _worst(device)
    if worst > 1:
        raise RuntimeError(
            f"{function} is wrong here: on random inputs its largest error is {{worst:.2g}} of what is allowed "
            "(inf: something was left unwritten, or written elsewhere); nothing was computed, tune it again"
        )'''


def worst_text(launched: str, compared: Iterable[str], suffix: str = "") -> str:
    """The function of this suffix that compares `launched`, which takes the inputs and an allocator.

    `compared`: lines that define `exact` and `usual`, and make sequences of all results.
    """
    lines = "\n".join(f"    {line}" for line in compared)
    return _WORST.format(launched=launched, compared=lines, suffix=suffix)


def worst_of_all(suffixes: Iterable[str]) -> str:
    """The comparison of all functions of these suffixes, one after the other."""
    each = ", ".join(f"_worst{suffix}(device)" for suffix in suffixes)
    return f'def _worst(device):\n    """The largest error of all parts, each by itself."""\n    return max([{each}])'


def first_call_text(function: str, *worst: str) -> str:
    """The function that is called before all else, and its helpers, `worst` among them."""
    return "\n\n\n".join([_GUARDS, *worst, _CHECKED.format(checked=FIRST_CALL, function=function)])


RANDOM = '''\
def _random(shape, strides, dtype, generator, empty, integers=(-8, 9)):
    """Standard normal numbers, or integers from the first of `integers` below the second."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
    if dtype.is_floating_point:
        drawn = torch.randn(span, generator=generator, device=generator.device)
    else:
        drawn = torch.randint(*integers, (span,), generator=generator, device=generator.device)
    tensor = empty(shape, strides, dtype=dtype, device=generator.device)
    tensor.as_strided((span,), (1,)).copy_(drawn)
    return tensor'''

_ERROR = '''\
# Float32 sums of at most {longest} terms, in whatever order, are off by the root of that many roundings, 2^-24 of the
# largest each; twice that is allowed{dots}.
_SUMS = {sums}


def _error(got, exact, usual):
    """The largest error as a fraction of what is allowed.

    That is 4 times the largest error of PyTorch {usual}, one rounding to the type of the result, and `_SUMS` of the
    largest value. Integers are compared where PyTorch has the same ones in float64.
    """
    dtype = got.dtype
    if not dtype.is_floating_point:
        exact, usual = exact.to(dtype), usual.to(dtype)
        return 0.0 if bool(((got == usual) | (usual != exact)).all()) else math.inf
    got, exact, usual = got.double(), exact.double(), usual.double()
    same = (got == exact) | (got == usual) | (got.isnan() & exact.isnan())
    kind = torch.finfo(dtype)
    if dtype.itemsize == 1:
        exact, usual = exact.clamp(kind.min, kind.max), usual.clamp(kind.min, kind.max)
    finite = exact.isfinite() & usual.isfinite()
    if not bool(finite.any()):
        return 0.0 if bool(same.all()) else math.inf
    usual_error = (usual - exact).abs()[finite].max()
    allowed = 4 * usual_error + kind.eps * exact.abs() + _SUMS * exact[finite].abs().max() + kind.tiny
    errors = torch.where(finite, (got - exact).abs() / allowed, torch.where(same, 0.0, math.inf))
    return errors.nan_to_num(math.inf, math.inf).max().item()'''

_LATENCY = '''\
def _latency_us(call):
    """Latency of a call with hot caches, in microseconds: in a CUDA graph, so that no launch waits for Python."""
    call()
    torch.cuda.synchronize()
    graph, calls = torch.cuda.CUDAGraph(), 20
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    graph.replay()
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3 / calls'''

_MAIN = '''\
def _self_test():
    """Print one line; whether the results are right."""
    # On a CPU with TRITON_INTERPRET=1 only.
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    worst = _worst(device)
    verdict = "right" if worst <= 1 else "WRONG"
    label = "{label}"
    line = f"{{label}}: {{verdict}}, the largest error is {{worst:.2g}} of what is allowed"
    if device.type == "cuda" and worst <= 1:
        inputs = _inputs(torch.Generator(device).manual_seed(0), torch.empty_strided)
        took = _latency_us(lambda: {function}(*inputs))
        line += f"; {{took:.1f}} us with hot caches on {{torch.cuda.get_device_name()}}"
        line += " ({tuned})"
    print(line)
    return worst <= 1


if __name__ == "__main__":
    sys.exit(0 if _self_test() else 1)'''

# Tolerance of sums of dots, as a fraction of the largest result, where products or sums keep fewer bits.
_DOTS: Mapping[str, tuple[float, str]] = {
    "tf32": (2.0**-7, "; operands of dots are cut to tf32, which keeps 10 bits"),
    "fast": (2.0**-4, "; sums of 8-bit floats stay in tensor cores, which keep 13 bits of them"),
    "float8": (2.0**-8, "; sums of 8-bit floats keep 13 bits in tensor cores, for 128 products at a time"),
}


def error_text(workloads: Iterable[Workload], usual: str) -> str:
    """The function that judges results. `usual`: the types in which PyTorch makes the usual error."""
    longest, allowed, dots = 1, 0.0, ""
    for workload in workloads:
        longest = max([longest, *(s.terms for s in workload.stages)])
        kind = "float8" if any(d in FLOAT8 for d in workload.contracted) else ""
        kind = workload.precision if workload.precision in _DOTS else kind
        if kind and _DOTS[kind][0] > allowed:
            allowed, dots = _DOTS[kind]
    sums_text = f"{max(allowed, math.sqrt(longest) * 2.0**-23):.1e}"
    return _ERROR.format(longest=longest, dots=dots, sums=sums_text, usual=usual)


@dataclass(frozen=True, order=True)
class Cut:
    """The number of positions that bounds of segments cut, and their kind: see `_bounds`."""

    size: int
    kind: str = "ends"


def inputs_text(
    tensors: Iterable[LaidOut],
    sizes: Mapping[str, int],
    integers: tuple[int, int] | None = None,
    places: Mapping[str, int] | None = None,
    suffix: str = "",
    bounds: Mapping[str, Cut] | None = None,
) -> str:
    """The function of this suffix that draws inputs.

    `sizes`: for inputs used as indices, the size of the dimension that they index; `places`: the same of those that
    may be of different elements only; `integers`: the range of other integers wider than 8 bits; `bounds`: for those
    that are bounds of segments, what they cut.
    """
    lines = [f"def _inputs{suffix}(generator, empty):", "    return ["]
    for t in tensors:
        given = [str(t.shape), str(t.effective_strides), f"torch.{t.dtype}", "generator", "empty"]
        if cut := (bounds or {}).get(t.name):
            lines.append(f"        _bounds({', '.join(given)}, {cut.size}, {cut.kind!r}),  {comment([t.name], '#')}")
            continue
        if t.name in (places or {}):
            lines.append(f"        _places({', '.join(given)}, {(places or {})[t.name]}),  {comment([t.name], '#')}")
            continue
        if t.name in sizes:
            given.append(f"(0, {sizes[t.name]})")
        elif t.dtype == "bool":
            given.append("(0, 2)")
        elif integers is not None and not getattr(torch, t.dtype).is_floating_point:
            given.append(str(integers))
        lines.append(f"        _random({', '.join(given)}),  {comment([t.name], '#')}")
    return "\n".join([*lines, "    ]"])


def main_text(function: str, label: str, tuned: str) -> str:
    """The main program of the file."""
    return "\n\n\n".join([_LATENCY, _MAIN.format(function=function, label=quoted(label), tuned=quoted(tuned))])
