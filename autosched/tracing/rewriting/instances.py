"""Checks of rewrites on the constants at hand: errors against float64, next to those of what is written.

A rule may be right and a rewrite by it inexact: two constants are combined and rounded once more, and how much that
loses depends on them. Both sides of a rewrite are computed in the arithmetic of kernels (sums in float32, roundings
where the values have them), and the written one in float64 as well, on random inputs: usual ones; with outliers, a
feature that is a hundred times as large as others, as language models have; with a row of -infinity, as masks have; and
shifted by one deviation, where constants are combined. Products and scans that both sides read are such inputs
themselves, so that a check computes what has changed, and what is pointwise or a reduction before that.

What combines constants and is large is computed for some rows of it (`samples`). What has constants without data, has
no reference, or combines constants and is too large even so is not checked, which is a reason as well.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from autosched.checking.operations import OPERATIONS
from autosched.machine.element_types import torch_dtype
from autosched.tracing.fusion.regions import below
from autosched.tracing.rewriting.evaluation import NotEvaluatedError, Reals, evaluated, prepared
from autosched.tracing.rewriting.preparing import with_prepared
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.rewriting.samples import Pair, samples
from autosched.tracing.rewriting.terms import is_constant, takes_other_operands
from autosched.tracing.values.values import Arange, Leaf, Prepared, Product, Value, View
from search_spaces.workloads.dtypes import is_float
from tuning_logs.text import first_line

# Of the root mean square, and of the largest one, which is of one element and varies more.
_MORE_ERROR = 1.5
_MORE_PEAK = 3.0
# Errors of float32 sums that are exact by chance on one side, in units of the result's root mean square.
_FLOOR = 2.0**-21
_OUTLIER = 100.0
# A check is to take a tenth of a second: so many multiplications in float64, and so many numbers in memory at a time.
_MOST_FLOPS = {"cpu": 2e9, "cuda": 1e12}
_MOST_ELEMENTS = {"cpu": 1 << 25, "cuda": 1 << 28}
_SEED = 0


def why_refused(rule: Rule, match: Match, data: Callable[[Leaf], Tensor | None]) -> str | None:
    """The reason that a rewrite is not to be used with these constants; None if it is as exact as what is written.

    `data`: a constant's tensor, if it is known. Where a rule combines no constants, others are drawn like arguments.
    """
    return _why_worse_of(match, rule.exactness == "folded", data)


@dataclass(frozen=True, eq=False)
class Fold:
    """A rewrite that combines `constants`, which are in memory; `text`: its own."""

    text: str
    match: Match

    @property
    def constants(self) -> tuple[Leaf, ...]:
        ends = [v for pair in self.match.pairs for v in pair]
        return tuple(v for v in below(ends) if isinstance(v, Leaf) and v.constant)

    def why_refused(self, data: Callable[[Leaf], Tensor | None]) -> str | None:
        """As `why_refused`, for other elements of its constants."""
        return _why_worse_of(self.match, True, data)


def _why_worse_of(match: Match, folded: bool, data: Callable[[Leaf], Tensor | None]) -> str | None:
    for before, after in match.pairs:
        try:
            why = _Instance.of(before, after, data, folded).why_worse()
        except _TooLargeError as error:
            # Sums in another order have the rule's bound whatever their elements are; combined constants do not.
            why = f"not checked: {error}" if folded else None
        except (NotEvaluatedError, _UncheckedError) as error:
            why = f"not checked: {error}"
        except (MemoryError, RuntimeError) as error:
            # As PyTorch raises them; what cannot be judged costs a user a rewrite, and not the function.
            why = f"not checked: {first_line(error)}"
        if why is not None:
            return f"{before.name}: {why}" if len(match.pairs) > 1 else why
    return None


class _UncheckedError(Exception):
    """The reason that a rewrite is not checked."""


class _Floats:
    """Arithmetic as kernels have it: float32, rounded where the values are."""

    def numbers(self, tensor: Tensor) -> Tensor:
        return tensor.to(torch.float32 if tensor.is_floating_point() or tensor.dtype is torch.bool else torch.int64)

    def number(self, value: float | int, device: torch.device) -> Tensor:
        return torch.full((), value, dtype=torch.int64 if isinstance(value, int) else torch.float32, device=device)

    def apply(self, operator: str, arguments: Sequence[Tensor]) -> Tensor:
        return arguments[0].to(torch.float32) if operator == "to_float" else OPERATIONS[operator](*arguments)

    def fold(self, operator: str, x: Tensor, dims: Sequence[int]) -> Tensor:
        return Reals().fold(operator, x, dims)

    def sum_of_products(self, a: Tensor, b: Tensor, dims: Sequence[int]) -> Tensor:
        return Reals().sum_of_products(a, b, dims)


class _TooLargeError(Exception):
    """A check would take too long, or too much memory."""


@dataclass(frozen=True, eq=False)
class _Instance:
    """Two values that are equal, the values to draw, and the tensors of constants."""

    before: Value
    after: Value
    drawn: tuple[Value, ...]
    constants: Mapping[Value, Tensor]
    device: torch.device
    folded: bool

    @staticmethod
    def of(before: Value, after: Value, data: Callable[[Leaf], Tensor | None], folded: bool) -> _Instance:
        """Raises _UncheckedError, _TooLargeError."""
        (after,) = with_prepared([after], set(below([before])))
        tensors = (data(v) for v in below([before, after]) if isinstance(v, Leaf) and v.constant)
        device = next((t.device for t in tensors if t is not None), torch.device("cpu"))
        if folded:
            before, after = _small(before, after, device)
        inputs = _inputs(before, after)
        values = [*below([before, after], inputs)]
        known = {v: data(v) for v in values if isinstance(v, Leaf) and v.constant}
        unknown = [leaf for leaf, tensor in known.items() if tensor is None]
        if unknown and folded:
            raise _UncheckedError(f"the elements of {unknown[0].name} are not known yet")
        inputs |= dict.fromkeys(unknown)
        constants: dict[Value, Tensor] = {v: t.detach() for v, t in known.items() if t is not None}
        _check_size(values, inputs, device)
        with torch.inference_mode(False), torch.no_grad():
            for value in (v for v in values if isinstance(v, Prepared) and constants.keys() >= {*v.constants}):
                constants[value] = prepared(value, [constants[c] for c in value.constants])
        return _Instance(before, after, tuple(inputs), constants, device, folded)

    def why_worse(self) -> str | None:
        generator = torch.Generator(self.device).manual_seed(_SEED)
        with torch.inference_mode(False), torch.no_grad():
            for name, change in {**_DRAWS, **(_OF_FOLDED if self.folded else {})}.items():
                tensors = {v: _drawn(v, change, generator) for v in self.drawn} | dict(self.constants)
                (exact,) = evaluated([self.before], tensors, Reals())
                if exact.is_floating_point():
                    (usual,), (new,) = (evaluated([v], tensors, _Floats()) for v in (self.before, self.after))
                    worse = _why_worse(exact, usual.double(), new.double())
                    # What infinite inputs become, rules may change; constants alone are as they are.
                    if why := worse or (None if change is _with_infinities else _why_hidden(exact, usual, new)):
                        return f"with {name}, {why}"
        return None


def _inputs(before: Value, after: Value) -> dict[Value, None]:
    """The values to draw: arguments, what is not evaluated, and what is dear and both sides have in common."""
    first, second = {*below([before])}, {*below([after])}
    dear: list[Value] = [v for v in (first & second) - {before, after} if isinstance(v, Product) and not is_constant(v)]
    dear += [
        v
        for v in first | second
        if not v.constant and not takes_other_operands(v) and not isinstance(v, Arange | Prepared)
    ]
    drawn = {v for v in dear if v.operands or isinstance(v, Leaf)}
    reached = [o for v in below([before, after], drawn) for o in v.operands if o in drawn]
    return dict.fromkeys(reached)


def _small(before: Value, after: Value, device: torch.device) -> Pair:
    """Both values, or some rows of them that can be checked, where the whole is too large."""
    inputs = _inputs(before, after)
    for pair in itertools.chain([(before, after)], samples((before, after), inputs)):
        with contextlib.suppress(_TooLargeError):
            drawn = _inputs(*pair)
            _check_size([*below(pair, drawn)], drawn, device)
            return pair
    return before, after


def _check_size(values: Sequence[Value], inputs: Mapping[Value, None], device: torch.device) -> None:
    flops = sum(2 * v.elements * math.prod(v.summed) for v in values if isinstance(v, Product))
    elements = sum(v.elements for v in (*values, *inputs) if not isinstance(v, View))
    if not all(v.readable for v in (*values, *inputs)):
        raise _UncheckedError("it has values that only PyTorch takes")
    if flops > _MOST_FLOPS.get(device.type, 0) or elements > _MOST_ELEMENTS.get(device.type, 0):
        raise _TooLargeError(f"it has {flops:.1e} multiplications and additions of {elements:.1e} numbers")


def _drawn(value: Value, change: Callable[[Tensor], Tensor], generator: torch.Generator) -> Tensor:
    dtype = torch_dtype(value.dtype)
    if not is_float(value.dtype):
        # As indices of any tensor, divisors and truth values.
        return torch.ones(value.shape, dtype=dtype, device=generator.device)
    drawn = torch.randn(value.shape, generator=generator, device=generator.device)
    return change(drawn).to(dtype)


def _with_outlier(x: Tensor) -> Tensor:
    if x.dim():
        x[..., :1] *= _OUTLIER
    return x


def _with_infinities(x: Tensor) -> Tensor:
    if x.dim() > 1:
        x[..., :1, :] = -math.inf
    return x


_DRAWS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "usual inputs": lambda x: x,
    "outliers": _with_outlier,
    "infinities": _with_infinities,
}
# Constants that are rounded once more, and whose sum was 0, show it so.
_OF_FOLDED: Mapping[str, Callable[[Tensor], Tensor]] = {"shifted inputs": lambda x: x + 1}


def _why_worse(exact: Tensor, usual: Tensor, new: Tensor) -> str | None:
    """The reason that new results are further from exact ones than usual ones are."""
    both = exact.isfinite() & usual.isfinite()
    lost = int((both & ~new.isfinite()).sum())
    if lost:
        return f"{lost} of {new.numel()} results are no finite numbers any more"
    if not (count := int(both.sum())):
        return None
    zero = exact.new_zeros(())
    floor = _FLOOR * _root_mean_square(torch.where(both, exact, zero), count)
    errors = [torch.where(both, x - exact, zero) for x in (usual, new)]
    for kind, most, (old_error, new_error) in (
        ("error", _MORE_ERROR, [_root_mean_square(e, count) for e in errors]),
        ("largest error", _MORE_PEAK, [float(torch.linalg.vector_norm(e, math.inf)) for e in errors]),
    ):
        if new_error > most * old_error + floor:
            return f"the {kind} is {new_error:.1e}, and {old_error:.1e} as it is written"
    return None


def _why_hidden(exact: Tensor, usual: Tensor, new: Tensor) -> str | None:
    """The reason that results which are no numbers become some: NaN shows a user that constants are wrong."""
    hidden = int((exact.isnan() & usual.isnan() & ~new.isnan()).sum())
    return f"{hidden} of {new.numel()} results are NaN as it is written, and would not be" if hidden else None


def _root_mean_square(x: Tensor, count: int) -> float:
    return float(torch.linalg.vector_norm(x)) / math.sqrt(count)
