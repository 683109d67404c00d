"""Whether a random program comes out right: its kernels under the checks of a trial, its results against PyTorch's.

What a program should give is known as far as PyTorch's own rounding goes (`autosched.checking.functions.judgement`).
"""

from __future__ import annotations

import functools
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import best_spaces
from autosched import InputError, Kernel, Target, Workload, trace
from autosched.backends.spaces import why_no_schedule
from autosched.checking.functions.judgement import Expected
from autosched.checking.trial_data import TrialData
from autosched.tracing import loaded
from autosched.tracing.callables.cutting import trace_function
from autosched.tracing.callables.whole_check import outcome
from program_writer import Program
from schedule_checks import fault
from search_spaces import EmptySearchSpaceError
from untuned import untuned_kernel

Kind = Literal[
    "right", "as_written", "refused", "wrong", "misplaced", "unsafe", "untunable", "faulty", "crashed", "no_program"
]
# What a trial says of a kernel that reads or writes what is not its own.
_UNSAFE = ("out_of_bounds_write", "out_of_bounds_read", "changed_input")
_NARROW = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# So many schedules are tried at most until one of them works.
_MOST_TRIED = 24


@dataclass(frozen=True)
class Finding:
    """What became of a program. `misplaced`: a result by other strides than PyTorch's, or in memory that it shares
    otherwise; `as_written`: no rule applies; `unsafe`: a kernel that touches what is not its own. `faulty`: kernels
    that the checks of a trial caught, by status, though others work.
    """

    seed: int
    kind: Kind
    detail: str = ""
    kernels: int = 0
    schedules: int = 0
    faulty: tuple[str, ...] = ()


def check(
    program: Program, target: Target, schedules: int, allow_fallback: bool = False, rewritten: bool = False
) -> Finding:
    """Trace the program, build and check so many schedules of each of its kernels, and compare its results.

    `rewritten`: not as it is written, but in every cut in which a rule of any exactness was applied, all inputs but the
    first being constants.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _checked(program, target, schedules, allow_fallback, rewritten)
        except Exception:
            # Whatever it is, it is what is looked for.
            return Finding(program.seed, "crashed", traceback.format_exc(limit=-4))


@dataclass(frozen=True)
class _Wanted:
    """A program on a device, the arguments to trace it with, and what PyTorch makes of them.

    `required`: which of the inputs a gradient is computed of; `lies`: where results are; `foretold`: their strides by
    shape functions.
    """

    program: Program
    required: tuple[bool, ...]
    examples: Sequence[Tensor]
    lies: list[ResultPlace]
    foretold: list[tuple[int, ...]]
    expected: Expected


def _checked(program: Program, target: Target, schedules: int, allow_fallback: bool, rewritten: bool) -> Finding:
    try:
        wanted = _wanted(program.on(torch.device("cpu")), program.on(device_of(target)))
    except Exception as error:
        return Finding(program.seed, "no_program", f"{type(error).__name__}: {error}")
    try:
        cuts = (_rewritten if rewritten else _as_written)(wanted, target, allow_fallback)
    except InputError as error:
        return Finding(program.seed, "refused", str(error))
    findings = [_of_cut(cut, wanted, target, schedules) for cut in cuts]
    bad = next((f for f in findings if f.kind != "right"), None)
    kernels, tried = sum(f.kernels for f in findings), sum(f.schedules for f in findings)
    return bad or Finding(program.seed, "right" if findings else "as_written", "", kernels, tried)


def _wanted(home: Program, program: Program) -> _Wanted:
    inputs = program.inputs
    required = _required(program, inputs)
    examples = [x.detach().requires_grad_(w) for x, w in zip(inputs, required, strict=True)] if required else inputs
    lies = places(examples, _tensors(program.function(*examples)))
    foretold = _foretold(program, examples)
    # On a CPU: on a GPU PyTorch's own `rms_norm` gives NaN for a whole row in which one number is infinite.
    at_home = functools.partial(outcome, home.function, required)
    expected = Expected(at_home, home.inputs, _epsilon(program, inputs), nan=not required)
    return _Wanted(program, required, examples, lies, foretold, expected)


def _as_written(wanted: _Wanted, target: Target, allow_fallback: bool) -> list[Any]:
    backward: Any = {"backward": True} if wanted.required else {}
    traced = trace(wanted.program.function, *wanted.examples, allow_fallback=allow_fallback, **backward)
    return [traced.for_target(target)]


def _rewritten(wanted: _Wanted, target: Target, allow_fallback: bool) -> list[Any]:
    """All cuts with rewrites that the target can compute, also those that are not worth measuring."""
    static = frozenset(range(1, len(wanted.examples)))
    traced = trace_function(wanted.program.function, wanted.examples, allow_fallback, static=static, numerics="fold")
    assert traced.again is not None
    here = traced.again(traced.settings.on_target(target), target)
    return [c for c in here.cuts if c.rewrites and all(why_no_schedule(w, target) is None for w in c.workloads)]


def _of_cut(traced: Any, wanted: _Wanted, target: Target, schedules: int) -> Finding:
    seed, inputs = wanted.program.seed, wanted.program.inputs
    kernels: dict[str, Kernel] = {}
    faulty: list[str] = []
    tried = 0
    for workload in traced.workloads:
        try:
            tally = try_schedules(workload, target, schedules, seed)
        except EmptySearchSpaceError as error:
            return Finding(seed, "untunable", f"{error}\n{workload}", len(traced.workloads))
        tried += tally.tried
        faulty += tally.faults
        if tally.kernel is None:
            shown = "\n".join(dict.fromkeys(tally.faults))
            return Finding(seed, "untunable", f"{workload}\n{shown}", len(traced.workloads), tried)
        kernels[workload.key] = tally.kernel
    statuses = tuple(fault.split(":")[0] for fault in faulty)
    kind: Kind = "unsafe" if set(statuses) & set(_UNSAFE) else "faulty" if faulty else "right"
    kernel = loaded(traced, kernels)
    # On the program's own inputs, and before that on random ones.
    found = outcome(kernel, wanted.required, *inputs)
    reason = wanted.expected.why_wrong(found)
    # Processors convert what no integer holds each in its own way: the device's own results are right, too.
    if reason and not _same(found, outcome(wanted.program.function, wanted.required, *inputs)):
        return Finding(seed, "wrong", f"{reason}\n{traced}", len(kernels), tried, statuses)
    misplaced = why_misplaced(wanted.examples, _tensors(kernel(*wanted.examples)), wanted.lies, wanted.foretold)
    if misplaced and kind == "right":
        return Finding(seed, "misplaced", f"{misplaced}\n{traced}", len(kernels), tried, statuses)
    return Finding(seed, kind, "\n".join(faulty), len(kernels), tried, statuses)


def _same(results: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(map(_bits, results), map(_bits, others), strict=True))


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8) if x.dim() else x.reshape(1).view(torch.uint8)


def why_misplaced(
    inputs: Sequence[Tensor],
    results: Sequence[Tensor],
    wanted: list[ResultPlace],
    foretold: Sequence[tuple[int, ...]],
) -> str | None:
    """Which result lies by other strides than PyTorch's, or shares memory with another tensor before it.

    `foretold`: the strides that PyTorch's own shape functions give, as it traces by: of powers of a number and of
    `copysign` these are not what its kernels make.
    """
    for number, (got, right) in enumerate(zip(places(inputs, results), wanted, strict=False)):
        if got != right and got != (foretold[number], *right[1:]):
            return f"result {number} lies by strides {got}, expected {right}"
    return None


# The strides of a result, but for dimensions of size 1, where PyTorch has others for tensors without data; the tensor
# before it, of inputs and results, in whose memory it is, and how many bytes apart they begin.
ResultPlace = tuple[tuple[int, ...], str, int]


def places(inputs: Sequence[Tensor], results: Sequence[Tensor]) -> list[ResultPlace]:
    """Where the results lie."""
    known = {f"input {n}": x for n, x in enumerate(inputs)}
    found = []
    for number, result in enumerate(results):
        storage = result.untyped_storage()._cdata
        name = next((n for n, t in known.items() if t.untyped_storage()._cdata == storage), "new")
        apart = 0 if name == "new" else (result.storage_offset() - known[name].storage_offset()) * result.itemsize
        strides = tuple(0 if size == 1 else s for size, s in zip(result.shape, result.stride(), strict=True))
        found.append((strides, name, apart))
        known[f"result {number}"] = result
    return found


def _foretold(program: Program, inputs: Sequence[Tensor]) -> list[tuple[int, ...]]:
    """The strides of the results by PyTorch's shape functions."""
    # What it closes over is no fake tensor.
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    given = [mode.from_tensor(x) for x in inputs]
    with mode:
        results = _tensors(program.function(*given))
    return [strides for strides, _, _ in places(given, results)]


@dataclass
class Tally:
    """What became of the schedules of one workload: the first kernel that works, and what was wrong with others."""

    kernel: Kernel | None
    tried: int
    faults: list[str]


def try_schedules(workload: Workload, target: Target, wanted: int, seed: int) -> Tally:
    """Put schedules to the checks of a trial until so many were run and one of them is right.

    Raises:
        EmptySearchSpaceError: there are none.
    """
    space = best_spaces.build(workload, target)
    rng = np.random.default_rng(seed)
    data = TrialData.drawn(workload, seed % 2**31, device_of(target))
    starts = space.seeds()
    rng.shuffle(starts)
    tally, run = Tally(None, 0, []), 0
    for number in range(_MOST_TRIED):
        if run >= wanted and tally.kernel is not None:
            break
        schedule = starts[number] if number < min(len(starts), wanted // 2) else space.sample(rng)
        tally.tried += 1
        found = fault(schedule, data, target)
        # What a GPU needs of registers and shared memory is an estimate: what does not fit there is no fault.
        if found and not (target.kind == "gpu" and found.startswith(("compile_error", "load_error"))):
            tally.faults.append(f"{found}\n{workload}")
        run += found is None
        if found is None and tally.kernel is None:
            tally.kernel = untuned_kernel(schedule, workload, target)
    return tally


def _epsilon(program: Program, inputs: Sequence[Tensor]) -> float:
    """Of the narrowest type that it computes in."""
    kinds = {x.dtype for x in inputs} | {t for name, t in _NARROW.items() if name in program.text} | {torch.float32}
    return max(torch.finfo(kind).eps for kind in kinds if kind.is_floating_point)


def device_of(target: Target) -> torch.device:
    return torch.device("cuda" if target.kind == "gpu" else "cpu")


def _required(program: Program, inputs: Sequence[Tensor]) -> tuple[bool, ...]:
    """Of every input whether a gradient of it is wanted; nothing where the program has none."""
    wanted = tuple(program.differentiated and x.dtype.is_floating_point for x in inputs)
    given = [x.detach().requires_grad_(w) for x, w in zip(inputs, wanted, strict=True)]
    return wanted if any(r.requires_grad for r in _tensors(program.function(*given))) else ()


def _tensors(made: Any) -> tuple[Tensor, ...]:
    return (made,) if isinstance(made, Tensor) else tuple(made)
