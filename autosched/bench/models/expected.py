"""The results that a model should have: eager's, and those in float64."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo.utils import same
from torch.utils._pytree import tree_leaves

from autosched.checking.functions.float64 import in_float64
from autosched.torch_compile.user_models import Model
from search_spaces import InputError

# Least error of eager: where integers have none, neither should others.
_SMALLEST = 1e-30
# Least error in floating point, in units in the last place: rounding the exact results has one of 0.2 or more.
_LEAST_PART = 0.1
# Tolerances by which PyTorch's own benchmarks of compilers judge results for inference.
_TOLERANCE, _TOLERANCE_OF_HALF = 1e-4, 1e-3


def reference(model: Model, inputs: Sequence[Any]) -> Any:
    """The results of a copy of the model in float64, its inputs and conversions to other types likewise.

    Raises:
        Exception: PyTorch cannot compute it like that, and raises whatever it does then.
    """
    exact = copy.deepcopy(model)
    return in_float64(exact.double() if isinstance(exact, torch.nn.Module) else exact, inputs)


@dataclass(frozen=True)
class Expected:
    """The results of eager, and those in float64."""

    eager: Any
    exact: Any

    def error_of(self, results: Any) -> float:
        """The root mean square of the results' errors, against float64, as a multiple of eager's.

        Eager's counts as a part of a unit in the last place of the results' type at least: some results it has exactly.
        """
        exact, eager = _tensors(self.exact), _tensors(self.eager)
        unit = max((torch.finfo(t.dtype).eps for t in eager if t.is_floating_point()), default=0.0)
        smallest = max(_LEAST_PART * unit * _root_mean_square(exact), _SMALLEST)
        return _error(_tensors(results), exact) / max(_error(eager, exact), smallest)

    def why_wrong(self, results: Any) -> str:
        """The first fault that PyTorch's own comparison of compiled models finds; empty where there is none.

        It allows errors of twice eager's (three times in half precision or for less than 1,000 elements), and a
        tolerance.
        """
        eager, exact, got = _tensors(self.eager), _tensors(self.exact), _tensors(results)
        shapes, wanted = [tuple(t.shape) for t in got], [tuple(t.shape) for t in eager]
        if shapes != wanted:
            return f"shapes {shapes}; expected {wanted}"
        half = any(t.is_floating_point() and t.dtype.itemsize < 4 for t in eager)
        faults: list[str] = []

        def note(text: str, *values: object) -> None:
            faults.append(text % values)

        agree = same(eager, got, exact, tol=_TOLERANCE_OF_HALF if half else _TOLERANCE, equal_nan=True, log_error=note)
        return "" if agree else " ".join(faults)


def _error(results: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    return _root_mean_square([got.double() - best.double() for got, best in zip(results, exact, strict=True)])


def _root_mean_square(tensors: Sequence[torch.Tensor]) -> float:
    squares = sum(float(t.double().square().sum()) for t in tensors)
    return math.sqrt(squares / max(1, sum(t.numel() for t in tensors)))


def _tensors(made: Any) -> list[torch.Tensor]:
    """The tensors among results, in order.

    Raises:
        InputError: there is none.
    """
    found = [t for t in tree_leaves(made) if isinstance(t, torch.Tensor)]
    if not found:
        raise InputError(f"the model returns {type(made).__name__} without a tensor; expected some")
    return found
