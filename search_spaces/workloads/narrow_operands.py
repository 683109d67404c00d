"""Operands of products in another type than these: narrow numbers with scales along k.

    weights    (b[k, n] - zero[k / group, n]) * scale[k / group, n], rounded to the type of A
    int4       two in a byte, neighbours along k, the first in the lower bits: (byte >> 4 (k mod 2)) & 15
    blocks     a[m, k] * a_scale[m, k / group] and b[k, n] * b_scale[k / group, n / block]
    exponents  scales that are powers of two, a byte each

Groups, bytes and blocks are axes, so that indices stay affine. (Frantar et al., "GPTQ", 2022, has groups of weights;
DeepSeek-V3 Technical Report, 2024, section 3.3.2, blocks of both operands.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from search_spaces.errors import InputError, unknown_name
from search_spaces.workloads.dtypes import FLOAT8, is_float
from search_spaces.workloads.exponents import BYTES, EXPONENTS, power
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Integer, Literal, Position
from search_spaces.workloads.stages import Axis, Tensor, check_shape

# The types of weights, and the element types of their tensors.
STORED = {"int8": "int8", "int4": "uint8", **{name: name for name in FLOAT8}}
# Activations of weights in another type.
ACTIVATIONS = ("float32", "float16", "bfloat16")
# Subtracted from an int4 that has no zero point: half of its values are negative.
_MIDDLE = 8.0

# Index and size of each dimension of a tensor.
Dimensions = tuple[tuple[Affine, int], ...]


def check_narrow(
    dtype: str,
    b_dtype: str | None,
    group: int | None,
    zero_points: bool,
    block: int | None,
    scale_dtype: str | None,
    fast_accum: bool,
) -> None:
    """Raise InputError unless these arguments of `ops.matmul` go together."""
    if not isinstance(zero_points, bool):
        raise InputError(f"zero_points={zero_points!r}; expected True or False")
    if fast_accum and group is not None:
        raise InputError(f"fast_accum with group={group}: scales are applied to the sum of every group in float32")
    if b_dtype is None:
        if group is not None and dtype not in FLOAT8:
            raise InputError(f"group={group} with dtype {dtype} and no b_dtype; expected {' or '.join(FLOAT8)}")
        if zero_points:
            raise InputError("zero_points without b_dtype; they are for int4 and int8 weights")
    elif b_dtype not in STORED:
        raise unknown_name("b_dtype", str(b_dtype), STORED)
    elif dtype not in ACTIVATIONS:
        raise InputError(f"b_dtype={b_dtype} with dtype {dtype} (allowed: {', '.join(ACTIVATIONS)})")
    elif zero_points and is_float(STORED[b_dtype]):
        raise InputError(f"zero_points of {b_dtype}; they are for int4 and int8 weights")
    if block is not None and (b_dtype is not None or group is None):
        raise InputError(f"block={block} without scales of both operands; expected 8-bit floats and a group")
    if scale_dtype is not None:
        if scale_dtype != EXPONENTS:
            raise unknown_name("scale_dtype", str(scale_dtype), (EXPONENTS,))
        if b_dtype is None and group is None:
            raise InputError(f"scale_dtype={scale_dtype} without scales; they are of b_dtype, or of a group")


@dataclass(frozen=True)
class Groups:
    """k in groups that share a scale, if there are any, of elements of which several may share a byte.

    Raises:
        InputError: a group does not divide k, or the elements of a byte no group.
    """

    k: int
    group: int | None = None
    in_a_byte: int = 1

    def __post_init__(self) -> None:
        check_divides("group", self.group, "k", self.k)
        if self._length % self.in_a_byte:
            name = "k" if self.group is None else "group"
            raise InputError(f"{name}={self._length} of int4, two in a byte; expected an even number")

    @property
    def _length(self) -> int:
        return self.group or self.k

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Groups, bytes, and the elements of one."""
        groups = (Axis("kg", self.k // self._length),) if self.group else ()
        within = (Axis("nibble", self.in_a_byte),) if self.in_a_byte > 1 else ()
        return (*groups, Axis("k", self._length // self.in_a_byte), *within)

    @property
    def elements(self) -> Affine:
        steps = {"kg": self._length, "k": self.in_a_byte, "nibble": 1}
        return Affine.of(*((x.name, steps[x.name]) for x in self.axes))

    @property
    def stored(self) -> tuple[Affine, int]:
        """The dimension of weights along k, in bytes where these hold several."""
        groups = ("kg", self._length // self.in_a_byte if self.group else 0)
        return Affine.of(groups, ("k", 1)), self.k // self.in_a_byte

    @property
    def along_scales(self) -> Dimensions:
        """The dimension of scales along k; none where all share one."""
        return ((axis_index("kg"), self.k // self._length),) if self.group else ()


@dataclass(frozen=True)
class Columns:
    """The columns, in blocks that share a scale.

    Raises:
        InputError: a block does not divide n.
    """

    n: int
    block: int = 1

    def __post_init__(self) -> None:
        check_divides("block", self.block, "n", self.n)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Blocks, and the columns of one; a column's where that is a block."""
        return (Axis("n", self.n),) if self.block == 1 else (Axis("nb", self.n // self.block), Axis("n", self.block))

    @property
    def index(self) -> Affine:
        return Affine.of(("nb", 0 if self.block == 1 else self.block), ("n", 1))

    @property
    def along_scales(self) -> tuple[Affine, int]:
        return axis_index(self.axes[0].name), self.n // self.block


def check_divides(name: str, number: int | None, along: str, size: int) -> None:
    """Raise InputError for a number that does not divide a size."""
    if number is not None:
        check_shape(name, (number,))
        if size % number:
            raise InputError(f"{name}={number} does not divide {along}={size}; expected a divisor of it")


@dataclass(frozen=True)
class Operand:
    """An operand of a product: its tensors, in the order in which a call takes them, and one of its elements."""

    tensors: tuple[Tensor, ...]
    element: Expression

    def combined(self, operator: str, name: str, dtype: str, dimensions: Dimensions) -> Operand:
        """The operand and one more tensor, whose elements are combined. `dtype` may be that of exponents."""
        powers, shape = dtype == EXPONENTS, tuple(size for _, size in dimensions)
        made = Tensor(name, shape, BYTES if powers else dtype, constant=self.tensors[0].constant)
        read = Access(name, tuple(index for index, _ in dimensions))
        return Operand((*self.tensors, made), ex.call(operator, self.element, power(read) if powers else read))


def narrow_weights(
    stored: Operand, weights: str, activations: str, zero_points: bool, scales: Dimensions, scale_dtype: str
) -> Operand:
    """Weights as stored, as an operand of the activations' type, to which they are rounded.

    Of its tensors, zero points, if there are any, are of the type in which weights are stored.
    """
    made = stored
    if weights == "int4":
        shift = ex.call("to_integer", Position(Affine.of(("nibble", 4))))
        bits = ex.call("shift_right", ex.call("to_integer", stored.element), shift)
        made = replace(stored, element=ex.call("to_float", ex.call("bitwise_and", bits, Integer(15))))
    if zero_points:
        made = made.combined("sub", "zero", STORED[weights], scales)
    elif weights == "int4":
        made = replace(made, element=ex.sub(made.element, Literal(_MIDDLE)))
    made = made.combined("mul", "scale", scale_dtype, scales)
    return made if activations == "float32" else replace(made, element=ex.call(f"round_{activations}", made.element))
