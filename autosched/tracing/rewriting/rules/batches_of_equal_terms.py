"""Equal terms of other operands as one batched term.

    [f(x[i] @ w[i]) for i in …]                  →    f(bmm(x, w)), of which each reader has a slice
    stack([relu(x @ u1) @ v1, relu(x @ u2) @ v2]) →    relu(x @ stack([u1, u2])) @ stack([v1, v2])
    cat(x.split(n))                              →    x

Loops in Python over experts, heads and branches make many small kernels, where one fills the device. Terms are equal
if they differ in their operands alone, and operands may differ where they can be stacked without a copy: slices of one
tensor at equal distances, constants, which are stacked once before the first call and take their memory a second time,
and terms of another such batch. So batches are found from the operands up, whole chains together, and all terms of a
batch at once. What others read of a batch are slices of it; concatenations of all slices are views.

A batch of pointwise work alone is left to fusion, and one of products of one operand and constants to their own rule.

Exactness: the same operations and roundings; a batched kernel may sum in another order, as any schedule may. Sources:
JAX's vmap; T. Gale et al., "MegaBlocks: Efficient Sparse Training with Mixture-of-Experts", MLSys 2023.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.operators.view_translation import piece, select
from autosched.tracing.rewriting.batching.batches import Batch, Batches
from autosched.tracing.rewriting.batching.stacks import whole_of
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.examples import leaf, matmul, pointwise
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.values.values import InParts, Joined, Value, View
from search_spaces.workloads.expressions.expression import Expression, Literal, add, call, mul


def _matches(equalities: Equalities) -> Iterator[Match]:
    batches, readers = Batches.within(equalities), equalities.readers()
    wholes = {value: whole for value in equalities.terms() if (whole := _concatenated(batches, value)) is not None}
    for value, whole in wholes.items():
        # Where it is a view already, it was rewritten before.
        if not any(isinstance(form, View) for form in equalities.forms(value)):
            yield Match(((value, whole),))
    made: dict[Batch, list[tuple[Value, Value]]] = {}
    for own in batches.of.values():
        if own[0].pays and own[0] not in made:
            made[own[0]] = [*_slices(batches, own[0], readers, wholes)]
    yield from (Match(tuple(pairs)) for pairs in made.values() if pairs)


def _concatenated(batches: Batches, value: Value) -> Value | None:
    """A concatenation of slices of one tensor, or of terms of a batch, as a view of the whole; None for others."""
    dim = _dim_of_equal_parts(value)
    stacked = None if dim is None else batches.stacked(value.operands)
    return None if dim is None or stacked is None else whole_of(stacked, dim, value.shape)


def _dim_of_equal_parts(value: Value) -> int | None:
    """The dimension along which a value is the concatenation of operands of one shape; None for others."""
    match value:
        case Joined(parts=parts, dim=dim, in_groups=False) if len({p.shape for p in parts}) == 1:
            return dim
        case InParts(parts=(first, *_) as parts, begins=begins) if len({p.shape for p in parts}) == 1:
            dims = [d for d, size in enumerate(value.shape) if size != first.shape[d]]
            places = [
                tuple(n * first.shape[d] * (d in dims) for d in range(len(value.shape))) for n in range(len(parts))
            ]
            return dims[0] if len(dims) == 1 and [*begins] == places and {*value.steps} == {1} else None
        case _:
            return None


def _slices(
    batches: Batches, batch: Batch, readers: Mapping[int, Sequence[Value]], wholes: Container[Value]
) -> Iterator[tuple[Value, Value]]:
    """The terms that are read by others than `wholes` and terms of batches above, each with the slice that it is."""
    equalities = batches.equalities
    for place, term in enumerate(batch.terms):
        number = equalities.number(term)
        others = [r for r in readers.get(number, ()) if r not in wholes]
        above = [batches.of.get(equalities.number(r), ()) for r in others]
        alone = number in equalities.results or not all(own and batch in own[0].below for own in above)
        if alone and batches.of[number][0] is batch:
            part = Result(f"{term.name}_of_batch", term.shape, term.dtype, term.line)
            yield term, select(part, batch.value, 0, place)


def _relu(x: Expression) -> Expression:
    return call("maximum", x, Literal(0.0))


def _example(sizes: Sequence[int]) -> list[Value]:
    """Experts of two layers, stacked."""
    m, k, n, _ = sizes
    x = leaf("x", (m, k))
    made = []
    for number in range(3):
        inner = pointwise(_relu, matmul(x, leaf(f"w{number}", (k, n), constant=True)))
        made.append(reshape(matmul(inner, leaf(f"v{number}", (n, k), constant=True)), (1, m, k)))
    return [Result("stacked", (3, m, k), "float32", "").of(Joined, parts=tuple(made), dim=0)]


def _of_slices(sizes: Sequence[int]) -> list[Value]:
    """Products of slices of arguments, in two directions, one of which is read by itself; rounded, with a scale."""
    m, k, n, _ = sizes
    x, w = leaf("x", (m, 3 * k)), leaf("w", (3, k, n))
    scale = leaf("scale", (m, 3))
    made = []
    for number in range(3):
        part = piece(x, 1, number * k, k)
        sums = matmul(part, select(Result(f"w{number}", (k, n), "float32", ""), w, 0, number))
        rounded = Result(f"rounded{number}", (m, n), "bfloat16", "").pointwise(lambda e: e, sums)
        made.append(pointwise(mul, rounded, piece(scale, 1, number, 1)))
    return [made[0], pointwise(add, made[1], made[2])]


def _of_heads(sizes: Sequence[int]) -> list[Value]:
    """Sums over slices that lie between others, of terms that read each other's operands."""
    m, n, _, _ = sizes
    x = leaf("x", (4 * n, m))
    made = []
    for number in range(2):
        q, k = (piece(x, 0, (2 * number + other) * n, n) for other in range(2))
        total = Result(f"total{number}", (m,), "float32", "").reduced("max", pointwise(mul, q, k), (0,))
        made.append(pointwise(mul, q, total))
    return made


def _of_tensors(sizes: Sequence[int]) -> list[Value]:
    """Operands that would have to be copied."""
    m, k, n, _ = sizes
    return [matmul(leaf(f"x{number}", (m, k)), leaf(f"w{number}", (k, n))) for number in range(2)]


def _of_one_operand(sizes: Sequence[int]) -> list[Value]:
    m, k, n, _ = sizes
    return [matmul(leaf("x", (m, k)), leaf(f"w{number}", (k, n), constant=True)) for number in range(2)]


def _at_other_distances(sizes: Sequence[int]) -> list[Value]:
    m, k, n, _ = sizes
    x, w = leaf("x", (m, 4 * k)), leaf("w", (k, n))
    return [matmul(piece(x, 1, start * k, k), w) for start in (0, 1, 3)]


RULE = Rule(
    name="batches of equal terms",
    exactness="same",
    matches=_matches,
    example=_example,
    others=(_of_slices, _of_heads),
    refused=(_of_tensors, _of_one_operand, _at_other_distances),
)
