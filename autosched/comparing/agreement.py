"""Whether the kernels of a traced function, together, compute what the function does.

Every kernel alone was checked against its workload when it was tuned (`checking.correctness`); what is checked here is
the function as a whole, against the function itself in float64. Where PyTorch eager yields a finite number, allowed is

    2 max |eager - r|  +  (epsilon(output type) + sqrt(n) epsilon(float32)) max |r|  +  the smallest normal float32

r being the float64 result, and the maxima those of one result. Eager's own error is the measure: it rounds in the same
places, and two orders of the same sum have errors of the same size, of which the larger may be twice the smaller. It
may be right by luck or by sums in pairs, so that one rounding of the result is allowed in any case, and what n terms
(the longest reduction) added one after the other in float32 come to. Integers and booleans are to be eager's wherever
eager agrees with float64; what is not finite in eager is to be the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from autosched.tracing import TracedFunction, TracedKernel
from autosched.tracing.capture.result_tree import flattened

_TIMES_EAGER = 2.0


def why_disagrees(kernel: TracedKernel, inputs: Sequence[Tensor]) -> str | None:
    """What is wrong with the results for these inputs; None when they agree with the function in float64.

    Raises:
        RuntimeError: PyTorch cannot compute the function in float64.
    """
    function = kernel.traced.function
    with torch.no_grad():
        tuned, eager = _tensors(kernel(*inputs)), _tensors(function(*inputs))
        exact = _tensors(in_float64(function, inputs))
        terms = _longest_reduction(kernel.traced)
        for number, (t, e, r) in enumerate(zip(tuned, eager, exact, strict=True)):
            if wrong := _why_wrong(t, e, r, terms):
                return wrong if len(tuned) == 1 else f"result {number}: {wrong}"
    return None


def in_float64(function: Callable[..., Any], inputs: Sequence[Tensor]) -> Any:
    """What the function returns when every floating-point number in it is a float64 one, conversions included."""
    with torch.no_grad(), _InFloat64():  # type: ignore[no-untyped-call]  # PyTorch left its base without types
        return function(*tree_map(_widened, tuple(inputs)))


class _InFloat64(TorchDispatchMode):
    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = tree_map(_widened, (args, kwargs or {}))
        return tree_map(_widened, func(*args, **kwargs))


def _widened(value: Any) -> Any:
    """A tensor, or the name of an element type, as float64 where it is floating-point."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(torch.float64)
    if isinstance(value, torch.dtype) and value.is_floating_point:
        return torch.float64
    return value


def _tensors(result: Any) -> list[Tensor]:
    return [leaf for leaf in flattened(result)[0] if isinstance(leaf, Tensor)]


def _longest_reduction(traced: TracedFunction) -> int:
    return max((stage.terms for workload in traced.launched for stage in workload.stages), default=1)


def _why_wrong(tuned: Tensor, eager: Tensor, exact: Tensor, terms: int) -> str | None:
    if (tuned.shape, tuned.dtype) != (eager.shape, eager.dtype):
        got, expected = (f"{list(t.shape)} {t.dtype}" for t in (tuned, eager))
        return f"got {got}; expected {expected}"
    if not tuned.is_floating_point():
        return _first(tuned, exact, (tuned != eager) & (eager == exact), "")
    epsilon = torch.finfo(eager.dtype).eps
    if eager.dtype.itemsize == 1:
        # PyTorch compares no 8-bit floats.
        tuned, eager = tuned.float(), eager.float()
    finite = eager.isfinite() & exact.isfinite()
    wide = tuned.double()
    largest = _largest(exact, finite)
    of_result = epsilon + math.sqrt(terms) * torch.finfo(torch.float32).eps
    allowed = _TIMES_EAGER * _largest(eager.double().sub_(exact), finite) + of_result * largest
    allowed += torch.finfo(torch.float32).smallest_normal
    # Not "greater than": a NaN is no smaller.
    far = finite & ~(wide.sub(exact).abs_() <= allowed)
    other = ~finite & (tuned != eager) & ~(tuned.isnan() & eager.isnan())
    return _first(tuned, torch.where(finite, exact, eager.double()), far | other, f" ± {allowed:.2g}")


def _largest(values: Tensor, where: Tensor) -> float:
    return float(values.abs().masked_fill_(~where, 0.0).amax()) if values.numel() else 0.0


def _first(tuned: Tensor, expected: Tensor, wrong: Tensor, allowed: str) -> str | None:
    found = wrong.nonzero()
    if not len(found):
        return None
    at = tuple(found[0].tolist())
    return (
        f"{len(found)} of {tuned.numel()} elements are wrong; the first, {list(at)}, is {tuned[at].item():.6g}, "
        f"expected {expected[at].item():.6g}{allowed}"
    )
