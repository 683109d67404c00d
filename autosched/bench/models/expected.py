"""The results that a model should have: eager's, and those in float64."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo.utils import same
from torch.utils._pytree import tree_leaves

from autosched.checking.functions.float64 import in_float64
from autosched.torch_compile.user_models import Model
from search_spaces import InputError

# Least error of eager: where it has none, as with integers, neither should others.
_SMALLEST = 1e-30
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
        """The root mean square of the results' errors, against float64, as a multiple of eager's."""
        return _error(results, self.exact) / max(_error(self.eager, self.exact), _SMALLEST)

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


def _error(results: Any, exact: Any) -> float:
    pairs = zip(_tensors(results), _tensors(exact), strict=True)
    squares = [((got.double() - best.double()) ** 2).flatten() for got, best in pairs]
    return float(torch.cat(squares).mean().sqrt())


def _tensors(made: Any) -> list[torch.Tensor]:
    """The tensors among results, in order.

    Raises:
        InputError: there is none.
    """
    found = [t for t in tree_leaves(made) if isinstance(t, torch.Tensor)]
    if not found:
        raise InputError(f"the model returns {type(made).__name__} without a tensor; expected some")
    return found
