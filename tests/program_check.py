"""Whether a random program comes out right: its kernels under the checks of a trial, its results against PyTorch's.

What a program should give is known only as far as PyTorch's own rounding goes. It is run in its element type, in
float64, and in float64 on inputs that are changed by as much as they are rounded. What moves much there, such as the
position of a maximum among equals, is not compared; of the rest a result may be a few times as far off as PyTorch's.
"""

from __future__ import annotations

import math
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import best_spaces
import numpy as np
import torch
from program_writer import Program
from schedule_checks import fault
from torch import Tensor
from untuned import untuned_kernel

from autosched import InputError, Kernel, Target, Workload, trace
from autosched.checking.trial_data import TrialData
from autosched.tracing import loaded
from search_spaces import EmptySearchSpaceError
from search_spaces.workloads.strides import span

Kind = Literal["right", "refused", "wrong", "misplaced", "unsafe", "untunable", "faulty", "crashed", "no_program"]
# What a trial says of a kernel that reads or writes what is not its own.
_UNSAFE = ("out_of_bounds_write", "out_of_bounds_read", "changed_input")
# How many times PyTorch's own error a result may be off, and how many units in the last place in any case.
_TIMES, _UNITS = 12.0, 24.0
_PERTURBED = 4
# So many schedules are tried at most until one of them works.
_MOST_TRIED = 24


@dataclass(frozen=True)
class Finding:
    """What became of a program. `misplaced`: a result by other strides than PyTorch's, or in memory that it shares
    otherwise; `unsafe`: a kernel that touches what is not its own. `faulty`: kernels that the checks of a trial caught,
    by status, though others work.
    """

    seed: int
    kind: Kind
    detail: str = ""
    kernels: int = 0
    schedules: int = 0
    faulty: tuple[str, ...] = ()


def check(program: Program, target: Target, schedules: int, allow_fallback: bool = False) -> Finding:
    """Trace the program, build and check so many schedules of each of its kernels, and compare its results."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _checked(program, target, schedules, allow_fallback)
        except Exception:
            # Whatever it is, it is what is looked for.
            return Finding(program.seed, "crashed", traceback.format_exc(limit=-4))


def _checked(program: Program, target: Target, schedules: int, allow_fallback: bool) -> Finding:
    inputs = [_like(x, device_of(target), program.differentiated) for x in program.inputs]
    try:
        expected = Expected.of(program, inputs)
    except Exception as error:
        return Finding(program.seed, "no_program", f"{type(error).__name__}: {error}")
    try:
        backward: Any = {"backward": True} if expected.gradients else {}
        traced: Any = trace(program.function, *inputs, allow_fallback=allow_fallback, **backward).for_target(target)
    except InputError as error:
        return Finding(program.seed, "refused", str(error))
    kernels: dict[str, Kernel] = {}
    faulty: list[str] = []
    tried = 0
    for workload in traced.workloads:
        try:
            tally = try_schedules(workload, target, schedules, program.seed)
        except EmptySearchSpaceError as error:
            return Finding(program.seed, "untunable", f"{error}\n{workload}", len(traced.workloads))
        tried += tally.tried
        faulty += tally.faults
        if tally.kernel is None:
            shown = "\n".join(dict.fromkeys(tally.faults))
            return Finding(program.seed, "untunable", f"{workload}\n{shown}", len(traced.workloads), tried)
        kernels[workload.key] = tally.kernel
    statuses = tuple(fault.split(":")[0] for fault in faulty)
    given = expected.fresh()
    made = loaded(traced, kernels)(*given)
    misplaced = why_misplaced(given, _tensors(made), expected)
    kind: Kind = "unsafe" if set(statuses) & set(_UNSAFE) else "faulty" if faulty else "right"
    reason = expected.why_wrong(_with_gradients(made, given, expected.cotangents))
    if reason:
        return Finding(program.seed, "wrong", f"{reason}\n{traced}", len(kernels), tried, statuses)
    if misplaced and kind == "right":
        return Finding(program.seed, "misplaced", f"{misplaced}\n{traced}", len(kernels), tried, statuses)
    return Finding(program.seed, kind, "\n".join(faulty), len(kernels), tried, statuses)


def why_misplaced(inputs: Sequence[Tensor], results: Sequence[Tensor], expected: Expected) -> str | None:
    """Which result lies by other strides than PyTorch's, or shares memory with another tensor before it."""
    wanted = expected.places
    for number, (got, right) in enumerate(zip(places(inputs, results), wanted, strict=False)):
        if got != right:
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
        storage = result.untyped_storage().data_ptr()
        name = next((n for n, t in known.items() if t.untyped_storage().data_ptr() == storage), "new")
        apart = 0 if name == "new" else result.data_ptr() - known[name].data_ptr()
        strides = tuple(0 if size == 1 else s for size, s in zip(result.shape, result.stride(), strict=True))
        found.append((strides, name, apart))
        known[f"result {number}"] = result
    return found


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


def device_of(target: Target) -> torch.device:
    return torch.device("cuda" if target.kind == "gpu" else "cpu")


# What a program should give


@dataclass(frozen=True)
class Expected:
    """What PyTorch gives for a program: its results, and after them the gradients of its inputs."""

    inputs: tuple[Tensor, ...]
    gradients: bool
    cotangents: tuple[Tensor, ...]
    native: tuple[Tensor, ...]
    exact: tuple[Tensor, ...]
    perturbed: tuple[tuple[Tensor, ...], ...]
    places: list[ResultPlace]
    epsilon: float

    @staticmethod
    def of(program: Program, inputs: Sequence[Tensor]) -> Expected:
        function = program.function
        generator = torch.Generator().manual_seed(program.seed % 2**31)
        given = [_leaf(x) for x in inputs]
        results = _tensors(function(*given))
        lies = places(given, results)
        gradients = program.differentiated and any(r.requires_grad for r in results)
        cotangents = tuple(
            torch.randn(r.shape, generator=generator).to(r) if r.requires_grad else torch.zeros(0) for r in results
        )
        names = {x.dtype for x in (*inputs, *results)} | {t for n, t in _NARROW.items() if n in program.text}
        epsilon = max(torch.finfo(t).eps for t in names | {torch.float32} if t.is_floating_point)
        wanted = cotangents if gradients else ()
        native = _outcome(function, [_leaf(x) for x in inputs], wanted)
        exact, *perturbed = (
            _outcome(function, [_wide(x, generator, amount) for x in inputs], wanted)
            for amount in (0.0, *[2 * epsilon] * _PERTURBED)
        )
        return Expected(tuple(inputs), gradients, wanted, native, exact, tuple(perturbed), lies, epsilon)

    def fresh(self) -> list[Tensor]:
        """The inputs, which gradients can be asked of anew."""
        return [_leaf(x) if self.gradients else x.detach() for x in self.inputs]

    def why_wrong(self, got: Sequence[Tensor]) -> str | None:
        """What is wrong with these results and gradients, or None."""
        if len(got) != len(self.native):
            return f"{len(got)} results and gradients, expected {len(self.native)}"
        for number, values in enumerate(zip(got, self.native, self.exact, *self.perturbed, strict=True)):
            if reason := _why_wrong(*values[:3], values[3:], self.epsilon):
                return f"result {number}: {reason}"
        return None


_NARROW = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def _why_wrong(got: Tensor, native: Tensor, exact: Tensor, perturbed: Sequence[Tensor], epsilon: float) -> str | None:
    if got.shape != native.shape or got.dtype != native.dtype:
        return f"{got.dtype} {list(got.shape)}, expected {native.dtype} {list(native.shape)}"
    ours, eager, right = (t.detach().double().cpu() for t in (got, native, exact))
    spread = torch.zeros_like(right)
    for other in perturbed:
        spread = torch.maximum(spread, _apart(other.detach().double().cpu(), right))
    if not got.dtype.is_floating_point:
        wrong = (ours != eager) & (spread == 0) & (eager == right)
        return _first(wrong, ours, eager, right)
    size = right.abs() + 1e-3 * _usual(right)
    own = _apart(eager, right)
    typical = torch.nan_to_num(own / size, nan=0.0, posinf=0.0).flatten()
    quantile = float(typical.quantile(0.9)) if typical.numel() else 0.0
    allowed = (_TIMES * (own + spread + quantile * size) + _UNITS * epsilon * size + 1e-30).nan_to_num(nan=math.inf)
    if got.dtype == torch.float16:
        allowed += 2.0**-22
    # Where float64 and the element type do not agree on what is finite, or on how it is not, nothing is known.
    decided = ((eager.isfinite() & right.isfinite()) | (_apart(eager, right) == 0)) & spread.isfinite()
    same = (ours == eager) | (ours.isnan() & eager.isnan())
    distance = (ours - right).abs()
    wrong = decided & ~same & ~(distance <= allowed)
    return _first(wrong, ours, eager, right)


def _apart(a: Tensor, b: Tensor) -> Tensor:
    """How far two are apart: 0 where both are the same infinity or NaN, infinite where one of them only is."""
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, 0.0, torch.nan_to_num((a - b).abs(), nan=math.inf, posinf=math.inf))


def _usual(values: Tensor) -> float:
    finite = values[values.isfinite()]
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


def _first(wrong: Tensor, ours: Tensor, eager: Tensor, right: Tensor) -> str | None:
    if not bool(wrong.any()):
        return None
    at = tuple(wrong.nonzero()[0].tolist())
    return (
        f"{int(wrong.sum())} of {wrong.numel()} are wrong; the first, {list(at)}, is {float(ours[at]):.9g}; "
        f"PyTorch has {float(eager[at]):.9g}, in float64 {float(right[at]):.9g}"
    )


def _outcome(
    function: Callable[..., Any], inputs: Sequence[Tensor], cotangents: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The results, and the gradients of the inputs where cotangents are given for the results."""
    return _with_gradients(function(*inputs), inputs, cotangents)


def _with_gradients(made: Any, inputs: Sequence[Tensor], cotangents: Sequence[Tensor]) -> tuple[Tensor, ...]:
    results = _tensors(made)
    if not cotangents:
        return results
    pairs = [(r, c.to(r)) for r, c in zip(results, cotangents, strict=True) if c.numel() and r.requires_grad]
    torch.autograd.backward([r for r, _ in pairs], [c for _, c in pairs])
    return (*results, *(x.grad for x in inputs if x.grad is not None))


def _tensors(made: Any) -> tuple[Tensor, ...]:
    return (made,) if isinstance(made, Tensor) else tuple(made)


def _like(tensor: Tensor, device: torch.device, differentiated: bool) -> Tensor:
    """The input on that device, with the strides it has."""
    size = span(tuple(tensor.shape), tensor.stride())
    memory = tensor.as_strided((size,), (1,)).to(device, copy=True)
    made = memory.as_strided(tensor.shape, tensor.stride())
    return made.requires_grad_(differentiated and tensor.dtype.is_floating_point)


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _wide(tensor: Tensor, generator: torch.Generator, amount: float) -> Tensor:
    """The input on the CPU in float64, every element changed by a random part of itself."""
    if not tensor.dtype.is_floating_point:
        return tensor.cpu()
    changes = 1 + amount * (2 * torch.rand(tensor.shape, generator=generator, dtype=torch.float64) - 1)
    made: Tensor = tensor.detach().cpu().double() * changes
    return made.requires_grad_(tensor.requires_grad)
