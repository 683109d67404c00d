"""Products of one operand as parts of one wide product.

    y1 = x @ w1;  y2 = x @ w2;  …        →        y = x @ cat([w1, w2, …]);  y1, y2, … = split(y)

Queries, keys and values of attention, gates next to values, keys and values of several decoder layers: wide products
fill the device where narrow ones do not, and x is read once. The weights are concatenated once, before the first call,
as they must be constant; that takes their memory a second time. Biases, roundings and other pointwise work that all
products have alike are done on the wide one. All products of an operand are merged at once: pairs would make 2^n.

Exactness: the same products, sums and roundings, though a kernel of another width may sum in another order, as any
schedule may. Sources: A. Vaswani et al., "Attention Is All You Need", 2017 (one projection for all heads); XLA's
DotMerger; Hidet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from autosched.tracing.fusion.regions import below
from autosched.tracing.operators.rules import Result
from autosched.tracing.operators.view_translation import permute, piece
from autosched.tracing.rewriting.affine import is_merged
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.examples import leaf, matmul
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.rewriting.terms import is_constant
from autosched.tracing.values.values import Joined, Leaf, Pointwise, Product, Value, View
from autosched.tracing.values.views import Permutation
from search_spaces.workloads.expressions.expression import Access, Expression, Literal, add, call
from search_spaces.workloads.expressions.walking import accesses, rewritten


def _matches(equalities: Equalities) -> Iterator[Match]:
    groups: dict[Hashable, dict[int, Product]] = defaultdict(dict)
    readers = equalities.readers()
    for value in equalities.terms():
        if not isinstance(value, Product) or is_merged(equalities, readers, value):
            continue
        if (dim := _own_dim(value)) is not None and is_constant(value.b):
            sizes = (*value.shape[:dim], 0, *value.shape[dim + 1 :])
            key = equalities.number(value.a), value.a_loops, value.b_loops, value.b.dtype, value.precision, sizes
            groups[key].setdefault(equalities.number(value.b), value)
    for group in groups.values():
        merged = {p for p in group.values() if any(isinstance(form, View) for form in equalities.forms(p))}
        products = _without_originals([*group.values()], merged) if len(group) > len(merged) else []
        if len(products) > 1 and not merged >= {*products}:
            yield _merged(equalities, readers, products)


def _without_originals(products: Sequence[Product], merged: Set[Product]) -> list[Product]:
    """The products without those of which a rewrite has made another one here, by multiplying into its constants.

    Those that are `merged` were there before others, which numbers alone may have been multiplied into.
    """
    leaves = {p: {v for v in below([p.b]) if isinstance(v, Leaf)} for p in products}

    def is_original(p: Product) -> bool:
        return any(
            leaves[p] < leaves[q] or (p in merged and q not in merged and leaves[p] == leaves[q]) for q in products
        )

    return [p for p in products if not is_original(p)]


def _own_dim(product: Product) -> int | None:
    """The one dimension of the result that only the second operand has; None for several or none."""
    own = [n for n in range(len(product.shape)) if n not in product.a_loops]
    return own[0] if len(own) == 1 else None


@dataclass(frozen=True)
class _Level:
    """Values that are parts of a `wide` one, in order along a dimension."""

    parts: tuple[Value, ...]
    wide: Value
    dim: int

    @property
    def pairs(self) -> tuple[tuple[Value, Value], ...]:
        begin, found = 0, []
        for part in self.parts:
            found.append((part, piece(self.wide, self.dim, begin, part.shape[self.dim])))
            begin += part.shape[self.dim]
        return tuple(found)


def _merged(equalities: Equalities, readers: Mapping[int, Sequence[Value]], products: Sequence[Product]) -> Match:
    first = products[0]
    dim = _own_dim(first)
    assert dim is not None
    wide = replace(
        first,
        name=f"{first.name}_merged",
        shape=_wide_shape(products, dim),
        strides=None,
        b=concatenated([p.b for p in products], first.b_loops.index(dim)),
    )
    level: _Level | None = _Level(tuple(products), wide, dim)
    pairs: list[tuple[Value, Value]] = []
    while level is not None:
        pairs += level.pairs
        level = _above(equalities, readers, level)
    return Match(tuple(pairs))


def _wide_shape(parts: Sequence[Value], dim: int) -> tuple[int, ...]:
    shape = parts[0].shape
    return (*shape[:dim], sum(p.shape[dim] for p in parts), *shape[dim + 1 :])


def concatenated(parts: Sequence[Value], dim: int) -> Value:
    """The values along a dimension, as a view like theirs where all are one of that kind: weights stay as they lie."""
    first = parts[0]
    kinds = {p.kind if isinstance(p, View) else None for p in parts}
    if len(kinds) == 1 and isinstance(first, View) and isinstance(first.kind, Permutation):
        whole = concatenated([p.argument for p in parts if isinstance(p, View)], first.kind.order[dim])
        return replace(first, name=f"{first.name}_merged", shape=_wide_shape(parts, dim), argument=whole)
    made = Result(f"{first.name}_merged", _wide_shape(parts, dim), first.dtype, first.line)
    return made.of(Joined, parts=tuple(parts), dim=dim)


def _above(equalities: Equalities, readers: Mapping[int, Sequence[Value]], level: _Level) -> _Level | None:
    """The pointwise functions that all parts have alike, as one of the wide value; None where they have none."""
    first, *others = level.parts
    for reader in _pointwise(equalities, readers, first):
        alike = [_alike(equalities, readers, reader, first, part, level.dim) for part in others]
        found = [reader, *(a for a in alike if a is not None)]
        if len(found) == len(level.parts) and len({equalities.number(f) for f in found}) == len(found):
            return _Level(tuple(found), _widened(equalities, level, found), level.dim)
    return None


def _pointwise(equalities: Equalities, readers: Mapping[int, Sequence[Value]], part: Value) -> list[Pointwise]:
    known = readers.get(equalities.number(part), ())
    return [r for r in known if isinstance(r, Pointwise) and r.shape == part.shape]


def _alike(
    equalities: Equalities,
    readers: Mapping[int, Sequence[Value]],
    reader: Pointwise,
    first: Value,
    part: Value,
    dim: int,
) -> Pointwise | None:
    """The same function of another part, of other constants or the same values next to it."""

    def fits(other: Pointwise) -> bool:
        (expression, arguments), (wanted, own) = _in_order(other), _in_order(reader)
        if (expression, other.dtype, len(arguments)) != (wanted, reader.dtype, len(own)):
            return False
        pairs = zip(own, arguments, strict=True)
        return all(_fits(equalities, (a, first), (b, part), len(part.shape) - dim) for a, b in pairs)

    return next((other for other in _pointwise(equalities, readers, part) if fits(other)), None)


def _in_order(value: Pointwise) -> tuple[Expression, tuple[Value, ...]]:
    """The expression and the arguments that it reads, in the order in which it reads them first."""
    numbers = dict.fromkeys(int(e.tensor) for e in accesses(value.expression))
    places = {number: place for place, number in enumerate(numbers)}

    def moved(e: Expression) -> Expression | None:
        return replace(e, tensor=str(places[int(e.tensor)])) if isinstance(e, Access) else None

    return rewritten(value.expression, moved), tuple(value.arguments[n] for n in numbers)


def _fits(equalities: Equalities, of_first: tuple[Value, Value], of_part: tuple[Value, Value], place: int) -> bool:
    """True if two arguments are the parts themselves, one value that does not vary along them, or constants that do.

    `place`: of the dimension along which they are joined, counted from the last one.
    """
    (a, first), (b, part) = of_first, of_part
    if equalities.are_equal(a, first) or equalities.are_equal(b, part):
        return equalities.are_equal(a, first) and equalities.are_equal(b, part)
    if not _varies(a, place) and not _varies(b, place):
        return equalities.are_equal(a, b)
    sizes = [(*x.shape[: len(x.shape) - place], *x.shape[len(x.shape) - place + 1 :]) for x in (a, b)]
    varies = _varies(a, place) and _varies(b, place)
    return varies and sizes[0] == sizes[1] and a.dtype == b.dtype and is_constant(a) and is_constant(b)


def _varies(argument: Value, place: int) -> bool:
    return len(argument.shape) >= place and argument.shape[-place] > 1


def _widened(equalities: Equalities, level: _Level, found: Sequence[Value]) -> Value:
    first = found[0]
    assert isinstance(first, Pointwise)
    place = len(first.shape) - level.dim
    expression, own = _in_order(first)
    arguments = []
    for number, argument in enumerate(own):
        if equalities.are_equal(argument, level.parts[0]):
            arguments.append(level.wide)
        elif _varies(argument, place):
            several = [_in_order(f)[1][number] for f in found if isinstance(f, Pointwise)]
            arguments.append(concatenated(several, len(argument.shape) - place))
        else:
            arguments.append(argument)
    return replace(
        first,
        name=f"{first.name}_merged",
        shape=_wide_shape(found, level.dim),
        strides=None,
        arguments=tuple(arguments),
        expression=expression,
    )


def _example(sizes: Sequence[int]) -> list[Value]:
    m, k, n, o = sizes
    x = leaf("x", (m, k))
    weights = [leaf("w", (k, n), constant=True), leaf("v", (k, o), constant=True)]
    return [matmul(x, w) for w in weights]


def _of_biased_layers(sizes: Sequence[int]) -> list[Value]:
    """With biases and roundings, as linear layers in bfloat16; weights lie transposed."""
    m, k, n, o = sizes
    x = leaf("x", (m, k), dtype="bfloat16")

    def layer(name: str, width: int) -> Value:
        w = leaf(f"{name}_weight", (width, k), constant=True, dtype="bfloat16")
        bias = leaf(f"{name}_bias", (width,), constant=True, dtype="bfloat16")
        sums = matmul(x, permute(Result(f"{name}_transposed", (k, width), w.dtype, ""), w, (1, 0)))
        return Result(name, sums.shape, "bfloat16", "").pointwise(add, sums, bias)

    first, second = layer("q", n), layer("k", o)
    of_second = Result("relu", second.shape, "bfloat16", "")
    return [first, of_second.pointwise(lambda x: call("maximum", x, Literal(0.0)), second)]


def _of_inputs(sizes: Sequence[int]) -> list[Value]:
    """Second operands that every call has anew."""
    m, k, n, o = sizes
    x = leaf("x", (m, k))
    return [matmul(x, leaf("w", (k, n))), matmul(x, leaf("v", (k, o)))]


def _of_several_operands(sizes: Sequence[int]) -> list[Value]:
    m, k, n, o = sizes
    return [matmul(leaf(f"x{size}", (m, k)), leaf("w", (k, size), constant=True)) for size in (n, o)]


RULE = Rule(
    name="products of one operand",
    exactness="same",
    matches=_matches,
    example=_example,
    others=(_of_biased_layers,),
    refused=(_of_inputs, _of_several_operands),
)
