"""Layers of averages: products with constants, P·(v + b)·O, where rows of P sum to 1, so that b passes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.operators.view_translation import permute, piece
from autosched.tracing.rewriting.affine import Affine, Readers, affine, combined, placed, rounds
from autosched.tracing.rewriting.contractions.loops import LoopCutError, LoopIndex, Loops
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.rule import Match
from autosched.tracing.rewriting.scaled_products import channels_of, folded
from autosched.tracing.rewriting.scaled_weights import is_weighted, summed_place, summed_with
from autosched.tracing.rewriting.shifts import Splitting
from autosched.tracing.rewriting.softmax import averaged_dims
from autosched.tracing.rewriting.terms import is_constant
from autosched.tracing.values.values import Pointwise, Product, Value, View
from search_spaces.workloads.expressions import expression as ex


def without_biases(equalities: Equalities) -> Iterator[Match]:
    """Layers of averages of values less a constant, which is added behind the layer instead."""
    readers = equalities.readers()
    for value in equalities.terms():
        if not isinstance(value, Product) or not is_weighted(value) or summed_place(value) is None:
            continue
        layer = _layer(value)
        if layer is not None and layer.is_read_here_alone(equalities, readers):
            yield from layer.matches(equalities, readers)


@dataclass(frozen=True, eq=False)
class _Layer:
    """A `product` with constants of `averages`, which are a product themselves.

    `through`: views and roundings between, outermost first; `index`: of the layer's input; `at`: of the averages.
    """

    product: Product
    averages: Product
    through: tuple[Value, ...]
    loops: Loops
    index: LoopIndex
    at: LoopIndex

    def is_read_here_alone(self, equalities: Equalities, readers: Readers) -> bool:
        between = {equalities.number(v) for v in (*self.through, self.averages)}
        read = {equalities.number(r) for n in between for r in readers.get(n, ())}
        return equalities.results.isdisjoint(between) and read <= between | {equalities.number(self.product)}

    def matches(self, equalities: Equalities, readers: Readers) -> Iterator[Match]:
        averages, summed = self.averages, [self.loops.new(n) for n in self.averages.summed]
        each, over = [*self.at, *summed], [*itertools.chain(*summed)]
        a, b = (tuple(each[n] for n in own) for own in (averages.a_loops, averages.b_loops))
        if _sum_to_one(equalities, averages.a, self.loops, a, over):
            split, index = Splitting(self.loops, over).split(averages.b, b), b
            other = None if split is None else replace(averages, b=split.rest)
        elif _sum_to_one(equalities, averages.b, self.loops, b, over):
            split, index = Splitting(self.loops, over).split(averages.a, a), a
            other = None if split is None else replace(averages, a=split.rest)
        else:
            return
        if split is None or other is None or split.shift is None or not is_constant(split.shift):
            return
        if not equalities.results.isdisjoint(map(equalities.number, split.through)):
            return
        if (line := self._line(split.shift, index)) is not None:
            layer = replace(self.product, name=f"{self.product.name}_unbiased", a=placed(other, self.through))
            yield Match(tuple(self._pairs(equalities, readers, layer, self._behind(line))))

    def _line(self, shift: Value, index: LoopIndex) -> Value | None:
        """The shift along the features of the layer alone; None if it varies along other dimensions of its input."""
        others = [loop for d, loops in enumerate(self.index) if d != self._feature for loop in loops]
        if Splitting(self.loops, others).varies(shift, index):
            return None
        own, kept = self.loops.flat(self.index[self._feature]), self.loops.flat(itertools.chain(*index))
        if not set(own) <= set(kept):
            return None
        line = reshape(shift, tuple(self.loops.extent([loop]) for loop in kept))
        for dim, loop in enumerate(kept):
            line = line if loop in own else piece(line, dim, 0, 1)
        rest = [loop for loop in kept if loop not in own]
        order = [kept.index(loop) for loop in (*own, *rest)]
        shape = tuple(line.shape[d] for d in order)
        turned = permute(Result(f"{shift.name}_line", shape, shift.dtype, shift.line), line, order)
        return reshape(turned, (self.loops.extent(own),))

    @property
    def _feature(self) -> int:
        """The dimension of the input that the layer sums over."""
        return len(self.index) - (summed_place(self.product) or 0)

    def _behind(self, line: Value) -> Value:
        """The sums of products that a constant along the features contributes to the channels of the result."""
        sums = summed_with(line, self.product, self.product.b_loops.index(self.product.a_loops[self._feature]))
        return reshape(sums, (sums.elements,))

    def _pairs(
        self, equalities: Equalities, readers: Readers, layer: Product, line: Value
    ) -> Iterator[tuple[Value, Value]]:
        """The layer, and the same with its own bias, where it has one: a constant more to be added."""
        product = self.product
        channels = channels_of(product)
        found = Affine(layer, len(product.shape) - channels[-1], shift=line)
        yield product, folded(product, found, layer, channels)
        read = readers.get(equalities.number(product), ())
        if len(read) == 1 and isinstance(read[0], Pointwise) and equalities.number(product) not in equalities.results:
            biased = affine(equalities, read[0], found.place, to_product=True)
            if biased.core is product and not biased.changes(replace(found, shift=biased.shift)):
                both = combined(ex.add, (biased.shift, line), found.extent)
                yield read[0], folded(read[0], replace(found, shift=both), layer, channels)


def _layer(product: Product) -> _Layer | None:
    """The layer whose product it is; None where its input is not a view of another product."""
    loops = Loops()
    index = at = tuple(loops.new(n) for n in product.a.shape)
    through: list[Value] = []
    here = product.a
    while isinstance(here, View) or rounds(here):
        through.append(here)
        (argument,) = here.operands
        try:
            at = loops.through(here.kind, at, argument.shape) if isinstance(here, View) else at
        except LoopCutError:
            return None
        here = argument
    return _Layer(product, here, tuple(through), loops, index, at) if isinstance(here, Product) else None


def _sum_to_one(equalities: Equalities, value: Value, loops: Loops, index: LoopIndex, over: Sequence[int]) -> bool:
    """True if a value was divided by its sum over exactly these loops."""
    while isinstance(value, View) or rounds(value):
        (argument,) = value.operands
        try:
            index = loops.through(value.kind, index, argument.shape) if isinstance(value, View) else index
        except LoopCutError:
            return False
        value = argument
    dims = averaged_dims(equalities, value)
    return bool(dims) and {*loops.flat(loop for d in dims for loop in index[d])} == {*loops.flat(over)}
