"""Workloads by their structure: several outputs, reductions over any axes, of any of which there may be none."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from search_spaces import Axis, Reduction, Stage, Tensor, Workload
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Literal


def read(tensor: str, axes: str) -> Access:
    """An element at axes of one letter each."""
    return Access(tensor, tuple(axis_index(x) for x in axes))


def scaled(value: Expression, factor: float) -> Expression:
    return ex.mul(value, Literal(factor))


class Build:
    """Builds a workload over axes of one letter each; tensors are dense over theirs."""

    def __init__(self, **extents: int) -> None:
        self.extents = extents
        self.inputs: list[Tensor] = []
        self.stages: list[Stage] = []

    def axes(self, names: str) -> tuple[Axis, ...]:
        return tuple(Axis(x, self.extents[x]) for x in names)

    def input(self, name: str, axes: str, dtype: str = "float32") -> Access:
        self.inputs.append(Tensor(name, tuple(self.extents[x] for x in axes), dtype))
        return read(name, axes)

    def fold(self, name: str, axes: str, over: str, body: Expression, operator: str = "sum") -> Access:
        fold = Reduction(operator, self.axes(over))
        self.stages.append(Stage(name, self.axes(axes), body, fold))
        return read(name, axes)

    def stage(self, name: str, axes: str, body: Expression) -> Access:
        self.stages.append(Stage(name, self.axes(axes), body))
        return read(name, axes)

    def workload(self, name: str, **outputs: str) -> Workload:
        """The workload with these outputs, and the element type of each."""
        stages = tuple(replace(s, dtype=outputs.get(s.name, s.dtype)) for s in self.stages)
        return Workload(name, tuple(self.inputs), stages, output_names=tuple(outputs))


def adam(n: int, m: int) -> Workload:
    """Three results of one loop, of two element types."""
    make = Build(i=n, j=m)
    p, g, v = make.input("p", "ij", "bfloat16"), make.input("g", "ij"), make.input("v", "ij")
    mean = make.stage("mean", "ij", ex.add(scaled(v, 0.9), scaled(g, 0.1)))
    make.stage("new", "ij", ex.sub(p, scaled(mean, 0.01)))
    make.stage("small", "ij", ex.call("le", ex.call("abs", g), Literal(0.5)))
    return make.workload("adam", new="bfloat16", mean="float32", small="bool")


def scaled_rows(n: int, m: int) -> Workload:
    """Results of which one has fewer axes than the other."""
    make = Build(i=n, j=m)
    x, scale = make.input("x", "ij"), make.input("scale", "i")
    factor = make.stage("factor", "i", ex.call("exp", scale))
    make.stage("out", "ij", ex.mul(x, factor))
    return make.workload("scaled_rows", out="float16", factor="float32")


def softmax_lse(n: int, m: int, dtype: str = "float32") -> Workload:
    make = Build(r=n, c=m)
    x = make.input("x", "rc", dtype)
    top = make.fold("top", "r", "c", x, "max")
    power = ex.call("exp", ex.sub(x, top))
    total = make.fold("total", "r", "c", power)
    make.stage("out", "rc", ex.div(power, total))
    make.stage("lse", "r", ex.add(ex.call("log", total), top))
    return make.workload("softmax_lse", out=dtype, lse="float32")


def normalised(
    extents: Mapping[str, int], rows: str, over: str, order: str, dtype: str = "float32", weights: str = ""
) -> Workload:
    """x[order] normalised over some axes, with mean and 1 / deviation as further outputs; weights over others."""
    make, count = Build(**extents), 1
    for axis in over:
        count *= extents[axis]
    x = make.input("x", order, dtype)
    weight = make.input("weight", weights) if weights else Literal(2.0)
    total = make.fold("total", rows, over, x)
    mean = make.stage("mean", rows, scaled(total, 1 / count))
    centred = ex.sub(x, mean)
    squares = make.fold("squares", rows, over, ex.mul(centred, centred))
    deviation = make.stage("deviation", rows, ex.call("rsqrt", ex.add(scaled(squares, 1 / count), Literal(1e-5))))
    make.stage("out", order, ex.mul(ex.mul(centred, deviation), weight))
    return make.workload("normalised", out=dtype, mean="float32", deviation="float32")


def folded(
    extents: Mapping[str, int], rows: str, over: str, order: str, operators: Sequence[str] = ("sum",)
) -> Workload:
    """Folds of x[order] over some axes, each an output."""
    make = Build(**extents)
    x = make.input("x", order)
    for operator in operators:
        make.fold(operator, rows, over, ex.call("tanh", x), operator)
    return make.workload("folded", **dict.fromkeys(operators, "float32"))


def activation_and_sums(n: int, m: int) -> Workload:
    """A result point by point that needs no fold, beside sums of it."""
    make = Build(r=n, c=m)
    y = make.stage("y", "rc", ex.call("maximum", make.input("x", "rc"), Literal(0.0)))
    make.fold("total", "r", "c", y)
    return make.workload("activation_and_sums", y="float16", total="float32")


def sums_of_both(n: int, m: int) -> Workload:
    """Sums of rows, what is relative to them, and sums of that along the columns."""
    make = Build(r=n, c=m)
    x = make.input("x", "rc")
    left = make.fold("left", "r", "c", x)
    y = make.stage("y", "rc", ex.call("maximum", x, left))
    make.fold("top", "c", "r", y)
    return make.workload("sums_of_both", left="float32", y="float16", top="float32")


def folds_of_parts(n: int, g: int, m: int) -> Workload:
    """A fold over all of what is relative to a fold over one axis of something smaller."""
    make = Build(r=n, g=g, c=m)
    x, w = make.input("x", "rgc"), make.input("w", "rg")
    shift = make.fold("shift", "r", "g", w)
    make.fold("total", "r", "gc", ex.call("tanh", ex.sub(x, shift)))
    return make.workload("folds_of_parts", total="float32")


def quantised(n: int, m: int) -> Workload:
    """Rows divided by their largest magnitude, which is a result too."""
    make = Build(r=n, c=m)
    x = make.input("x", "rc", "bfloat16")
    scale = scaled(make.fold("top", "r", "c", ex.call("abs", x), "max"), 1 / 448)
    scale = make.stage("scale", "r", ex.call("maximum", scale, Literal(1e-12)))
    make.stage("out", "rc", ex.call("floor", ex.div(x, scale)))
    return make.workload("quantised", out="int32", scale="float32")


def blurred(n: int, h: int, w: int) -> Workload:
    """The mean of four neighbours of an image padded with zeros, after an activation of it."""
    make = Build(n=n, h=h, w=w)
    make.inputs.append(Tensor("x", (n, h, w), "float16"))
    sides = ((-1, 0), (1, 0), (0, -1), (0, 1))
    around = [Access("x", (axis_index("n"), moved("h", 1, dh), moved("w", 1, dw)), 0.0) for dh, dw in sides]
    total = functools.reduce(ex.add, around)
    make.stage("out", "nhw", scaled(total, 0.25))
    return make.workload("blurred", out="float16")


def differences(n: int, m: int) -> Workload:
    """What is computed, read where it is and one further: y[i, j + 1] - y[i, j]; y is a result too."""
    make = Build(i=n, j=m)
    make.inputs.append(Tensor("x", (n, m + 1), "float32"))
    make.stages.append(Stage("y", (Axis("i", n), Axis("k", m + 1)), ex.call("tanh", read("x", "ik"))))
    further = Access("y", (axis_index("i"), moved("j", 1, 1)))
    make.stage("out", "ij", ex.sub(further, Access("y", (axis_index("i"), axis_index("j")))))
    return make.workload("differences", out="float32")


def pooled(n: int, h: int, w: int, operator: str = "max") -> Workload:
    """A pool of 3 x 3 with a step of 2, padded by one."""
    make = Build(n=n, h=(h + 1) // 2, w=(w + 1) // 2, k=3, l=3)
    make.inputs.append(Tensor("x", (n, h, w), "float16"))
    at = (axis_index("n"), Affine.of(("h", 2), ("k", 1), offset=-1), Affine.of(("w", 2), ("l", 1), offset=-1))
    fill = -math.inf if operator == "max" else 0.0
    make.fold("out", "nhw", "kl", Access("x", at, fill), operator)
    return make.workload("pooled", out="float16")


def interleaved(n: int, m: int) -> Workload:
    """Pairs (a, b) turned by an angle, side by side in memory: the last axis has two positions."""
    make = Build(i=n, j=m, p=2)
    make.inputs.append(Tensor("x", (n, 2 * m), "float16"))
    a, b = (Access("x", (axis_index("i"), moved("j", 2, at))) for at in (0, 1))
    c, s = make.input("c", "j"), make.input("s", "j")
    first = ex.call("lt", ex.Position(axis_index("p")), Literal(1.0))
    turned = ex.sub(ex.mul(a, c), ex.mul(b, s)), ex.add(ex.mul(a, s), ex.mul(b, c))
    make.stage("out", "ijp", ex.call("where", first, *turned))
    return make.workload("interleaved", out="float16")


def joined(n: int, left: int, right: int) -> Workload:
    """relu of two tensors side by side: each is read where it is, and both outside of the other."""
    make = Build(i=n, j=left + right)
    make.inputs += [Tensor("a", (n, left), "float32"), Tensor("b", (n, right), "float32")]
    a = Access("a", (axis_index("i"), axis_index("j")), 0.0)
    b = Access("b", (axis_index("i"), moved("j", 1, -left)), 0.0)
    within = ex.call("lt", ex.Position(axis_index("j")), Literal(float(left)))
    make.stage("out", "ij", ex.call("maximum", ex.call("where", within, a, b), Literal(0.0)))
    return make.workload("joined", out="float32")


def shuffled(n: int, c: int, h: int, w: int) -> Workload:
    """A pixel shuffle: channels become pixels."""
    make = Build(n=n, c=c, h=h, i=2, w=w, j=2)
    make.inputs.append(Tensor("x", (n, 4 * c, h, w), "float16"))
    channel = Affine.of(("c", 4), ("i", 2), ("j", 1))
    make.stage("out", "nchiwj", Access("x", (axis_index("n"), channel, axis_index("h"), axis_index("w"))))
    return make.workload("shuffled", out="float16")


def moved(axis: str, step: int, offset: int) -> Affine:
    return Affine.of((axis, step), offset=offset)


def transposed(n: int, h: int, w: int) -> Workload:
    """Neighbours of what is read and of what is written are not along one axis, nor along the last two."""
    make = Build(n=n, h=h, k=3, w=w)
    make.stage("out", "nhkw", scaled(make.input("x", "nwkh"), 2.0))
    return make.workload("transposed", out="bfloat16")


def folds_of_folds(n: int, g: int, m: int) -> Workload:
    """The largest magnitude of groups, the mean of them, and what is divided by both; all of them results."""
    make = Build(r=n, g=g, c=m)
    x = make.input("x", "rgc")
    top = make.fold("top", "rg", "c", ex.call("abs", x), "max")
    total = make.fold("total", "r", "g", top)
    make.stage("out", "rgc", ex.div(x, ex.add(ex.mul(top, total), Literal(1.0))))
    return make.workload("folds_of_folds", out="float16", top="float32", total="float32")


def normalised_blocks(n: int, g: int, m: int) -> Workload:
    """Rows divided by their root mean square, then blocks of them by the largest magnitude, with the scale of each."""
    make = Build(r=n, g=g, c=m)
    x, w = make.input("x", "rgc"), make.input("w", "gc")
    squares = make.fold("squares", "r", "gc", ex.mul(x, x))
    y = ex.mul(ex.mul(x, ex.call("rsqrt", ex.add(scaled(squares, 1 / (g * m)), Literal(1e-6)))), w)
    top = make.fold("top", "rg", "c", ex.call("abs", y), "max")
    scale = make.stage("scale", "rg", ex.add(scaled(top, 1 / 448), Literal(1e-9)))
    make.stage("out", "rgc", ex.call("round_float16", ex.div(y, scale)))
    return make.workload("normalised_blocks", out="float16", scale="float32")


def sums_of_shifted_groups(n: int, g: int, m: int) -> Workload:
    """A sum over all of what depends on a fold of each group: the rows of groups that are softened by their maximum."""
    make = Build(r=n, g=g, c=m)
    x = make.input("x", "rgc")
    top = make.fold("top", "rg", "c", x, "max")
    make.fold("total", "r", "gc", ex.call("exp", ex.sub(x, top)))
    return make.workload("sums_of_shifted_groups", total="float32")


POINTWISE = (
    adam(37, 29),
    scaled_rows(19, 301),
    # Neighbours, windows, parts put together, turned round.
    blurred(3, 19, 70),
    differences(5, 90),
    pooled(2, 21, 37),
    pooled(2, 8, 64, "sum"),
    interleaved(33, 40),
    joined(9, 70, 50),
    shuffled(2, 3, 5, 33),
    transposed(2, 37, 45),
)
REDUCTIONS = (
    softmax_lse(9, 301),
    softmax_lse(3, 2600),
    quantised(7, 700),
    activation_and_sums(5, 1300),
    activation_and_sums(2, 4500),
    # Layer norm, group norm, batch norm along memory and across it.
    normalised({"r": 5, "c": 900}, "r", "c", "rc", "float16"),
    normalised({"n": 3, "g": 4, "c": 3, "i": 70}, "ng", "ci", "ngci", weights="gc"),
    normalised({"n": 5, "c": 6, "i": 49}, "c", "ni", "nci", weights="c"),
    normalised({"n": 3, "i": 32, "c": 40}, "c", "ni", "nic", weights="i"),
    # Sums of images, of everything, of two axes that are no neighbours; two folds over the same axes.
    folded({"n": 3, "c": 40, "h": 7, "w": 7}, "nc", "hw", "nchw"),
    folded({"i": 31, "j": 70}, "", "ij", "ij", ("sum", "max")),
    folded({"i": 11, "j": 5, "k": 90}, "j", "ik", "ijk", ("min", "sum")),
    folded({"i": 24, "j": 37, "k": 6}, "j", "ik", "ikj", ("max",)),
    folds_of_folds(5, 6, 130),
    folds_of_folds(3, 25, 20),
    normalised_blocks(4, 5, 128),
    sums_of_shifted_groups(6, 9, 70),
    folds_of_parts(5, 7, 90),
)
