"""Strided convolutions of few channels as space to depth: positions within a stride become channels.

    y[n, f, p, q] = Σ x[n, c, s·p + r, s·q + t] · w[f, c, r, t]    →    Σ d[n, p + r', q + t', e] · w'[f, e, r', t'],
    d[n, i, j, (c, ρ, σ)] = x[n, c, s·i + ρ, s·j + σ],    w'[f, (c, ρ, σ), r', t'] = w[f, c, s·r' + ρ, s·t' + σ]

w' is 0 beyond the taps of w. The stem of a ResNet, 7×7 with stride 2 of 3 channels, is 4×4 with stride 1 of 12: sums
run over channels that lie next to each other, where three leave most of a matrix instruction's terms and of a load
unused. d is stored, channels last, with zeros up to whole loads of 16 bytes; w' is prepared once.

Condition: w is constant and x is not; windows overlap and leave nothing out, as patches that do not overlap are rows of
a matrix already; and fewer channels than a matrix instruction adds at once.

Exactness: sums in another order, with terms that are 0 between them: the bound of a sum of products in float32 is that
of ⌈r/s⌉·⌈t/s⌉·s² terms for r·t. An infinity or NaN in x makes NaN of results whose windows end just before it, as it is
multiplied by a 0 of w' there.
Source: C. Ying et al., "Image Classification at Supercomputer Scale", 2018, section 3 (space to depth of ResNet's
first convolution).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autosched.tracing.operators.joining_rules import padded
from autosched.tracing.operators.parts import in_parts
from autosched.tracing.operators.product_rules import product
from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.operators.view_translation import permute
from autosched.tracing.operators.windows.convolved import ordinary
from autosched.tracing.operators.windows.windows import Window, windowed
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.examples import leaf
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.rewriting.terms import is_constant
from autosched.tracing.values.values import Product, Value, View
from autosched.tracing.values.views import Windows
from search_spaces.workloads.dtypes import dtype

# Terms that a matrix instruction of 16-bit factors adds at once.
_FULL = 16
_LOAD_BYTES = 16


@dataclass(frozen=True)
class _Convolution:
    """A product of windows of an image [n, c, …], by weights [f, c, taps …]: [n, f, positions …]."""

    value: Product
    image: Value
    kinds: tuple[Windows, ...]

    @staticmethod
    def of(value: Value) -> _Convolution | None:
        if not isinstance(value, Product):
            return None
        kinds: list[Windows] = []
        image = value.a
        while isinstance(image, View) and isinstance(image.kind, Windows):
            kinds.insert(0, image.kind)
            image = image.argument
        count, first = len(kinds), len(value.shape)
        along = (0, first, *range(2, first), *range(first + 1, first + 1 + count))
        of_weights = (1, first, *range(first + 1, first + 1 + count))
        dims = [kind.dim for kind in kinds]
        alike = (value.a_loops, value.b_loops, dims) == (along, of_weights, [*range(2, first)])
        return _Convolution(value, image, tuple(kinds)) if kinds and alike else None

    @property
    def is_narrow_and_strided(self) -> bool:
        dense = all(kind.spacing == 1 and kind.size >= kind.step for kind in self.kinds)
        overlapping = any(1 < kind.step < kind.size for kind in self.kinds)
        covered = tuple((n - 1) * k.step + k.size for n, k in zip(self.value.shape[2:], self.kinds, strict=True))
        return dense and overlapping and self.image.shape[2:] == covered and self.image.shape[1] < _FULL

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(kind.step for kind in self.kinds)

    @property
    def taps(self) -> tuple[int, ...]:
        """The taps of each dimension by whole strides."""
        return tuple(math.ceil(kind.size / kind.step) for kind in self.kinds)

    @property
    def depth(self) -> int:
        """The new channels, up to a whole load."""
        whole = _LOAD_BYTES // dtype(self.image.dtype).bytes
        return math.ceil(self.image.shape[1] * math.prod(self.steps) / whole) * whole

    def by_depth(self) -> Value | None:
        """The same sums of an image by depth; None where that cannot be stored."""
        value, rank = self.value, len(self.value.shape)
        image = self._deep(self.image, [n + taps - 1 for n, taps in zip(value.shape[2:], self.taps, strict=True)])
        last = replace(_permuted(image, "last", [0, *range(2, rank), 1]), name=f"{value.name}_image_by_depth")
        stored = in_parts(last, [last], [(0,) * rank], [1] * rank)
        if stored is None:
            return None
        sizes = zip(self.taps, value.shape[2:], strict=True)
        windows = [Window(1 + d, taps, 1, 0, 1, count) for d, (taps, count) in enumerate(sizes)]
        result = Result(f"{value.name}_by_depth", value.shape, value.dtype, value.line, precision=value.precision)
        along = (0, *range(2, rank), *range(rank, rank + 1 + len(windows)))
        weights = self._deep(value.b, self.taps)
        # In memory as it is read.
        kept = Result(f"{value.b.name}_by_depth", weights.shape, weights.dtype, value.b.line)
        weights = kept.elementwise(lambda element: element, weights)
        return product(result, windowed(result, stored, windows), weights, value.shape, along, value.b_loops)

    def _deep(self, x: Value, counts: Sequence[int]) -> Value:
        """[n, c, …] as [n, depth, counts …]: positions within a stride are channels, and what is beyond is 0."""
        n, c, *_ = x.shape
        rest = range(len(counts))
        sizes = [count * step for count, step in zip(counts, self.steps, strict=True)]
        x = _grown(x, (n, c, *sizes))
        apart = [size for pair in zip(counts, self.steps, strict=True) for size in pair]
        x = reshape(x, (n, c, *apart))
        order = [0, 1, *(3 + 2 * d for d in rest), *(2 + 2 * d for d in rest)]
        x = reshape(_permuted(x, "strides", order), (n, c * math.prod(self.steps), *counts))
        return _grown(x, (n, self.depth, *counts))


def _permuted(x: Value, name: str, order: Sequence[int]) -> Value:
    return permute(Result(f"{x.name}_{name}", tuple(x.shape[d] for d in order), x.dtype, x.line), x, order)


def _grown(x: Value, shape: tuple[int, ...]) -> Value:
    """The value with zeros behind its elements."""
    if x.shape == shape:
        return x
    return padded(Result(f"{x.name}_grown", shape, x.dtype, x.line), x, [0] * len(shape), 0.0)


def _matches(equalities: Equalities) -> Iterator[Match]:
    for value in equalities.terms():
        found = _Convolution.of(value)
        if found is None or not found.is_narrow_and_strided or len(equalities.forms(value)) > 1:
            continue
        if is_constant(found.value.b) and not is_constant(found.image) and (made := found.by_depth()) is not None:
            yield Match(((value, made),))


def _convolution(sizes: Sequence[int], size: int, step: int, spacing: int = 1, constant: bool = True) -> list[Value]:
    n, c, f, count = sizes
    extent = (count - 1) * step + (size - 1) * spacing + 1
    x, w = leaf("x", (n, c, extent, extent + 1)), leaf("w", (f, c, size, 2), constant=constant)
    windows = [Window(2, size, step, 1, spacing, count), Window(3, 2, 1, 0, 1, extent)]
    return [ordinary(Result("convolution", (n, f, count, extent), "float32", ""), x, w, windows, 1)]


RULE = Rule(
    name="strided convolutions",
    exactness="reassociated",
    matches=_matches,
    example=lambda sizes: _convolution(sizes, size=3, step=2),
    others=(lambda sizes: _convolution(sizes, size=4, step=2), lambda sizes: _convolution(sizes, size=4, step=3)),
    refused=(
        lambda sizes: _convolution(sizes, size=3, step=1),
        lambda sizes: _convolution(sizes, size=2, step=2),
        lambda sizes: _convolution(sizes, size=2, step=3),
        lambda sizes: _convolution(sizes, size=3, step=2, spacing=2),
        lambda sizes: _convolution(sizes, size=3, step=2, constant=False),
        lambda sizes: _convolution((sizes[0], _FULL, *sizes[2:]), size=3, step=2),
    ),
)
