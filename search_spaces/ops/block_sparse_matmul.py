"""A sparse matrix of dense blocks times a dense matrix."""

from __future__ import annotations

from search_spaces.errors import InputError, unknown_name
from search_spaces.ops.grouped_matmul import OPERANDS, check_bounds
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Gather, Integer, Position
from search_spaces.workloads.segments import where_in_segment
from search_spaces.workloads.workload import Axis, Reduction, Stage, Tensor, Workload, check_shape


def block_sparse_matmul(
    m: int,
    n: int,
    k: int,
    blocks: int,
    block: int = 128,
    dtype: str = "bfloat16",
    index_dtype: str = "int32",
    histogram: str = "",
) -> Workload:
    """out = A @ B[k, n], A[m, k] having so many `blocks` of `block` x `block` elements that are not zero.

    Inputs in order, as `torch.sparse_bsr_tensor` has them: values of shape (blocks, block, block), crow_indices of
    shape (m / block + 1,): the blocks of row r of blocks are those from crow_indices[r] to below crow_indices[r + 1];
    col_indices of shape (blocks,), the columns of blocks, from 0 to below k / block; and b. The output has the shape
    (m / block, block, n), which are the elements of (m, n) in order. Accumulated in float32 and rounded once. With
    block=1 A is a matrix in CSR. `histogram`: of the blocks of a row, as of `grouped_matmul` that cuts k.

    Raises:
        InputError: a size or type is not allowed, or blocks do not divide the matrix.
    """
    for name, size in (("m", m), ("n", n), ("k", k), ("blocks", blocks), ("block", block)):
        check_shape(name, (size,))
    if dtype not in OPERANDS:
        raise unknown_name("dtype", str(dtype), OPERANDS)
    if m % block or k % block:
        raise InputError(f"block={block} does not divide m={m} and k={k}")
    rows = m // block
    check_bounds("rows of blocks", rows, index_dtype)
    r, i, column = Axis("r", rows), Axis("i", block), Axis("n", n)
    e, j = Axis("e", blocks), Axis("j", block)
    first = ex.mul(ex.call("to_integer", Access("col_indices", (axis_index("e"),))), Integer(block))
    at = ex.add(first, ex.call("to_integer", Position(axis_index("j")))) if block > 1 else first
    # Both: an infinity that another row of blocks multiplies is not to be multiplied by 0 here.
    value, element = (
        where_in_segment("crow_indices", "r", "e", x)
        for x in (Access("values", tuple(map(axis_index, "eij"))), Gather("b", (at, axis_index("n"))))
    )
    return Workload(
        name="block_sparse_matmul",
        inputs=(
            Tensor("values", (blocks, block, block), dtype),
            Tensor("crow_indices", (rows + 1,), index_dtype, histogram=histogram),
            Tensor("col_indices", (blocks,), index_dtype),
            Tensor("b", (k, n), dtype),
        ),
        stages=(Stage("out", (r, i, column), ex.mul(value, element), Reduction("sum", (e, j)), dtype=dtype),),
        arguments=(
            ("m", m),
            ("n", n),
            ("k", k),
            ("blocks", blocks),
            ("block", block),
            ("dtype", dtype),
            ("index_dtype", index_dtype),
            ("histogram", histogram),
        ),
    )
