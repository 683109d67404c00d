"""Attention within sequences of any lengths, which lie one behind the other, written as its parts."""

from __future__ import annotations

import math

from search_spaces.errors import unknown_name
from search_spaces.ops.grouped_matmul import OPERANDS, check_bounds
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Literal, Position, Segment
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.workload import Axis, Reduction, Stage, Tensor, Workload, check_shape


def varlen_attention(
    rows: int,
    heads: int,
    size: int,
    sequences: int,
    causal: bool = False,
    dtype: str = "bfloat16",
    index_dtype: str = "int32",
    histogram: str = "",
) -> Workload:
    """out[t, h] = softmax over u of q[t, h] . k[u, h] / sqrt(size), times v[u, h]; u in the sequence of t.

    Inputs in order: q, k and v of shape (rows, heads, size), and offsets of shape (sequences + 1,), sorted from 0 on:
    sequence s has the rows from offsets[s] to below offsets[s + 1], as in `torch.nn.attention.varlen.varlen_attn`.
    Rows behind the last sequence are 0. `causal`: no row reads a later one. Scores are float32,
    probabilities of the type of v. `histogram`: of sequences' lengths, as of `grouped_matmul` that cuts k.

    CPUs have one kernel of it for at least 16 rows, and sizes that are whole vectors; what is traced of others has
    several.

    Raises:
        InputError: a size or type is not allowed.
    """
    for name, extent in (("rows", rows), ("heads", heads), ("size", size)):
        check_shape(name, (extent,))
    check_bounds("sequences", sequences, index_dtype)
    if dtype not in OPERANDS:
        raise unknown_name("dtype", str(dtype), OPERANDS)
    t, h, d = Axis("t", rows), Axis("h", heads), Axis("d", size)
    u, k = Axis("u", rows), Axis("k", size)
    over_u = (u,)
    q, key = (Access(name, tuple(map(axis_index, axes))) for name, axes in (("q", "thk"), ("k", "uhk")))
    scores = ex.mul(Access("scores", tuple(map(axis_index, "htu"))), Literal(1 / math.sqrt(size)))
    masked = ex.call("where", _seen(sequences + 1, causal), scores, Literal(-math.inf))
    top, total = (Access(name, (axis_index("t"), axis_index("h"))) for name in ("top", "total"))
    # A row behind the last sequence has no largest score.
    known = ex.call("where", ex.call("eq", top, Literal(-math.inf)), Literal(0.0), top)
    power = ex.call("exp", ex.sub(masked, known))
    share = ex.div(power, ex.call("where", total, total, Literal(1.0)))
    rounding = f"round_{dtype}"
    weight = ex.call(rounding, share) if rounding in ROUNDINGS else share
    value = Access("v", tuple(map(axis_index, "uhd")))
    tensors = tuple(Tensor(name, (rows, heads, size), dtype) for name in "qkv")
    return Workload(
        name="varlen_attention",
        inputs=(*tensors, Tensor("offsets", (sequences + 1,), index_dtype, histogram=histogram)),
        stages=(
            Stage("scores", (h, t, u), ex.mul(q, key), Reduction("sum", (k,))),
            Stage("top", (t, h), masked, Reduction("max", over_u)),
            Stage("total", (t, h), power, Reduction("sum", over_u)),
            Stage("out", (t, h, d), ex.mul(weight, value), Reduction("sum", over_u), dtype=dtype),
        ),
        arguments=(
            ("rows", rows),
            ("heads", heads),
            ("size", size),
            ("sequences", sequences),
            ("causal", causal),
            ("dtype", dtype),
            ("index_dtype", index_dtype),
            ("histogram", histogram),
        ),
    )


def _seen(bounds: int, causal: bool) -> Expression:
    """True where row t reads column u."""
    of_row, of_column = (ex.call("to_float", Segment("offsets", axis_index(x), bounds)) for x in "tu")
    inside = ex.call("lt", of_column, Literal(float(bounds)))
    same = ex.mul(ex.call("eq", of_row, of_column), inside)
    if not causal:
        return same
    later = Position(Affine.of(("u", 1), ("t", -1)))
    return ex.mul(same, ex.call("le", later, Literal(0.0)))
