"""Contenders of a tuned kernel: every other way to compute the same, ready to be called."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from autosched.baselines.baselines import Baseline, baseline, library_name
from autosched.baselines.names import COMPILED_BASELINES, BaselineName
from autosched.checking import reference
from autosched.kernels.kernel import Kernel
from autosched.kernels.tier import Tier, tiers_text
from autosched.machine.timing import Timer, interleaved
from autosched.tracing import TracedKernel
from search_spaces import Workload
from tuning_logs.text import first_line

_INTO_OUT = "writes to a given output"
_ALLOCATES = "allocates"
# Without CUDA graphs, which would copy the inputs, and leave out the launches that all others pay for.
_MAX_AUTOTUNE = "max-autotune-no-cudagraphs"
# The ways of a library that are nearly as fast as its fastest may be mistaken for it; those that are twice as slow not.
_ROUNDS_OF_WAYS = 7


@dataclass(frozen=True)
class Contender:
    """One way to compute something. `name` is "tuned" or a baseline's, `compile_s` the time to compile it, if any.

    `way`: the fastest of a library's, where it has several.
    """

    name: str
    label: str
    note: str
    call: Callable[[], object]
    compile_s: float | None = None
    way: str = ""


@dataclass(frozen=True)
class Absent:
    """A baseline that cannot be timed here, with the reason."""

    name: str
    label: str
    why: str


def contenders(
    kernel: Kernel | TracedKernel,
    inputs: Sequence[Tensor],
    baselines: Sequence[BaselineName],
    own: Mapping[str, Callable[..., object]],
    timer: Timer,
) -> Iterator[Contender | Absent]:
    """The tuned kernel, then the baselines in the order given, each called once; without those that do not apply.

    `own`: functions of the user's, which come last. `timer` finds the fastest of a library's ways. A traced function
    has two: itself, and itself compiled. PyTorch forgets what torch.compile has compiled in this process before, so
    that earlier variants do not count against its limit.
    """
    yield _tuned(kernel, inputs)
    if set(baselines) & set(COMPILED_BASELINES):
        torch.compiler.reset()
    for name in baselines:
        if isinstance(kernel, TracedKernel):
            found = _ways_of_function(name, kernel.traced.function, inputs)
        else:
            found = _ways(name, kernel, inputs, baseline(kernel.workload), timer)
        for contender in found:
            yield _called_once(contender, kernel.device)
    for called, function in own.items():
        yield _called_once(Contender(called, called, "given", partial(function, *inputs)), kernel.device)


def _tuned(kernel: Kernel | TracedKernel, inputs: Sequence[Tensor]) -> Contender:
    if isinstance(kernel, TracedKernel):
        note = _with_tiers(_ALLOCATES, kernel.tiers)
        return Contender("tuned", "tuned", note, lambda: kernel(*inputs))
    outs = _outputs(kernel)
    out = outs[0] if len(outs) == 1 else outs
    return Contender("tuned", "tuned", _with_tiers(_INTO_OUT, [kernel.tier]), lambda: kernel(*inputs, out=out))


def _with_tiers(note: str, tiers: Sequence[Tier]) -> str:
    """The note, and the tiers where one is not exact."""
    return note if set(tiers) == {Tier.EXACT} else f"{note}, tier: {tiers_text(tiers)}"


def _ways_of_function(
    name: BaselineName, function: Callable[..., object], inputs: Sequence[Tensor]
) -> Iterator[Contender | Absent]:
    if name == "eager":
        yield Contender(name, "PyTorch eager", _ALLOCATES, lambda: function(*inputs))
    elif name == "compile" or name == "max-autotune":
        yield _compiled(name, function, inputs)


def _ways(
    name: BaselineName, kernel: Kernel, inputs: Sequence[Tensor], known: Baseline | None, timer: Timer
) -> Iterator[Contender | Absent]:
    """The contender of that name, or nothing where the workload has none."""
    workload = kernel.workload
    if name == "parts":
        note = f"one PyTorch call per operation, {_ALLOCATES}"
        yield Contender(name, "as its parts", note, lambda: reference.as_written(workload, inputs))
    elif name == "compile" or name == "max-autotune":
        yield _compiled(name, _function(workload, known), inputs)
    elif known is None:
        return
    elif name == "eager":
        eager = known.eager
        yield Contender(name, "PyTorch eager", f"{known.called}, {_ALLOCATES}", lambda: eager(*inputs))
    elif known.ways is not None and name == "library":
        label = f"{library_name(workload, kernel.device)} library"
        yield fastest_way(name, label, known.called, known.ways(inputs), timer)
    elif name == "converting":
        if known.converting is not None:
            label = f"{library_name(workload, kernel.device)} with conversions"
            yield fastest_way(name, label, known.called, known.converting(inputs), timer)
    elif known.library is not None:
        yield _library(name, kernel, inputs, known)


def _library(
    name: Literal["library", "cublaslt"], kernel: Kernel, inputs: Sequence[Tensor], known: Baseline
) -> Contender | Absent:
    run, (out,), vendor = known.library, _outputs(kernel), library_name(kernel.workload, kernel.device)
    assert run is not None
    note = f"{known.called}, {_INTO_OUT}"
    if name == "library":
        return Contender(name, f"{vendor} library", note, lambda: run(inputs, out))
    if vendor != "cuBLAS":
        return Absent(name, "cuBLASLt", f"not available: this workload runs on {vendor} here")
    return Contender(name, "cuBLASLt", f"{note}, cuBLASLt preferred", lambda: _by_cublaslt(lambda: run(inputs, out)))


def fastest_way(
    name: BaselineName, label: str, called: str, ways: Mapping[str, Callable[[], object]], timer: Timer
) -> Contender | Absent:
    """The fastest of a library's ways, in interleaved rounds after a call of each, without those that it refuses."""
    usable: dict[str, Callable[[], object]] = {}
    why = "it has no way to compute this"
    for way, call in ways.items():
        try:
            call()
            usable[way] = call
        except (RuntimeError, ValueError) as error:
            why = first_line(error)
    if not usable:
        return Absent(name, label, f"not available: {why}")
    samples = interleaved(usable, _ROUNDS_OF_WAYS, timer)
    way = min(usable, key=lambda way: statistics.median(samples[way]))
    note = f"{called}, {way}: the fastest of {len(usable)} ways, {_ALLOCATES}"
    return Contender(name, label, note, usable[way], way=way)


def _by_cublaslt(run: Callable[[], object]) -> None:
    """One call with PyTorch's preference set, which costs the host less than a microsecond."""
    before = torch.backends.cuda.preferred_blas_library()
    torch.backends.cuda.preferred_blas_library("cublaslt")
    try:
        run()
    finally:
        torch.backends.cuda.preferred_blas_library(before)


def _function(workload: Workload, known: Baseline | None) -> Callable[..., object]:
    return known.eager if known is not None else lambda *tensors: reference.as_written(workload, tensors)


def _compiled(name: BaselineName, function: Callable[..., object], inputs: Sequence[Tensor]) -> Contender | Absent:
    """The function compiled by PyTorch (at its first call), or the reason why it cannot be."""
    label, mode = ("torch.compile", None) if name == "compile" else ("max-autotune", _MAX_AUTOTUNE)
    begin = time.perf_counter()
    try:
        compiled = torch.compile(function, dynamic=False, mode=mode)
        compiled(*inputs)
    except (RuntimeError, OSError, ImportError) as error:
        # Inductor needs a C++ compiler or Triton; what it raises without one is a RuntimeError, of many kinds.
        return Absent(name, label, f"not available: {first_line(error)}")
    taken = time.perf_counter() - begin
    note = f"mode {mode}, {_ALLOCATES}" if mode else _ALLOCATES
    return Contender(name, label, f"{note}, compiled in {taken:.1f} s", lambda: compiled(*inputs), taken)


def _called_once(contender: Contender | Absent, device: torch.device) -> Contender | Absent:
    """The contender after a call, or its failure: a library that refuses a dtype loses its own row only."""
    if isinstance(contender, Absent):
        return contender
    try:
        contender.call()
        if device.type == "cuda":
            # Errors on the device are reported late, and would be attributed to the next contender.
            torch.cuda.synchronize(device)
    except (RuntimeError, ValueError) as error:
        return Absent(contender.name, contender.label, f"not available: {first_line(error)}")
    return contender


def _outputs(kernel: Kernel) -> tuple[Tensor, ...]:
    return tuple(output.allocated() for output in kernel.outputs)
