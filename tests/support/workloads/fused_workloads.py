"""Workloads of several dots, and of operands that are computed first."""

from __future__ import annotations

from collections.abc import Sequence

from search_spaces import Axis, Reduction, Stage, Tensor, Workload
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Literal

PROLOGUES = ("", "relu_scale", "normalised", "decayed")


def at(*names: str) -> tuple[Affine, ...]:
    return tuple(axis_index(n) for n in names)


def precision_of(dtype: str) -> str:
    return "tf32" if dtype == "float32" else "ieee"


def rounded(value: Expression, dtype: str) -> Expression:
    return value if dtype == "float32" else ex.call(f"round_{dtype}", value)


def silu(x: Expression) -> Expression:
    return ex.div(x, ex.add(Literal(1.0), ex.call("exp", ex.call("neg", x))))


def gated(
    m: int, n: int, k: int, dtype: str = "float16", prologue: str = "", layout: str = "n", batch: int | None = None
) -> Workload:
    """out = silu(f(x) @ wg) * (f(x) @ wu); of a batch, its matrices share both weights."""
    rows, columns, depth = Axis("m", m), Axis("n", n), Axis("k", k)
    outer = (Axis("b", batch),) if batch else ()
    lead, shape = tuple(x.name for x in outer), tuple(x.extent for x in outer)
    weights, where = ((n, k), at("n", "k")) if layout == "t" else ((k, n), at("k", "n"))
    x, extra = _prologue(prologue, Access("x", at(*lead, "m", "k")), dtype, m, k)
    fold, axes = Reduction("sum", (depth,)), (*outer, rows, columns)
    gate, up = (Access(s, at(*lead, "m", "n")) for s in ("gate", "up"))
    stages = (
        Stage("gate", axes, ex.mul(x, Access("wg", where)), fold),
        Stage("up", axes, ex.mul(Access("wu", where), x), fold),
        Stage("out", axes, ex.mul(silu(gate), up), dtype=dtype),
    )
    inputs = (Tensor("x", (*shape, m, k), dtype), *extra, Tensor("wg", weights, dtype), Tensor("wu", weights, dtype))
    return Workload(f"gated_{prologue or 'plain'}", inputs, stages, precision_of(dtype))


def sum_of_products(m: int, n: int, k: int, dtype: str = "float16") -> Workload:
    """out = a @ b + a @ c."""
    fold, axes = Reduction("sum", (Axis("k", k),)), (Axis("m", m), Axis("n", n))
    a, (b, c) = Access("a", at("m", "k")), (Access(x, at("k", "n")) for x in "bc")
    stages = (
        Stage("first", axes, ex.mul(a, b), fold),
        Stage("second", axes, ex.mul(a, c), fold),
        Stage("out", axes, ex.add(Access("first", at("m", "n")), Access("second", at("m", "n"))), dtype=dtype),
    )
    shapes = {"a": (m, k), "b": (k, n), "c": (k, n)}
    inputs = tuple(Tensor(x, shape, dtype) for x, shape in shapes.items())
    return Workload("sum_of_products", inputs, stages, precision_of(dtype))


def prepared(
    m: int, n: int, k: int, dtype: str = "float16", prologue: str = "relu_scale", computed: Sequence[str] = "a"
) -> Workload:
    """out = relu(f(x) @ w + bias), or with f on the columns, or on both."""
    fold, axes = Reduction("sum", (Axis("k", k),)), (Axis("m", m), Axis("n", n))
    a, b = Access("x", at("m", "k")), Access("w", at("n", "k"))
    left, extra = _prologue(prologue, a, dtype, m, k) if "a" in computed else (a, ())
    right = rounded(ex.call("exp", ex.mul(b, Literal(0.5))), dtype) if "b" in computed else b
    result = ex.call("maximum", ex.add(Access("acc", at("m", "n")), Access("bias", at("n"))), Literal(0.0))
    stages = (Stage("acc", axes, ex.mul(left, right), fold), Stage("out", axes, result, dtype=dtype))
    inputs = (Tensor("x", (m, k), dtype), *extra, Tensor("w", (n, k), dtype), Tensor("bias", (n,), dtype))
    return Workload(f"prepared_{prologue}", inputs, stages, precision_of(dtype))


def _prologue(name: str, x: Access, dtype: str, m: int, k: int) -> tuple[Expression, tuple[Tensor, ...]]:
    """The operand, and what it needs beside `x`. Of zeros, the first alone makes zeros."""
    match name:
        case "relu_scale":
            scaled = ex.mul(ex.call("maximum", x, Literal(0.0)), Access("s", at("k")))
            return rounded(scaled, dtype), (Tensor("s", (k,), dtype),)
        case "normalised":
            value = ex.mul(ex.sub(x, Access("mean", at("m"))), Access("rstd", at("m")))
            return rounded(value, dtype), (Tensor("mean", (m,), "float32"), Tensor("rstd", (m,), "float32"))
        case "decayed":
            # Where k ends, it is divided by 0.
            distance = ex.call("abs", ex.sub(x, Access("top", at("m"))))
            decayed = ex.div(ex.call("exp", ex.call("neg", distance)), Access("s", at("k")))
            return rounded(decayed, dtype), (Tensor("top", (m,), "float32"), Tensor("s", (k,), dtype))
        case _:
            return x, ()
