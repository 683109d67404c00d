"""Comparison of every traced function with PyTorch as a whole, before it computes on a user's tensors.

Each kernel is right by itself (`kernels.first_use`); this checks that together they compute the function. It is done
once for a machine and for each `identity.key_of`: on random inputs, with the tensors that the function closes over
unchanged, in float64 where PyTorch can (`checking.functions.judgement`). `tune`'s kernel, `replay` and the first call
of any other use it.

It takes one call of the function by PyTorch, and one of the kernels; more where rounding explains some difference. A
function that cannot be compared is used with an `UncheckedWarning`: it draws random numbers, PyTorch cannot compute it
for random inputs, or memory does not suffice.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from autosched.baselines.baselines import library_settings
from autosched.checking.functions.judgement import Expected
from autosched.kernels.checked_kernels import checked_kernels
from autosched.machine import memory
from autosched.machine.memory import memory_for
from autosched.tracing.callables.function import TracedFunction
from autosched.tracing.callables.identity import key_of
from autosched.tracing.callables.random_arguments import (
    positive,
    random_arguments,
    unknown_integers,
    with_least_integers,
)
from autosched.tracing.capture.result_tree import flattened
from autosched.tracing.fusion.regions import below
from autosched.tracing.values.fallbacks import Fallback
from autosched.tracing.values.values import Value
from search_spaces import AutoschedError, InputError, Target

_SEED = 0
# Float64 tensors of the largest size that PyTorch has live at a time: an operator's inputs, outputs and workspace.
_LIVE = 4
# Dots in tf32 keep 10 bits of their operands.
_TF32_EPSILON = 2.0**-10
# With a smaller finite share a result says little: logarithms of random numbers.
_FEWEST_FINITE = 0.5
_PASSED_OVER = ("autosched", "contextlib", "functools", "torch")


class UncheckedWarning(RuntimeWarning):
    """A traced function is used that could not be compared with PyTorch."""


class _UnjudgedError(Exception):
    """The reason that a function cannot be compared."""


@dataclass(frozen=True)
class Claim:
    """The claim that `computed(*inputs)` equals the function.

    `parts`: the traced function, or both directions with a gradient. `seconds`: of its kernels. `required`: True for
    each argument whose gradient is computed; empty without gradients. `captured`: digests of PyTorch's capture of the
    function now, to compare with `TracedFunction.captured`.
    """

    parts: tuple[TracedFunction, ...]
    computed: Callable[..., Any]
    captured: Callable[[Sequence[Tensor]], Sequence[str]]
    device: torch.device
    target: Target | None
    seconds: float
    required: tuple[bool, ...] = ()

    @property
    def function(self) -> TracedFunction:
        return self.parts[0]

    @property
    def label(self) -> str:
        return f"{self.function.label}{' with its gradient' if self.required else ''}"


@dataclass
class FirstUse:
    """The verdict on a claim, found when first requested."""

    claim: Callable[[], Claim]
    passed: bool = False
    _refused: str | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ensure_right(self) -> None:
        """Compare the function with PyTorch, unless it is known to be right.

        Raises:
            AutoschedError: it is not; the message has the difference.
        """
        with self._lock:
            if self.passed or _is_captured():
                return
            if self._refused is None:
                self._refused = _why_refused(self.claim())
            if self._refused is not None:
                raise AutoschedError(self._refused)
            self.passed = True


def _is_captured() -> bool:
    """True while a CUDA graph is being captured, during which no data may be read."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _why_refused(claim: Claim) -> str | None:
    key = key_of(claim.parts, claim.target)
    if checked_kernels().latency_s(key) is not None:
        return None
    wrong, unjudged = None, ""
    try:
        with _undisturbed(claim):
            wrong = _why_wrong(claim)
    except _UnjudgedError as error:
        unjudged = str(error)
    if claim.device.type == "cuda":
        # Float64 took several times the memory that stays in use.
        torch.cuda.empty_cache()
    if unjudged:
        text = f"{claim.label} is used without having been compared with PyTorch as a whole: {unjudged}"
        warnings.warn(text, UncheckedWarning, stacklevel=_level_of_caller())
        return None
    if wrong is not None:
        return (
            f"{claim.label}: its kernels do not compute what the function does, though each is right by itself: "
            f"{wrong}. That is a mistake in how autosched traces it, please report it. Nothing was computed with them, "
            "and they are not called again"
        )
    checked_kernels().add(key, claim.seconds, claim.label)
    return None


def _level_of_caller() -> int:
    """The level, as `warnings.warn` counts it, of the nearest caller that is not autosched, PyTorch or a wrapper."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED_OVER:
        frame, level = frame.f_back, level + 1
    return level


@contextlib.contextmanager
def _undisturbed(claim: Claim) -> Iterator[None]:
    """A context in which PyTorch computes by its default settings."""
    gradients = any(claim.required)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(gradients))
        # Compiled parts of a function compute the same in eager mode, without minutes of compiling.
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        for kind in {"cpu", claim.device.type}:
            stack.enter_context(torch.autocast(kind, enabled=False))
        stack.enter_context(warnings.catch_warnings())
        # The function's own warnings, which its user gets anyway.
        warnings.simplefilter("ignore")
        if claim.target is not None:
            stack.enter_context(library_settings(claim.function.by_library, claim.target))
        yield


def _why_wrong(claim: Claim) -> str | None:
    """Reason: a difference between the kernels' and PyTorch's results for random inputs; None where they agree.

    Raises:
        _UnjudgedError: they cannot be compared.
    """
    if _draws_random_numbers(claim):
        raise _UnjudgedError("it draws random numbers")
    if claim.function.on_trust:
        raise _UnjudgedError(f"PyTorch takes {', '.join(sorted(claim.function.on_trust))} on trust, as it made them")
    if any(part.written for part in claim.parts):
        raise _UnjudgedError("it changes its arguments or tensors it closes over, as a comparison would too")
    try:
        with memory_for(f"the results of {claim.label} in float64", _needed_bytes(claim), claim.device):
            return _compared(claim)
    except (MemoryError, RuntimeError) as error:
        if not memory.ran_out(error):
            raise
        raise _UnjudgedError(str(error)) from error


def _compared(claim: Claim) -> str | None:
    first = random_arguments(claim.function, _SEED, claim.device)
    inputs, expected = _expected(claim, first)
    wrong = _why_differs(claim, inputs, expected)
    if wrong is None and not all(map(_says_enough, expected.exact)):
        inputs, expected = _expected(claim, [positive(t) for t in first])
        wrong = _why_differs(claim, inputs, expected)
    if wrong is not None and not _is_unchanged(claim, inputs):
        raise _UnjudgedError("PyTorch captures something else of it now than when it was traced; trace it again")
    return wrong


def _is_unchanged(claim: Claim, inputs: Sequence[Tensor]) -> bool:
    """True if the function is still the traced one."""
    try:
        return claim.function.captured in claim.captured(inputs)
    except InputError:
        return False


def _expected(claim: Claim, inputs: list[Tensor]) -> tuple[list[Tensor], Expected]:
    """PyTorch's results for these inputs, or for some with integers that are valid indices."""
    device = _place_of_reference(claim)
    function = functools.partial(outcome, claim.function.function, claim.required)
    reasons, draws = [], [inputs]
    if unknown_integers(claim.function):
        draws += with_least_integers(inputs)
        # An index out of range on a GPU ends all that this process does on it.
        draws = draws if device.type == "cpu" else draws[-1:]
    for given in draws:
        try:
            # In the gradient of a fully masked row, kernels may have 0 where PyTorch has NaN.
            gradients = any(claim.required)
            return given, Expected(function, [t.to(device) for t in given], epsilon_of(claim.parts), not gradients)
        except Exception as error:
            if memory.ran_out(error):
                raise
            # For random inputs the function, or one of PyTorch's operators, may raise any exception.
            reasons.append(f"PyTorch does not compute it for random inputs: {type(error).__name__}: {error}")
    raise _UnjudgedError(reasons[0])


def _why_differs(claim: Claim, inputs: Sequence[Tensor], expected: Expected) -> str | None:
    return expected.why_wrong(outcome(claim.computed, claim.required, *inputs))


def outcome(function: Callable[..., Any], required: Sequence[bool], *inputs: Tensor) -> list[Tensor]:
    """The tensors that the function returns, followed by the gradients of its inputs that are `required`, for gradients
    of its results that are always the same.
    """
    if not any(required):
        return _tensors(function(*inputs))
    given = [x.detach().requires_grad_(wanted) for x, wanted in zip(inputs, required, strict=True)]
    results, generator = _tensors(function(*given)), torch.Generator().manual_seed(_SEED)
    # Every floating-point type represents these numbers.
    eighths = [torch.randint(-8, 9, r.shape, generator=generator) / 8 for r in results]
    pairs = [(r, e.to(r)) for r, e in zip(results, eighths, strict=True) if r.requires_grad]
    wanted = [x for x in given if x.requires_grad]
    made = torch.autograd.grad([r for r, _ in pairs], wanted, [e for _, e in pairs], allow_unused=True)
    return [*results, *(torch.zeros_like(x) if g is None else g for x, g in zip(wanted, made, strict=True))]


def _tensors(returned: Any) -> list[Tensor]:
    return [r for r in flattened(returned)[0] if isinstance(r, Tensor)]


def _says_enough(result: Tensor) -> bool:
    if not result.is_floating_point() or result.dtype.itemsize == 1 or not result.numel():
        return True
    return int(result.isfinite().sum()) >= _FEWEST_FINITE * result.numel()


def _place_of_reference(claim: Claim) -> torch.device:
    """The device of PyTorch's reference: that of the closed-over tensors; or else the claim's, or the CPU where
    integers may be invalid indices, since on a GPU these end the process.
    """
    devices = {s.tensor.device for part in claim.parts for s in part.leaves if s.tensor is not None}
    if devices:
        return claim.device if claim.device in devices else devices.pop()
    return torch.device("cpu") if unknown_integers(claim.function) else claim.device


def _draws_random_numbers(claim: Claim) -> bool:
    called = (v.operation.target for part in claim.parts for v in part.made if isinstance(v, Fallback))
    return any(torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()) for target in called)


def _values(parts: Sequence[TracedFunction]) -> list[Value]:
    return list(dict.fromkeys(v for part in parts for v in below(part.results)))


def epsilon_of(parts: Sequence[TracedFunction]) -> float:
    """Epsilon of the narrowest type that a value is rounded to on the way. Arguments are exact."""
    names = {v.dtype for v in _values(parts) if v.operands and v.readable}
    kinds = {getattr(torch, name) for name in names} | {torch.float32}
    epsilon = max(torch.finfo(kind).eps for kind in kinds if kind.is_floating_point)
    return max(epsilon, _TF32_EPSILON) if any(p.precision == "tf32" for p in parts) else epsilon


def _needed_bytes(claim: Claim) -> int:
    """Bytes of PyTorch's live float64 tensors and the kernels' tensors: with a gradient all of them at once.

    On a GPU of arguments and results alone: PyTorch's own operators on segments do not store what they are traced to, a
    matrix for each row or all rows for each segment. A GPU refuses what does not fit after all; a CPU ends the process.
    """
    found = _values(claim.parts) if claim.device.type == "cpu" else []
    counts = [math.prod(v.shape) for v in found if min(v.shape, default=0) >= 0]
    own = sum(v.bytes for part in claim.parts for v in (*part.arguments, *part.made))
    ends = sum(math.prod(v.shape) for part in claim.parts for v in (*part.arguments, *part.results) if v.readable)
    live = sum(counts) if any(claim.required) else _LIVE * max(counts, default=0)
    return own + 8 * (live + _LIVE * ends)
