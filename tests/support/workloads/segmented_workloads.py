"""Workloads of axes that are cut into segments by data: jagged elements, rows and products, of every structure."""

from __future__ import annotations

import math
from typing import Literal as OneOf

from search_spaces import Axis, Reduction, Stage, Tensor, Workload
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Expression,
    Gather,
    Literal,
    Position,
    Segment,
    call,
    div,
    mul,
    sub,
)


def at(tensor: str, *axes: str) -> Access:
    """An element at plain axes."""
    return Access(tensor, tuple(map(axis_index, axes)))


def whole(e: Expression) -> Expression:
    return call("to_integer", e)


def within(axis: str, segment: str, offsets: str = "offsets") -> Expression:
    """1 where offsets[segment] <= position < offsets[segment + 1]."""
    position = whole(Position(axis_index(axis)))
    begin, end = (Access(offsets, (Affine.of((segment, 1), offset=n),)) for n in (0, 1))
    return mul(call("le", whole(begin), position), call("lt", position, whole(end)))


def jagged_scale(rows: int = 50, columns: int = 24, segments: int = 5, dtype: str = "int32") -> Workload:
    """out[t, d] = x[t, d] * scale[segment of t, d], NaN behind the last end."""
    t, d = Axis("t", rows), Axis("d", columns)
    scale = Gather("scale", (Segment("ends", axis_index("t"), segments), axis_index("d")))
    inputs = (
        Tensor("x", (rows, columns), "float32"),
        Tensor("scale", (segments, columns), "float32"),
        Tensor("ends", (segments,), dtype),
    )
    return Workload("jagged_scale", inputs, (Stage("out", (t, d), mul(at("x", "t", "d"), scale)),))


# The folds of segments.
Folded = OneOf["sum", "max", "min"]


def jagged_fold(
    rows: int = 70, columns: int = 24, segments: int = 6, operator: Folded = "sum", dtype: str = "int32"
) -> Workload:
    """out[g, d] = fold over t of x[t, d] where t is in segment g."""
    g, t, d = Axis("g", segments), Axis("t", rows), Axis("d", columns)
    neutral = Literal({"sum": 0.0, "max": -math.inf, "min": math.inf}[operator])
    taken = call("where", within("t", "g"), at("x", "t", "d"), neutral)
    inputs = (Tensor("x", (rows, columns), "float32"), Tensor("offsets", (segments + 1,), dtype))
    return Workload("jagged_fold", inputs, (Stage("out", (g, d), taken, Reduction(operator, (t,))),))


def grouped_product(m: int = 40, k: int = 32, n: int = 24, groups: int = 4, dtype: str = "bfloat16") -> Workload:
    """out[m, n] = sum over k of x[m, k] * w[segment of m, k, n], 0 behind the last end."""
    axes = Axis("m", m), Axis("n", n)
    weight = Gather("w", (Segment("ends", axis_index("m"), groups), axis_index("k"), axis_index("n")))
    taken = call("lt", whole(Position(axis_index("m"))), whole(Access("ends", (Affine(offset=groups - 1),))))
    inputs = (Tensor("x", (m, k), dtype), Tensor("w", (groups, k, n), dtype), Tensor("ends", (groups,), "int32"))
    stages = (
        Stage("sums", axes, mul(at("x", "m", "k"), weight), Reduction("sum", (Axis("k", k),))),
        Stage("out", axes, call("where", taken, at("sums", "m", "n"), Literal(0.0))),
    )
    return Workload("grouped_product", inputs, stages)


def ragged_product(rows: int = 70, m: int = 32, n: int = 24, groups: int = 3, dtype: str = "bfloat16") -> Workload:
    """out[g, m, n] = sum over t of a[t, m] * b[t, n] where t is in segment g."""
    axes = Axis("g", groups), Axis("m", m), Axis("n", n)
    a = call("where", within("t", "g"), at("a", "t", "m"), Literal(0.0))
    inputs = (Tensor("a", (rows, m), dtype), Tensor("b", (rows, n), dtype), Tensor("offsets", (groups + 1,), "int32"))
    stage = Stage("out", axes, mul(a, at("b", "t", "n")), Reduction("sum", (Axis("t", rows),)))
    return Workload("ragged_product", inputs, (stage,))


def segmented_attention(
    heads: int = 2, rows: int = 48, depth: int = 16, segments: int = 3, dtype: str = "bfloat16"
) -> Workload:
    """Attention of rows to those of their own segment: softmax over u of q[t] · k[u], times v[u]."""
    h, t, u, d, e = (
        Axis("h", heads),
        Axis("t", rows),
        Axis("u", rows),
        Axis("d", depth),
        Axis("e", depth),
    )
    same = call("eq", *(Segment("offsets", axis_index(x), segments + 1) for x in ("t", "u")))
    score = call("where", same, mul(at("dots", "h", "t", "u"), Literal(depth**-0.5)), Literal(-math.inf))
    shares = call("exp", sub(at("scores", "h", "t", "u"), at("most", "h", "t")))
    over = (u,)
    stages = (
        Stage("dots", (h, t, u), mul(at("q", "t", "h", "d"), at("k", "u", "h", "d")), Reduction("sum", (d,))),
        Stage("scores", (h, t, u), score),
        Stage("most", (h, t), at("scores", "h", "t", "u"), Reduction("max", over)),
        Stage("shares", (h, t, u), shares),
        Stage("total", (h, t), at("shares", "h", "t", "u"), Reduction("sum", over)),
        Stage("mixed", (h, t, e), mul(at("shares", "h", "t", "u"), at("v", "u", "h", "e")), Reduction("sum", over)),
        Stage("out", (h, t, e), div(at("mixed", "h", "t", "e"), at("total", "h", "t"))),
    )
    inputs = (*(Tensor(x, (rows, heads, depth), dtype) for x in "qkv"), Tensor("offsets", (segments + 1,), "int32"))
    return Workload("segmented_attention", inputs, stages)


SEGMENTED = (jagged_scale, jagged_fold, grouped_product, ragged_product, segmented_attention)
