"""Convolutions of one to three dimensions, in any layout, with an epilogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from search_spaces.errors import InputError, unknown_name
from search_spaces.ops.matmul import check_operands, output_dtype
from search_spaces.workloads.activations import Place, apply_chain
from search_spaces.workloads.dtypes import FLOAT8, accumulator_of, is_integer
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access
from search_spaces.workloads.strides import dense_strides
from search_spaces.workloads.workload import Axis, Reduction, Scalar, Stage, Tensor, Workload, check_shape

# Numbers by dimension: "3x5", (3, 5), or one for all of them.
Sizes = int | str | Sequence[int]

# In memory [n, *size, c], or [n, c, *size]; of weights the same, with k for n, or else [*kernel, c, k].
LAYOUTS = ("channels_last", "contiguous")
WEIGHT_LAYOUTS = (*LAYOUTS, "filters_last")
# Operands that may be said to have the same values at every call.
CONSTANTS = ("", "w")
# Positions and taps of the last dimensions, at most three, as PyTorch has them.
_POSITIONS, _TAPS = ("z", "p", "q"), ("t", "r", "s")


def conv(
    n: int,
    c: int,
    size: Sizes,
    k: int,
    kernel: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    dtype: str = "float32",
    layout: str = "channels_last",
    weight_layout: str | None = None,
    out_layout: str | None = None,
    epilogue: str = "",
    scale: float = 2.0,
    out_dtype: str | None = None,
    fast_accum: bool = False,
    constant: str = "",
) -> Workload:
    """out = epilogue(torch.nn.functional.conv2d(x, w)), or conv1d or conv3d, of tensors of the shapes that these take.

    out[n, k, p, q] = sum over r, s, c of x[n, c, stride p + dilation r - padding, …] * w[k, c, r, s], accumulated in
    float32 (int8 in int32) and rounded once; outside of x are zeros. Inputs in order: x of shape (n, c, *size), w of
    shape (k, c / groups, *kernel), then what the epilogue needs, in its order.

    `size`: "56x56" or (56, 56), of one to three dimensions. `kernel`, `stride`, `padding` and `dilation`: the same, or
    one number for all dimensions; padding may be "same", with stride 1. Where several groups have several filters each,
    out is of shape (n, groups, k / groups, p, q): the memory of conv2d's result.

    `layout` of x, and of out unless `out_layout` differs: "channels_last" or "contiguous", PyTorch's memory formats.
    `weight_layout`: by default that of x, one of these or "filters_last", which is [*kernel, c / groups, k] in memory.
    `dtype`, `out_dtype`, `fast_accum` and `epilogue` as `matmul` has them, without rowscale: vectors have the length k,
    a residual and a gate the shape (n, k, p, q) and the layout of out. `constant`: "w", if the weights have the same
    values at every call: a kernel may store them in another layout once.

    Where each group has one filter no dot computes it, and "tf32" is float32.

    Raises:
        InputError: a size, type, layout or epilogue is not allowed.
    """
    _check({"n": n, "c": c, "k": k, "groups": groups}, dtype, fast_accum, constant)
    window = Window.of(size, kernel, stride, padding, dilation)
    weight_layout, out_layout = weight_layout or layout, out_layout or layout
    element = "float32" if dtype == "tf32" else dtype
    made = output_dtype(element, out_dtype, epilogue)
    x = _laid_out(Tensor("x", (n, c, *window.size), element), "layout", layout)
    weights = Tensor("w", (k, c // groups, *window.kernel), element, constant=constant == "w")
    w = _laid_out(weights, "weight_layout", weight_layout)
    out = _laid_out(Tensor("out", (n, k, *window.out), made), "out_layout", out_layout)
    summed, filters = _sum(x, w, groups, window)
    strides = out.effective_strides
    if len(summed.axes) > len(strides):
        strides = (strides[0], strides[1] * (k // groups), *strides[1:])
    acc = Access("acc", tuple(axis_index(a.name) for a in summed.axes))
    place = Place((axis_index("n"), filters, *map(axis_index, window.positions)), out.shape, out.strides, column=1)
    end, extra = apply_chain(acc, epilogue, place, "bfloat16" if made in FLOAT8 else made, scale)
    stages = (
        (summed, Stage("out", summed.axes, end, dtype=made)) if epilogue else (replace(summed, name="out", dtype=made),)
    )
    # Only where they differ from the usual: labels show them.
    given: tuple[tuple[str, Scalar, Scalar], ...] = (
        ("stride", _text(window.stride), "1"),
        ("padding", padding if padding == "same" else _text(window.before), "0"),
        ("dilation", _text(window.dilation), "1"),
        ("groups", groups, 1),
        ("dtype", dtype, None),
        ("layout", layout, None),
        ("weight_layout", weight_layout, layout),
        ("out_layout", out_layout, layout),
        ("epilogue", epilogue, ""),
        ("scale", scale if "scale" in epilogue.split("_") else None, None),
        ("out_dtype", out_dtype, None),
        ("fast_accum", fast_accum, False),
        ("constant", constant, ""),
    )
    counts = (("n", n), ("c", c), ("size", _by(window.size)), ("k", k), ("kernel", _by(window.kernel)))
    return Workload(
        name="conv",
        inputs=(x, w, *extra),
        stages=stages,
        # With one filter in each group no dot computes it.
        precision="tf32" if dtype == "tf32" and k > groups else "fast" if fast_accum else "ieee",
        output_strides=(strides,),
        arguments=(*counts, *((name, value) for name, value, usual in given if value != usual)),
    )


def _check(counts: Mapping[str, int], dtype: str, fast_accum: bool, constant: str) -> None:
    """Raise InputError for a number, type or operand that is not allowed."""
    for name, count in counts.items():
        check_shape(name, (count,))
    c, k, groups = counts["c"], counts["k"], counts["groups"]
    if c % groups or k % groups:
        raise InputError(f"c={c} and k={k} in {groups} groups; expected multiples of that number")
    check_operands(dtype, fast_accum)
    if constant not in CONSTANTS:
        raise InputError(f"unknown constant operand {constant!r} (allowed: {', '.join(filter(None, CONSTANTS))})")


@dataclass(frozen=True)
class Window:
    """A window over an image: numbers by dimension; `before` and `after` are zeros around the image."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @staticmethod
    def of(size: Sizes, kernel: Sizes, stride: Sizes = 1, padding: Sizes = 0, dilation: Sizes = 1) -> Window:
        """The window of these arguments of `conv`. Raises InputError."""
        image = _numbers("size", size, least=1)
        rank = len(image)
        if rank > len(_TAPS):
            raise InputError(f"size={_by(image)} has {rank} dimensions; expected one to {len(_TAPS)}")
        taps = _numbers("kernel", kernel, rank, least=1)
        steps, spread = _numbers("stride", stride, rank, least=1), _numbers("dilation", dilation, rank, least=1)
        if padding == "same":
            if set(steps) != {1}:
                raise InputError(f"padding=same with stride={_text(steps)}; expected stride 1")
            both = tuple(d * (t - 1) for d, t in zip(spread, taps, strict=True))
            before, after = tuple(b // 2 for b in both), tuple(b - b // 2 for b in both)
        else:
            before = after = _numbers("padding", padding, rank, least=0)
        window = Window(image, taps, steps, spread, before, after)
        if min(window.out) < 1:
            raise InputError(
                f"kernel={_by(taps)} with dilation={_text(spread)} over size={_by(image)} with padding={padding}: out "
                f"would have the size {_by(window.out)}; expected at least one position"
            )
        return window

    @property
    def out(self) -> tuple[int, ...]:
        """The size of the result."""
        return tuple(
            (size + before + after - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, stride, dilation, before, after in self._by_dimension
        )

    @property
    def leaves(self) -> bool:
        """True if it reads outside of the image."""
        read = zip(self.index, self.size, strict=True)
        extents = dict(zip((*self.positions, *self.taps), (*self.out, *self.kernel), strict=True))
        return any(i.minimum(extents) < 0 or i.maximum(extents) >= size for i, size in read)

    @property
    def positions(self) -> tuple[str, ...]:
        """Names of the axes of the result."""
        return _POSITIONS[-len(self.size) :]

    @property
    def taps(self) -> tuple[str, ...]:
        """Names of the axes of the kernel."""
        return _TAPS[-len(self.size) :]

    @property
    def index(self) -> tuple[Affine, ...]:
        """The index of the image at a position and a tap."""
        numbers = zip(self.positions, self.stride, self.taps, self.dilation, self.before, strict=True)
        return tuple(Affine.of((p, step), (t, spread), offset=-before) for p, step, t, spread, before in numbers)

    @property
    def _by_dimension(self) -> zip[tuple[int, int, int, int, int, int]]:
        return zip(self.size, self.kernel, self.stride, self.dilation, self.before, self.after, strict=True)


def _sum(x: Tensor, w: Tensor, groups: int, window: Window) -> tuple[Stage, Affine]:
    """The sum of products of every group, and the index of its filter among all."""
    filters, channels = w.shape[0] // groups, w.shape[1]
    # With one filter in each, the groups are the filters.
    several = groups > 1 and filters > 1
    axes = (Axis("g", groups), Axis("k", filters)) if several else (Axis("k", w.shape[0]),)
    among = Affine.of(("g", filters), ("k", 1)) if several else axis_index("k")
    channel = Affine.of((axes[0].name, channels if groups > 1 else 0), ("c", 1))
    zero = None if not window.leaves else 0 if is_integer(x.dtype) else 0.0
    product = ex.mul(
        Access("x", (axis_index("n"), channel, *window.index), zero),
        Access("w", (among, axis_index("c"), *map(axis_index, window.taps))),
    )
    taps = (Axis(name, extent) for name, extent in zip(window.taps, window.kernel, strict=True))
    positions = (Axis(name, extent) for name, extent in zip(window.positions, window.out, strict=True))
    reduction = Reduction("sum", (*taps, Axis("c", channels)))
    loops = (Axis("n", x.shape[0]), *axes, *positions)
    return Stage("acc", loops, product, reduction, accumulator_of(x.dtype)), among


def _laid_out(tensor: Tensor, argument: str, layout: str) -> Tensor:
    """A dense tensor of shape (n, c, *size) in a layout. Raises InputError."""
    allowed = WEIGHT_LAYOUTS if argument == "weight_layout" else LAYOUTS
    if layout not in allowed:
        raise unknown_name(argument, str(layout), allowed)
    first, second, *rest = range(len(tensor.shape))
    orders = {
        "contiguous": (first, second, *rest),
        "channels_last": (first, *rest, second),
        "filters_last": (*rest, second, first),
    }
    order = orders[layout]
    inner = dense_strides(tuple(tensor.shape[d] for d in order))
    strides = tuple(inner[order.index(d)] for d in range(len(order)))
    return replace(tensor, strides=strides)


def _numbers(argument: str, given: Sizes, rank: int | None = None, least: int = 0) -> tuple[int, ...]:
    """The numbers of an argument: as many as there are dimensions. Raises InputError."""
    expected = f"expected a number, or {rank} such as {'x'.join(['3'] * rank)}" if rank else "such as 56x56"
    try:
        parts = given.split("x") if isinstance(given, str) else [given] if isinstance(given, int) else list(given)
        numbers = tuple(int(p) if isinstance(p, str) else p for p in parts)
    except (TypeError, ValueError):
        raise InputError(f"{argument}={given!r}; {expected}") from None
    if any(isinstance(x, bool) or not isinstance(x, int) or x < least for x in numbers) or not numbers:
        raise InputError(f"{argument}={given!r}; {expected}, each at least {least}")
    check_shape(argument, tuple(x + 1 - least for x in numbers))
    if rank is not None and len(numbers) == 1:
        numbers *= rank
    if rank is not None and len(numbers) != rank:
        raise InputError(f"{argument}={given!r} has {len(numbers)} dimensions; {expected}")
    return numbers


def _by(numbers: Sequence[int]) -> str:
    """`3x5`."""
    return "x".join(map(str, numbers))


def _text(numbers: Sequence[int]) -> str:
    """`3x5`; a number that all dimensions share once."""
    return str(numbers[0]) if len(set(numbers)) == 1 else _by(numbers)
