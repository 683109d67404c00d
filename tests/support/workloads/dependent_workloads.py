"""Workloads whose folds depend on each other, and how many walks over the points they need when these are shared."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces import Workload
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Expression, Integer, Literal, Position
from structured_workloads import Build, scaled


def log_sum_exp(n: int, m: int, dtype: str = "float32", finite: bool = False) -> Workload:
    """With `finite`, as PyTorch has it: relative to the maximum, or to 0 where that is an infinity."""
    make = Build(r=n, c=m)
    x = make.input("x", "rc", dtype)
    top: Expression = make.fold("top", "r", "c", x, "max")
    if finite:
        top = ex.call("where", ex.call("eq", ex.call("abs", top), Literal(float("inf"))), Literal(0.0), top)
    total = make.fold("total", "r", "c", ex.call("exp", ex.sub(x, top)))
    make.stage("out", "r", ex.add(ex.call("log", total), top))
    return make.workload("log_sum_exp", out="float32")


def expected_under_softmax(n: int, m: int, temperature: float = 0.7) -> Workload:
    """softmax(x / temperature), its mean of y and of x, and how it falls apart: sums with factors of every kind."""
    make = Build(r=n, c=m)
    x, y = make.input("x", "rc"), make.input("y", "rc")
    top = make.fold("top", "r", "c", x, "max")
    power = ex.call("exp", ex.sub(scaled(x, 1 / temperature), scaled(top, 1 / temperature)))
    total = make.fold("total", "r", "c", power)
    weighted = make.fold("weighted", "r", "c", ex.mul(power, y))
    own = make.fold("own", "r", "c", ex.call("neg", ex.div(ex.mul(x, power), ex.call("exp", y))))
    squares = make.fold("squares", "r", "c", ex.mul(power, power))
    kept = ex.call("where", ex.call("lt", y, Literal(0.0)), power, Literal(0.0))
    below = make.fold("below", "r", "c", kept)
    make.stage("out", "rc", ex.div(power, total))
    for name, value in {"mean": weighted, "mean_x": own, "below_0": below}.items():
        make.stage(name, "r", ex.div(value, total))
    make.stage("participation", "r", ex.div(ex.mul(total, total), squares))
    return make.workload(
        "expected_under_softmax",
        out="float32",
        mean="float32",
        mean_x="float32",
        below_0="float32",
        participation="float32",
    )


def softmin_base_2(n: int, m: int) -> Workload:
    make = Build(r=n, c=m)
    x = make.input("x", "rc", "float16")
    low = make.fold("low", "r", "c", x, "min")
    power = ex.call("exp2", ex.sub(low, x))
    total = make.fold("total", "r", "c", power)
    make.stage("out", "rc", ex.div(power, total))
    return make.workload("softmin_base_2", out="float16")


def variance(extents: Mapping[str, int], rows: str, over: str, order: str) -> Workload:
    """x[order] over some axes: variance and mean."""
    make, count = Build(**extents), 1
    for axis in over:
        count *= extents[axis]
    x = make.input("x", order)
    mean = make.stage("mean", rows, scaled(make.fold("sum", rows, over, x), 1 / count))
    away = ex.sub(x, mean)
    make.stage("out", rows, ex.div(make.fold("squares", rows, over, ex.mul(away, away)), Literal(count - 1.0)))
    return make.workload("variance", out="float32", mean="float32")


def correlation(n: int, m: int) -> Workload:
    """Of two tensors: two means, two sums of squares and one of products, in one walk."""
    make = Build(r=n, c=m)
    away = {}
    for name in "xy":
        value = make.input(name, "rc")
        total = make.fold(f"sum_{name}", "r", "c", value)
        away[name] = ex.sub(value, scaled(total, 1 / m))
    parts = {a + b: make.fold(a + b, "r", "c", ex.mul(away[a], away[b])) for a, b in ("xx", "xy", "yy")}
    deviations = ex.mul(ex.call("sqrt", parts["xx"]), ex.call("sqrt", parts["yy"]))
    make.stage("out", "r", ex.div(parts["xy"], deviations))
    return make.workload("correlation", out="float32")


def place_of_extreme(n: int, m: int, operator: str = "max", softmax: bool = False) -> Workload:
    """The first position of the extreme; or also a softmax about it."""
    make = Build(r=n, c=m)
    x = make.input("x", "rc")
    top = make.fold("top", "r", "c", x, operator)
    nan = ex.call("eq", ex.call("eq", x, x), Literal(0.0))
    here = ex.call("maximum", ex.call("eq", x, top), nan)
    position = ex.call("to_integer", Position(Affine.of(("c", 1))))
    make.fold("out", "r", "c", ex.call("where", here, position, Integer(m)), "min")
    outputs = {"out": "int64", "top": "float32"}
    if softmax:
        power = ex.call("exp", ex.sub(x, top))
        make.stage("soft", "rc", ex.div(power, make.fold("total", "r", "c", power)))
        outputs["soft"] = "float32"
    return make.workload("place_of_extreme", **outputs)


def deviation_from_mean(n: int, m: int) -> Workload:
    """A mean of absolute deviations, which no rule moves."""
    make = Build(r=n, c=m)
    x = make.input("x", "rc")
    total = make.fold("sum", "r", "c", x)
    away = make.fold("away", "r", "c", ex.call("abs", ex.sub(x, scaled(total, 1 / m))))
    make.stage("out", "r", scaled(away, 1 / m))
    return make.workload("deviation_from_mean", out="float32")


def spread_of_softmax(n: int, m: int) -> Workload:
    """The variance of probabilities: what is squared is relative to a sum that is relative to a maximum."""
    make = Build(r=n, c=m)
    x = make.input("x", "rc")
    top = make.fold("top", "r", "c", x, "max")
    power = ex.call("exp", ex.sub(x, top))
    away = ex.sub(ex.div(power, make.fold("total", "r", "c", power)), Literal(1 / m))
    make.stage("out", "r", make.fold("squares", "r", "c", ex.mul(away, away)))
    return make.workload("spread_of_softmax", out="float32")


def unbounded(n: int, m: int) -> Workload:
    """Exponentials that a maximum of something else does not bound."""
    make = Build(r=n, c=m)
    x, y = make.input("x", "rc"), make.input("y", "rc")
    top = make.fold("top", "r", "c", x, "max")
    make.stage("out", "r", make.fold("total", "r", "c", ex.call("exp", ex.sub(y, top))))
    return make.workload("unbounded", out="float32")


# Of each: its walks when dependent folds share them, and when they do not.
IN_ONE_WALK = (
    log_sum_exp(5, 1300),
    log_sum_exp(3, 4096, "bfloat16", finite=True),
    expected_under_softmax(3, 1500),
    softmin_base_2(6, 2100),
    variance({"r": 3, "c": 2500}, "r", "c", "rc"),
    variance({"c": 70, "r": 300}, "r", "c", "cr"),
    variance({"n": 3, "c": 5, "h": 11, "w": 13}, "c", "nhw", "nchw"),
    correlation(4, 1900),
    place_of_extreme(5, 1300),
    place_of_extreme(3, 2048, "min"),
    place_of_extreme(2, 2100, softmax=True),
)
IN_SEVERAL = ((deviation_from_mean(3, 700), 2), (spread_of_softmax(3, 700), 2), (unbounded(3, 700), 2))
