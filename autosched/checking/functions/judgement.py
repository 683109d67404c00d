"""Judgement of results against a PyTorch function, within what rounding explains.

With r the result in float64, e PyTorch's in the function's own types, and d the change of r when inputs and
intermediate results change by as much as they are rounded, the tolerance at an element is

    12 (|e - r| + d + q s)  +  24 epsilon(float32) s  +  8 epsilon(narrowest type) s          s = |r| + rms(r)

where q is the relative error that nine of ten elements of e stay below: eager rounds where kernels do, so that its own
error is the measure, and by luck it is small here and there. Where r is 0 everywhere, as the gradient of a sum that is
always 1, the rms is that of all results. Integers and booleans must equal e wherever e agrees with r and d is 0. Values
that are not finite in both r and e must be the same; where r and e disagree on what is finite, nothing is known. A
function that jumps (a comparison, a rounding down, the position of a maximum) jumps where d shows that, and may do so
at a few elements more where kernels round otherwise: at one of a hundred, and no more than jump there.

Evidence is collected as far as it is needed: r for all, e where that is not enough, d where that is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from autosched.checking.functions.float64 import Rounding, in_float64

# A function from tensors to tensors; all of its results, in order.
Function = Callable[..., Sequence[Tensor]]

# Safety factor on known errors; and a minimum in units in the last place, of float32 and of the narrowest type.
_TIMES, _UNITS, _NARROW_UNITS = 12.0, 24.0, 8.0
# Perturbations of elements in units of the narrowest type, one after the other: first as much as they are rounded, then
# as much as a few operators round, which shows where a function jumps.
_CHANGES = (2.0,) * 4 + (8.0,) * 4
# A function jumps where it was not seen to at no more than one of so many elements.
_FEW = 100
# A result smaller than this part of other results counts as 0.
_NOTHING = 1e-12
_SEED = 0
# Quantiles are those of about so many elements.
_SAMPLED = 2**20
# So many elements are judged at a time: some ten temporary tensors of 256 MB in float64.
_PIECE = 2**25


@dataclass(frozen=True)
class _Evidence:
    """Evidence on one result: in float64, in the function's own types, and the perturbation of the former.

    `usual`: the size of its elements, or of those of other results where it has none. `epsilon`, `nan`: as `Expected`.
    """

    exact: Tensor
    native: Tensor | None
    moved: Tensor | None
    usual: float
    epsilon: float
    nan: bool

    def at(self, piece: tuple[slice, ...]) -> _Evidence:
        """The evidence on a part of the result."""
        native = None if self.native is None else self.native[piece]
        return replace(
            self, exact=self.exact[piece], native=native, moved=None if self.moved is None else self.moved[piece]
        )


class Expected:
    """Expected results of a function for these inputs."""

    def __init__(self, function: Function, inputs: Sequence[Tensor], epsilon: float, nan: bool = True) -> None:
        """`epsilon`: of the narrowest type that it computes in. `nan`: NaN is expected where PyTorch has it.

        Raises:
            Exception: PyTorch cannot compute it for these inputs, and raises whatever it does then.
        """
        self._function, self._inputs, self._epsilon, self._nan = function, inputs, epsilon, nan
        self._generator = torch.Generator().manual_seed(_SEED)
        self._wide = True
        try:
            self.exact: Sequence[Tensor] = in_float64(function, inputs)
        except Exception:
            # The function is the user's and may raise anything. Of an operator without a float64 form PyTorch raises
            # RuntimeError, NotImplementedError or its own; then the function's own types are the reference.
            self._wide = False
            self.exact = function(*inputs)

    @cached_property
    def native(self) -> Sequence[Tensor] | None:
        """PyTorch's results in the function's own types; None where it has no operator for one of them."""
        try:
            return self._function(*self._inputs) if self._wide else self.exact
        except Exception:
            # The user's function again, which computed these inputs in float64: an operator that PyTorch lacks in a
            # narrower type raises what it likes. Then float64 alone is the evidence.
            return None

    def why_wrong(self, results: Sequence[Tensor]) -> str | None:
        """Description of an error in these results, or None."""
        if len(results) != len(self.exact):
            return f"{len(results)} results; expected {len(self.exact)}"
        found: dict[int, str | None] = dict.fromkeys(range(len(results)))
        for known in self._known():
            found = {n: why for n in found if (why := _why_wrong(results[n], known[n]))}
            if not found:
                return None
        number, reason = next(iter(found.items()))
        return reason if len(results) == 1 else f"result {number}: {reason}"

    def _known(self) -> Iterator[list[_Evidence]]:
        """Successively stronger evidence on every result."""
        sizes = [_usual(r) for r in self.exact]
        # In float64 a value that is exactly 0 may come out as small as that.
        usual = [size if size > _NOTHING * max(sizes) else max(sizes) for size in sizes]
        known = [
            _Evidence(r, None, None, size, self._epsilon, self._nan) for r, size in zip(self.exact, usual, strict=True)
        ]
        if "native" not in vars(self):
            yield known
        if self.native is not None:
            known = [replace(k, native=e) for k, e in zip(known, self.native, strict=True)]
        yield known
        moved = [torch.zeros_like(_comparable(r)) for r in self.exact]
        for units in _CHANGES:
            try:
                changed = self._changed(units * self._epsilon)
            except Exception:
                # The user's function may refuse changed inputs (a check of its own, a singular matrix). They say
                # nothing then, and no result is excused by them.
                continue
            both = zip(changed, self.exact, strict=True)
            moved = [torch.maximum(m, _apart(a, b)) for m, (a, b) in zip(moved, both, strict=True)]
            yield [replace(k, moved=m) for k, m in zip(known, moved, strict=True)]

    def _changed(self, amount: float) -> Sequence[Tensor]:
        """The results with every element, of inputs and intermediates, changed by a random part of itself."""
        inputs = [_changed(x, amount, self._generator) for x in self._inputs]
        if self._wide:
            wide: Sequence[Tensor] = in_float64(self._function, inputs, Rounding(amount, self._generator))
            return wide
        return self._function(*(x.to(given.dtype) for x, given in zip(inputs, self._inputs, strict=True)))


def _changed(tensor: Tensor, amount: float, generator: torch.Generator) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    changes = torch.rand(tensor.shape, generator=generator, dtype=torch.float64).mul_(2 * amount).add_(1 - amount)
    return changes.to(tensor.device) * tensor.detach().to(torch.float64)


def _why_wrong(got: Tensor, known: _Evidence) -> str | None:
    declared = known.exact if known.native is None else known.native
    kind = declared.dtype if known.native is not None else _own_type(got, declared)
    if got.shape != declared.shape or got.dtype != kind:
        return f"got {list(got.shape)} {got.dtype}; expected {list(declared.shape)} {kind}"
    if not got.numel():
        return None
    got = got.detach().to(known.exact.device)
    floats = got.is_floating_point() or got.is_complex()
    usual_error = _quantile(known) if floats else 0.0
    judged, mistakes, jumps, first = 0, 0, 0, None
    for piece in _pieces(got.shape):
        part = known.at(piece)
        wrong, jumped = _wrong_floats(got[piece], part, usual_error) if floats else _wrong(got[piece], part)
        judged, jumps = judged + wrong.numel(), jumps + int(jumped.sum())
        if bool(wrong.any()):
            mistakes += int(wrong.sum())
            first = first or _position(piece, wrong)
    # No error if they are few, and no more than those where the function jumps for changed inputs.
    if first is None or mistakes <= min(jumps, judged // _FEW):
        return None
    return _described(mistakes, first, got, known)


def _pieces(shape: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Indices of consecutive parts of a tensor, of a bounded number of elements each."""
    if math.prod(shape) <= _PIECE:
        yield tuple(slice(0, size) for size in shape)
        return
    rows = _PIECE // math.prod(shape[1:])
    if rows:
        for begin in range(0, shape[0], rows):
            end = min(begin + rows, shape[0])
            yield (slice(begin, end), *(slice(0, size) for size in shape[1:]))
        return
    for row in range(shape[0]):
        for rest in _pieces(shape[1:]):
            yield (slice(row, row + 1), *rest)


def _position(piece: tuple[slice, ...], wrong: Tensor) -> tuple[int, ...]:
    """The position of the first wrong element in the whole tensor; of a complex one, its part is last."""
    within = wrong.nonzero()[0].tolist()
    begins = [*(index.start for index in piece), 0]
    return tuple(begin + at for begin, at in zip(begins, within, strict=False))


def _own_type(got: Tensor, exact: Tensor) -> torch.dtype:
    """The element type of a result, of which float64 may say no more than that it is floating-point."""
    alike = got.is_complex() == exact.is_complex() and got.is_floating_point() == exact.is_floating_point()
    return got.dtype if alike and (exact.is_floating_point() or exact.is_complex()) else exact.dtype


def _wrong(got: Tensor, known: _Evidence) -> tuple[Tensor, Tensor]:
    """Masks of wrong integers or booleans, and of those where the function jumps."""
    wrong = got != known.exact
    if known.native is not None:
        wrong = (got != known.native) & (known.native == known.exact)
    if known.moved is None:
        return wrong, torch.zeros_like(wrong)
    return wrong & (known.moved == 0), known.moved > 0


def _wrong_floats(got: Tensor, known: _Evidence, usual_error: float) -> tuple[Tensor, Tensor]:
    """The same of floating-point numbers. `usual_error`: of PyTorch, relative to the size of an element."""
    ours, right = _comparable(got), _comparable(known.exact)
    eager = right if known.native is None else _comparable(known.native)
    moved = torch.zeros_like(right) if known.moved is None else known.moved
    size = right.abs() + known.usual
    own = _apart(eager, right)
    units = _UNITS * torch.finfo(torch.float32).eps + _NARROW_UNITS * known.epsilon
    certain = _TIMES * (own + usual_error * size) + units * size
    # Values below the smallest normal number may be flushed to 0, and their last place does not shrink any more.
    certain += max(torch.finfo(torch.float32).smallest_normal, _smallest(got.dtype))
    allowed = (certain + _TIMES * moved).nan_to_num(nan=math.inf)
    finite = eager.isfinite() & right.isfinite()
    decided = (finite | (own == 0)) & moved.isfinite()
    # Not "greater than": a NaN is no smaller.
    far = torch.where(right.isfinite(), ~((ours - right).abs() <= allowed), (ours != right) & (moved == 0))
    same = (ours == eager) | (eager.isnan() & (ours.isnan() if known.nan else True))
    return decided & ~same & far, moved > certain


def _comparable(tensor: Tensor) -> Tensor:
    """The elements as float64; of complex numbers the larger part of each counts."""
    made = tensor.detach()
    return torch.view_as_real(made.resolve_conj()).double() if made.is_complex() else made.double()


def _apart(a: Tensor, b: Tensor) -> Tensor:
    """Distance of two: 0 where both are the same infinity or NaN, infinite where only one of them is."""
    a, b = _comparable(a), _comparable(b)
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, 0.0, torch.nan_to_num((a - b).abs(), nan=math.inf, posinf=math.inf))


def _usual(tensor: Tensor) -> float:
    """Root of the mean square of the finite elements."""
    squares, count = 0.0, 0
    for piece in _pieces(tensor.shape):
        part = _comparable(tensor[piece])
        finite = part[part.isfinite()]
        squares, count = squares + float(finite.square().sum()), count + finite.numel()
    return math.sqrt(squares / count) if count else 0.0


def _quantile(known: _Evidence) -> float:
    """The 0.9 quantile of PyTorch's errors, relative to the size of an element."""
    step = 1 + known.exact.numel() // _SAMPLED
    sampled = []
    for piece in _pieces(known.exact.shape):
        part = known.at(piece)
        right = _comparable(part.exact).flatten()[::step]
        eager = right if part.native is None else _comparable(part.native).flatten()[::step]
        sampled.append(_apart(eager, right) / (right.abs() + known.usual))
    return float(torch.nan_to_num(torch.cat(sampled), nan=0.0, posinf=0.0).quantile(0.9))


def _smallest(dtype: torch.dtype) -> float:
    kind = torch.finfo(dtype)
    return 4 * kind.smallest_normal * kind.eps


def _described(mistakes: int, at: tuple[int, ...], got: Tensor, known: _Evidence) -> str:
    ours, exact = (torch.view_as_real(t) if t.is_complex() else t for t in (got, known.exact))
    eager = "" if known.native is None else f" PyTorch gives {_number(known.native, at)},"
    return (
        f"{mistakes} of {ours.numel()} elements are wrong; the first, {list(at)}, is {_number(ours, at)};{eager} "
        f"expected {_number(exact, at)}"
    )


def _number(tensor: Tensor, at: tuple[int, ...]) -> str:
    value = (torch.view_as_real(tensor) if tensor.is_complex() else tensor)[at].item()
    return str(value) if isinstance(value, bool | int) else f"{value:.9g}"
