"""Convolutions of any rank as workloads, of images and of what their gradients to weights are; and the like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from search_spaces import Axis, Reduction, Stage, Tensor, Workload
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Literal
from search_spaces.workloads.strides import dense_strides


def convolution(
    size: Sequence[int],
    kernel: Sequence[int],
    channels: int = 16,
    filters: int = 24,
    batch: int = 1,
    stride: int = 1,
    dilation: int = 1,
    padding: int = 0,
    groups: int = 1,
    layout: str = "nhwc",
    dtype: str = "float16",
    precision: str = "ieee",
) -> Workload:
    """out[n, p…, g, f] = sum over r…, c of x[n, stride*p + dilation*r - padding …, g, c] * w[r…, c, g, f].

    Channels last, or with `layout="nchw"` first: x[n, g, c, …], w[g, f, c, r…], out[n, g, f, p…].
    """
    rank, fill = range(len(size)), None if padding == 0 else 0 if dtype == "int8" else 0.0
    outs = [(s + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for s, k in zip(size, kernel, strict=True)]
    taps = tuple(Axis(f"r{i}", kernel[i]) for i in rank)
    points = tuple(Axis(f"p{i}", outs[i]) for i in rank)
    n, g = Axis("n", batch), Axis("g", groups)
    c, f = Axis("c", channels // groups), Axis("f", filters // groups)
    window = tuple(Affine.of((f"p{i}", stride), (f"r{i}", dilation), offset=-padding) for i in rank)
    channel = Affine.of(("g", c.extent), ("c", 1))
    filter_ = Affine.of(("g", f.extent), ("f", 1))
    along = tuple(axis_index(x.name) for x in taps)
    if layout == "nhwc":
        axes, reduced = (n, *points, g, f), (*taps, c)
        x = Tensor("x", (batch, *size, channels), dtype), (axis_index("n"), *window, channel)
        w = Tensor("w", (*kernel, c.extent, filters), dtype), (*along, axis_index("c"), filter_)
    else:
        axes, reduced = (n, g, f, *points), (c, *taps)
        x = Tensor("x", (batch, channels, *size), dtype), (axis_index("n"), channel, *window)
        w = Tensor("w", (filters, c.extent, *kernel), dtype), (filter_, axis_index("c"), *along)
    product = ex.mul(Access("x", x[1], fill), Access("w", w[1]))
    stage = Stage("out", axes, product, Reduction("sum", reduced), "int32" if dtype == "int8" else dtype)
    return Workload("convolution", (x[0], w[0]), (stage,), precision=precision)


def with_filters_along_channels(plain: Workload) -> Workload:
    """The same with weights that run along channels, as those of channels-last models do."""
    x, w = plain.inputs
    *outer, filters = w.shape
    apart = dense_strides((filters, *outer))
    return replace(plain, inputs=(x, replace(w, strides=(*apart[1:], apart[0]))))


def block(plain: Workload, activated: bool = False, fill: float | None = None) -> Workload:
    """relu(convolution + bias + residual) of float16; `activated`: of relu(x); `fill`: what is read outside."""
    (stage,), own = plain.stages, tuple(axis_index(x.name) for x in plain.stages[0].axes)
    assert isinstance(stage.expression, ex.Apply)
    x, w = stage.expression.arguments
    assert isinstance(x, Access)
    image: Expression = x if fill is None else Access(x.tensor, x.index, fill)
    image = ex.call("maximum", image, Literal(0.0)) if activated else image
    acc = Stage("acc", stage.axes, ex.mul(image, w), stage.reduction)
    total = ex.add(ex.add(Access("acc", own), Access("bias", own[-1:])), Access("residual", own))
    out = Stage("out", stage.axes, ex.call("maximum", total, Literal(0.0)), dtype="float16")
    more = Tensor("bias", stage.shape[-1:], "float16"), Tensor("residual", stage.shape, "float16")
    return Workload("block", (*plain.inputs, *more), (acc, out))


def normed(plain: Workload) -> Workload:
    """The convolution of relu(scale[c] * x + shift[c]), which is 0 outside of the image; channels last."""
    (stage,), (image, _) = plain.stages, plain.inputs
    assert isinstance(stage.expression, ex.Apply)
    x, w = stage.expression.arguments
    assert isinstance(x, Access)
    places = [ex.call("to_integer", ex.Position(i)) for i in x.index[1:-1]]
    inside = [
        ex.mul(ex.call("le", ex.Integer(0), at), ex.call("lt", at, ex.Integer(size)))
        for at, size in zip(places, image.shape[1:-1], strict=True)
    ]
    scaled = ex.add(ex.mul(x, Access("scale", x.index[-1:])), Access("shift", x.index[-1:]))
    given = ex.call("where", reduce(ex.mul, inside), ex.call("maximum", scaled, Literal(0.0)), Literal(0.0))
    more = (Tensor(name, image.shape[-1:], image.dtype) for name in ("scale", "shift"))
    product = replace(stage, expression=ex.mul(given, w))
    return Workload("normed", (*plain.inputs, *more), (product,), precision=plain.precision)


def weights_gradient(batch: int, size: int, channels: int, filters: int, stride: int = 1) -> Workload:
    """dw[r, s, c, f] = sum over n, p, q of x[n, stride*p + r - 1, stride*q + s - 1, c] * dy[n, p, q, f], of 3 x 3."""
    out = (size - 1) // stride + 1
    window = (Affine.of((p, stride), (r, 1), offset=-1) for p, r in (("p", "r"), ("q", "s")))
    x = Access("x", (axis_index("n"), *window, axis_index("c")), 0.0)
    dy = Access("dy", tuple(axis_index(a) for a in "npqf"))
    axes = (Axis("r", 3), Axis("s", 3), Axis("c", channels), Axis("f", filters))
    reduced = Reduction("sum", (Axis("n", batch), Axis("p", out), Axis("q", out)))
    inputs = (
        Tensor("x", (batch, size, size, channels), "float16"),
        Tensor("dy", (batch, out, out, filters), "float16"),
    )
    return Workload("weights_gradient", inputs, (Stage("dw", axes, ex.mul(x, dy), reduced, "float16"),))


def correlation(rows: int, columns: int, taps: int) -> Workload:
    """out[i, j] = sum over k of x[i + k] * y[2*j + k + 1]: every index moves along two axes of a tile."""
    x = Access("x", (Affine.of(("i", 1), ("k", 1)),))
    y = Access("y", (Affine.of(("j", 2), ("k", 1), offset=1),))
    stage = Stage("out", (Axis("i", rows), Axis("j", columns)), ex.mul(x, y), Reduction("sum", (Axis("k", taps),)))
    inputs = (Tensor("x", (rows + taps - 1,), "float32"), Tensor("y", (2 * columns + taps,), "float32"))
    return Workload("correlation", inputs, (stage,))


def part_of_rows(m: int, n: int, k: int, first: int, whole: int) -> Workload:
    """out[m, n] = sum over k of x[m, first + k] * y[k, n], of rows of x that go on beyond the end of k."""
    x = Access("x", (axis_index("m"), Affine.of(("k", 1), offset=first)))
    y = Access("y", (axis_index("k"), axis_index("n")))
    stage = Stage("out", (Axis("m", m), Axis("n", n)), ex.mul(x, y), Reduction("sum", (Axis("k", k),)))
    return Workload("part_of_rows", (Tensor("x", (m, whole), "float16"), Tensor("y", (k, n), "float16")), (stage,))
