"""Products of groups: rows sorted by expert with the matrix of each, or the gradients of these matrices."""

from __future__ import annotations

from search_spaces.errors import InputError, unknown_name
from search_spaces.workloads.dtypes import FLOAT8, FLOATS
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Gather, Literal, Position, Segment
from search_spaces.workloads.segments import is_inside
from search_spaces.workloads.workload import Axis, Reduction, Stage, Tensor, Workload, check_shape

# The axis that the ends cut.
RAGGED = ("m", "k")
LAYOUTS = ("nn", "nt", "tn", "tt")
OPERANDS = tuple(name for name in FLOATS if name not in FLOAT8)
INDICES = ("int32", "int64")


def grouped_matmul(
    groups: int,
    m: int,
    n: int,
    k: int,
    dtype: str = "bfloat16",
    layout: str = "nn",
    ragged: str = "m",
    index_dtype: str = "int32",
    histogram: str = "",
) -> Workload:
    """out[m, n] = A[m, k] @ B[g, k, n] of the group g that row m is in, accumulated in float32 and rounded once.

    Group g has the rows from ends[g - 1] (0 for the first) to below ends[g], of all groups together m: as
    `torch._grouped_mm` has it. Rows behind the last end are 0. Inputs in order: a, b, ends of shape (groups,), sorted.

    `ragged`: "m" as above; "k" cuts the k of A[m, k] and B[k, n] instead, and out[g, m, n] is the product within each
    group. `layout`: how A and the matrices of B are stored, "n" as written above, "t" transposed. `histogram`:
    the groups' sizes that it is timed with: "uniform", by uniformly drawn ends, "skewed", where a few groups have most
    rows, or "one_hot", where one has all; by default all of these, for rows, or the first two, for k.

    Raises:
        InputError: a size, type or layout is not allowed.
    """
    for name, size in (("m", m), ("n", n), ("k", k)):
        check_shape(name, (size,))
    check_bounds("groups", groups, index_dtype)
    if dtype not in OPERANDS:
        raise unknown_name("dtype", str(dtype), OPERANDS)
    if layout not in LAYOUTS:
        raise InputError(f"unknown layout {layout!r} (allowed: {', '.join(LAYOUTS)})")
    if ragged not in RAGGED:
        raise InputError(f"unknown ragged axis {ragged!r} (allowed: {', '.join(RAGGED)})")
    sizes = {"m": m, "n": n, "k": k, "g": groups}
    stored_a, stored_b = ("km" if layout[0] == "t" else "mk"), ("nk" if layout[1] == "t" else "kn")
    stages = _rows(sizes, stored_a, stored_b, dtype) if ragged == "m" else _summed(sizes, stored_a, stored_b, dtype)
    outer = "g" if ragged == "m" else ""
    return Workload(
        name="grouped_matmul",
        inputs=(
            Tensor("a", tuple(sizes[x] for x in stored_a), dtype),
            Tensor("b", tuple(sizes[x] for x in outer + stored_b), dtype),
            Tensor("ends", (groups,), index_dtype, histogram=histogram),
        ),
        stages=stages,
        arguments=(
            ("groups", groups),
            ("m", m),
            ("n", n),
            ("k", k),
            ("dtype", dtype),
            ("layout", layout),
            ("ragged", ragged),
            ("index_dtype", index_dtype),
            ("histogram", histogram),
        ),
    )


def check_bounds(name: str, segments: int, index_dtype: str) -> None:
    """Raise InputError unless there may be so many segments, which are called so, with bounds of this type."""
    check_shape(name, (segments,))
    if index_dtype not in INDICES:
        raise unknown_name("index_dtype", str(index_dtype), INDICES)


def _rows(sizes: dict[str, int], stored_a: str, stored_b: str, dtype: str) -> tuple[Stage, ...]:
    m, n, k = (Axis(x, sizes[x]) for x in "mnk")
    group = Segment("ends", axis_index("m"), sizes["g"])
    b = Gather("b", (group, *(axis_index(x) for x in stored_b)))
    inside = ex.call("lt", ex.call("to_float", group), Literal(float(sizes["g"])))
    acc = Access("acc", (axis_index("m"), axis_index("n")))
    return (
        Stage("acc", (m, n), ex.mul(_element("a", stored_a), b), Reduction("sum", (k,))),
        Stage("out", (m, n), ex.call("where", inside, acc, Literal(0.0)), dtype=dtype),
    )


def _summed(sizes: dict[str, int], stored_a: str, stored_b: str, dtype: str) -> tuple[Stage, ...]:
    axes = tuple(Axis(x, sizes[x]) for x in "gmn")
    # Both: an infinity that one operand has in another group is not to be multiplied by the other's 0.
    a, b = (_in_group(_element(name, stored)) for name, stored in (("a", stored_a), ("b", stored_b)))
    return (Stage("out", axes, ex.mul(a, b), Reduction("sum", (Axis("k", sizes["k"]),)), dtype=dtype),)


def _in_group(element: Expression) -> Expression:
    """The element at positions k of group g, 0 elsewhere."""
    at = ex.call("to_integer", Position(axis_index("k")))
    begin = ex.call("to_integer", Access("ends", (axis_index("g") + Affine(offset=-1),), 0))
    end = ex.call("to_integer", Access("ends", (axis_index("g"),)))
    return ex.call("where", is_inside(at, begin, end), element, Literal(0.0))


def _element(name: str, stored: str) -> Access:
    return Access(name, tuple(map(axis_index, stored)))
