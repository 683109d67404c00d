"""Values as a rest and a shift that does not vary along some loops: a bias of keys along the keys.

The shift is found through views, roundings to 16 bits (those to 8 are what a user of quantization asks for), scales
that do not vary either, masks of -infinity, which no finite shift changes, and a product, of one operand of which it is
then a part. One product only, as that is computed anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from autosched.tracing.operators.rules import Result
from autosched.tracing.rewriting.affine import computed, rounds
from autosched.tracing.rewriting.contractions.loops import LoopCutError, LoopIndex, Loops, broadcast
from autosched.tracing.rewriting.terms import is_constant
from autosched.tracing.values.values import Pointwise, Product, Value, View, placeholder
from autosched.tracing.values.views import Selection, Slicing
from search_spaces.workloads.dtypes import dtype, is_float
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Literal
from search_spaces.workloads.expressions.walking import distinct

_MASK = Literal(float("-inf"))
# Values that are looked at: beyond, there is more than one layer of a model.
_MOST_VALUES = 64

# The rest and the shift of an expression.
_Terms = tuple[Expression, Expression | None]


@dataclass(frozen=True, eq=False)
class Split:
    """A value as `rest + shift`; `rest` has its type and roundings.

    `shift`: in float32 and of the value's shape; None where it is not a sum of what was read, as behind products and
    masks. `through`: the values that are computed anew, outermost first; `summand`: what the last of them adds.
    """

    rest: Value
    shift: Value | None
    through: tuple[Value, ...]
    summand: Value

    @property
    def of_a_layer(self) -> bool:
        """True for the bias of a layer: a constant that is added to a product with constants."""
        return is_constant(self.summand) and any(map(_is_layer, self.through[-1].operands))

    @property
    def dear(self) -> tuple[Value, ...]:
        """The values down to the product that is computed anew."""
        products = [n for n, v in enumerate(self.through) if isinstance(v, Product)]
        return self.through[: products[-1] + 1] if products else ()


def _is_layer(value: Value) -> bool:
    while isinstance(value, View) or rounds(value):
        (value,) = value.operands
    return isinstance(value, Product) and is_constant(value.b)


@dataclass(eq=False)
class Splitting:
    """Splits of values at indices of `loops`, whose shifts do not vary along the loops `along`."""

    loops: Loops
    along: Sequence[int]
    _tried: set[Value] = field(default_factory=set)

    @staticmethod
    def along_dims(value: Value, dims: Sequence[int]) -> Split | None:
        """A value as a rest and a shift that does not vary along these dimensions; None where none is known."""
        loops = Loops()
        index = tuple(loops.new(n) for n in value.shape)
        return Splitting(loops, [loop for d in dims for loop in index[d]]).split(value, index)

    def split(self, value: Value, index: LoopIndex, within: bool = False) -> Split | None:
        """The value as a rest and a shift; None where none is known. `within`: it is an operand of a product."""
        if (
            value in self._tried
            or len(self._tried) > _MOST_VALUES
            or not is_float(value.dtype)
            or dtype(value.dtype).bytes == 1
            or not self._has(*index)
        ):
            return None
        self._tried.add(value)
        try:
            match value:
                case View(argument=argument, kind=kind):
                    inner = self.split(argument, self._through(kind, index, argument.shape), within)
                    return None if inner is None else _viewed(value, inner)
                case Product() if not within:
                    return self._product(value, index)
                case Pointwise(arguments=arguments):
                    return _Expressions(self, value, index, within, [*arguments]).split()
        except LoopCutError:
            pass
        return None

    def varies(self, value: Value, index: LoopIndex, depth: int = 0) -> bool:
        """False for a value that is known to be the same along the loops."""
        if depth > _MOST_VALUES or not self._has(*index):
            return depth > _MOST_VALUES
        try:
            match value:
                case View(argument=argument, kind=kind):
                    return self.varies(argument, self._through(kind, index, argument.shape), depth + 1)
                case Pointwise(arguments=arguments):
                    return any(self.varies(a, broadcast(index, a.shape), depth + 1) for a in arguments)
        except LoopCutError:
            pass
        return True

    def _has(self, *loops: Sequence[int]) -> bool:
        """True if some of these are loops along which shifts are not to vary."""
        return not set(self.loops.flat(self.along)).isdisjoint(self.loops.flat(itertools.chain(*loops)))

    def _through(self, kind: object, index: LoopIndex, source: Sequence[int]) -> LoopIndex:
        """The index of a view's argument, where positions that the view does not have are loops of their own."""
        match kind:
            case Selection(dim=dim):
                return (*index[:dim], self.loops.new(source[dim]), *index[dim:])
            case Slicing(dim=dim) if not self._has(index[dim]):
                return (*index[:dim], self.loops.new(source[dim]), *index[dim + 1 :])
        return self.loops.through(kind, index, source)

    def _product(self, value: Product, index: LoopIndex) -> Split | None:
        """Of a product less a part of the operand that alone varies along the loops."""
        each = [*index, *(self.loops.new(n) for n in value.summed)]
        a, b = (tuple(each[n] for n in own) for own in (value.a_loops, value.b_loops))
        first, second = self._has(*a), self._has(*b)
        if first == second:
            return None
        inner = self.split(value.a, a, True) if first else self.split(value.b, b, True)
        if inner is None:
            return None
        name = f"{value.name}_unshifted"
        rest = replace(value, name=name, a=inner.rest) if first else replace(value, name=name, b=inner.rest)
        return Split(rest, None, (value, *inner.through), inner.summand)


def _viewed(view: View, inner: Split) -> Split:
    rest = replace(view, name=f"{view.name}_unshifted", argument=inner.rest)
    shift = inner.shift
    if shift is not None:
        shift = replace(view, name=f"{view.name}_shift", argument=shift, dtype=shift.dtype, strides=None)
    return Split(rest, shift, (view, *inner.through), inner.summand)


@dataclass(eq=False)
class _Expressions:
    """Splits of parts of a value's expression; `arguments`: its own, and the rest and shift of one, as `inner`."""

    splitting: Splitting
    value: Pointwise
    index: LoopIndex
    within: bool
    arguments: list[Value]
    inner: Split | None = None

    def split(self) -> Split | None:
        found = self._split(self.value.expression)
        if found is None:
            return None
        rest, shift = found
        made = self._made("unshifted", rest, self.value.dtype)
        more = None if shift is None else self._made("shift", shift, "float32")
        if self.inner is None:
            assert more is not None
            return Split(made, more, (self.value,), more)
        return Split(made, more, (self.value, *self.inner.through), self.inner.summand)

    def _made(self, name: str, part: Expression, dtype: str) -> Value:
        used = {int(e.tensor): self.arguments[int(e.tensor)] for e in distinct(part) if isinstance(e, Access)}
        return computed(Result(f"{self.value.name}_{name}", self.value.shape, dtype, self.value.line), part, used)

    def _split(self, part: Expression) -> _Terms | None:
        """The rest and the shift of a part."""
        match part:
            case Access(number, ()):
                return self._argument(self.arguments[int(number)])
            case Apply("add", (x, y)):
                return self._sum(x, y, ex.add)
            case Apply("sub", (x, y)):
                return self._sum(x, y, ex.sub)
            case Apply("neg", (x,)):
                return self._through(x, _negated)
            case Apply("mul" | "div" as operator, (x, y)) if not self._varies(y):
                return self._through(x, lambda e: ex.call(operator, e, y))
            case Apply("mul", (x, y)) if not self._varies(x):
                return self._through(y, lambda e: ex.mul(x, e))
            case Apply("where", (mask, x, y)) if _MASK in (x, y):
                inner = self._split(x if y == _MASK else y)
                if inner is None:
                    return None
                return ex.call("where", mask, *((inner[0], y) if y == _MASK else (x, inner[0]))), None
            case Apply("round_float16" | "round_bfloat16" as operator, (x,)):
                inner = self._split(x)
                return None if inner is None else (ex.call(operator, inner[0]), inner[1])
        return None

    def _argument(self, argument: Value) -> _Terms | None:
        inner = self.splitting.split(argument, broadcast(self.index, argument.shape), self.within)
        if inner is None:
            return None
        self.inner = inner
        return self._placed(inner.rest), None if inner.shift is None else self._placed(inner.shift)

    def _placed(self, value: Value) -> Expression:
        self.arguments.append(value)
        return placeholder(len(self.arguments) - 1, value.dtype)

    def _sum(
        self, x: Expression, y: Expression, combine: Callable[[Expression, Expression], Expression]
    ) -> _Terms | None:
        signed = _negated if combine is ex.sub else _itself
        if not self._varies(y):
            return x, signed(y)
        if not self._varies(x):
            return signed(y), x
        if (inner := self._split(x)) is not None:
            return combine(inner[0], y), inner[1]
        if (inner := self._split(y)) is not None:
            return combine(x, inner[0]), None if inner[1] is None else signed(inner[1])
        return None

    def _through(self, x: Expression, linear: Callable[[Expression], Expression]) -> _Terms | None:
        inner = self._split(x)
        return None if inner is None else (linear(inner[0]), None if inner[1] is None else linear(inner[1]))

    def _varies(self, part: Expression) -> bool:
        read = (self.value.arguments[int(e.tensor)] for e in distinct(part) if isinstance(e, Access))
        return any(self.splitting.varies(a, broadcast(self.index, a.shape)) for a in read)


def _negated(x: Expression) -> Expression:
    return ex.call("neg", x)


def _itself(x: Expression) -> Expression:
    return x
