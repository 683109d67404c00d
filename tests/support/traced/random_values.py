"""Random graphs of values: products that share operands, pointwise work, roundings, views, sums, concatenations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.operators.view_translation import permute, piece
from autosched.tracing.rewriting.examples import leaf, matmul
from autosched.tracing.values.values import Joined, Value
from search_spaces.workloads.expressions.expression import Literal, add, call, mul

_STEPS = 10
_FACTORS = 0.5, 2.0, 3.0


def random_values(seed: int) -> list[Value]:
    """The results of a random function of matrices, of which others may be computed from the same values."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 4))
    known: list[Value] = [leaf("x", (size, size)), leaf("y", (size, size))]
    weights: list[Value] = [leaf(f"w{n}", (size, int(rng.integers(1, 4))), constant=True) for n in range(3)]
    for _ in range(_STEPS):
        made = _KINDS[int(rng.integers(len(_KINDS)))](rng, known, weights)
        known += [] if made is None else [made]
    return [known[-1], *(v for v in known[2:-1] if rng.random() < 0.3)]


def _one(rng: np.random.Generator, values: Sequence[Value]) -> Value:
    return values[int(rng.integers(len(values)))]


def _multiplied(rng: np.random.Generator, known: list[Value], weights: list[Value]) -> Value | None:
    a = _one(rng, known[:3] if rng.random() < 0.5 else known)
    if len(a.shape) != 2:
        return None
    values = weights if rng.random() < 0.7 else known
    others = [v for v in values if len(v.shape) == 2 and (v.shape[0], v.dtype) == (a.shape[1], a.dtype)]
    for other in others[: int(rng.integers(1, 4))]:
        known.append(matmul(a, other, name=f"product{len(known)}"))
    return None


def _two(rng: np.random.Generator, known: list[Value], weights: list[Value]) -> Value | None:
    a = _one(rng, known)
    alike = [v for v in known if v.shape in (a.shape, a.shape[1:]) and v.dtype == a.dtype]
    combine = (add, mul, lambda x, y: call("maximum", x, y))[int(rng.integers(3))]
    return Result(f"two{len(known)}", a.shape, a.dtype, "").pointwise(combine, a, _one(rng, alike))


def _one_alone(rng: np.random.Generator, known: list[Value], weights: list[Value]) -> Value | None:
    values, factor = weights if rng.random() < 0.2 else known, _FACTORS[int(rng.integers(3))]
    a = _one(rng, values)
    combine = (lambda x: mul(x, Literal(factor)), lambda x: call("exp", x), lambda x: x)[int(rng.integers(3))]
    made = Result(f"{a.name}_one{len(known)}", a.shape, _dtype(rng, a), "").pointwise(combine, a)
    if values is weights:
        weights.append(made)
        return None
    return made


def _dtype(rng: np.random.Generator, a: Value) -> str:
    return "bfloat16" if rng.random() < 0.3 else a.dtype


def _viewed(rng: np.random.Generator, known: list[Value], weights: list[Value]) -> Value | None:
    a = _one(rng, known)
    if len(a.shape) != 2:
        return reshape(a, (1, *a.shape))
    if rng.random() < 0.4:
        return permute(Result(f"{a.name}_transposed", a.shape[::-1], a.dtype, ""), a, (1, 0))
    dim = int(rng.integers(2))
    begin = int(rng.integers(a.shape[dim]))
    return piece(a, dim, begin, int(rng.integers(1, a.shape[dim] - begin + 1)))


def _reduced(rng: np.random.Generator, known: list[Value], weights: list[Value]) -> Value | None:
    a = _one(rng, known)
    operator, dim = ("sum", "sum", "max")[int(rng.integers(3))], int(rng.integers(len(a.shape)))
    if len(a.shape) < 2:
        return None
    shape = tuple(n for d, n in enumerate(a.shape) if d != dim)
    return Result(f"{a.name}_{operator}{len(known)}", shape, "float32", "").reduced(operator, a, (dim,))


def _joined(rng: np.random.Generator, known: list[Value], weights: list[Value]) -> Value | None:
    a, dim = _one(rng, known), 0
    others = [v for v in known if v.shape[1:] == a.shape[1:] and v.dtype == a.dtype]
    parts = a, _one(rng, others)
    shape = (sum(p.shape[dim] for p in parts), *a.shape[1:])
    return Result(f"joined{len(known)}", shape, a.dtype, "").of(Joined, parts=parts, dim=dim)


_Kind = Callable[[np.random.Generator, list[Value], list[Value]], Value | None]
_KINDS: tuple[_Kind, ...] = (_multiplied, _multiplied, _multiplied, _two, _one_alone, _viewed, _reduced, _joined)
