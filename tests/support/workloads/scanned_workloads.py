"""Workloads with scans: of one value and of several, along rows and columns, with work before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from search_spaces import Scan, Stage, Workload
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Apply, Expression, Literal
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.walking import rewritten
from search_spaces.workloads.scans import LEFT, RIGHT, operand
from structured_workloads import Build, read

JOINS = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}


def left(number: int = 0) -> Expression:
    return operand(LEFT, number)


def right(number: int = 0) -> Expression:
    return operand(RIGHT, number)


def whole(e: Expression) -> Expression:
    return ex.call("to_integer", e)


def scan(
    make: Build,
    names: str,
    axes: str,
    along: str,
    bodies: Sequence[Expression],
    combine: Sequence[Expression],
    reverse: bool = False,
) -> list[ex.Access]:
    """Stages that are scanned together, called by letters."""
    shared = Scan(along, tuple(names), tuple(combine), reverse)
    for name, body in zip(names, bodies, strict=True):
        dtype = "int64" if is_integral(body) else "float32"
        make.stages.append(Stage(name, make.axes(axes), body, None, dtype, shared))
    return [read(name, axes) for name in names]


def running(
    n: int, m: int, operator: str = "sum", along: str = "c", reverse: bool = False, dtype: str = "float32"
) -> Workload:
    """Cumulative sums, products, maxima or minima."""
    make = Build(r=n, c=m)
    x = make.input("x", "rc", dtype)
    joined = Apply(JOINS[operator], (left(), right()))
    # Products of what is about 1 stay numbers.
    body = ex.add(ex.mul(x, Literal(0.01)), Literal(1.0)) if operator == "prod" else x
    scan(make, "y", "rc", along, [body], [joined], reverse=reverse)
    return make.workload(f"running_{operator}", y=dtype)


def recurrence(n: int, m: int, along: str = "c", reverse: bool = False, dtype: str = "float32") -> Workload:
    """h[t] = sigmoid(u[t]) h[t - 1] + x[t]."""
    make = Build(r=n, c=m)
    u, x = make.input("u", "rc", dtype), make.input("x", "rc", dtype)
    gate = ex.div(Literal(1.0), ex.add(ex.call("exp", ex.call("neg", u)), Literal(1.0)))
    combine = [ex.mul(left(0), right(0)), ex.add(ex.mul(left(1), right(0)), right(1))]
    scan(make, "ah", "rc", along, [gate, x], combine, reverse=reverse)
    return make.workload("recurrence", h=dtype)


def running_place(n: int, m: int, along: str = "c") -> Workload:
    """Maxima so far, and where they are: of equal ones the last."""
    make = Build(r=n, c=m)
    x = make.input("x", "rc")
    place = whole(ex.Position(axis_index(along)))
    later = ex.call("le", left(0), right(0))
    combine = [ex.call("maximum", left(0), right(0)), ex.call("where", later, whole(right(1)), whole(left(1)))]
    scan(make, "vp", "rc", along, [x, place], combine)
    return make.workload("running_place", v="float32", p="int64")


def counted(n: int, m: int) -> Workload:
    """How many elements so far are above 0, as integers."""
    make = Build(r=n, c=m)
    x = make.input("x", "rc")
    above = whole(ex.call("lt", Literal(0.0), x))
    scan(make, "n", "rc", "c", [above], [ex.add(whole(left()), whole(right()))])
    return make.workload("counted", n="int64")


def between(n: int, m: int, reverse: bool = False) -> Workload:
    """Running sums of a softmax, scaled; and the mean of each row of them."""
    make = Build(r=n, c=m)
    x, w = make.input("x", "rc"), make.input("w", "c")
    top = make.fold("top", "r", "c", x, "max")
    total = make.fold("total", "r", "c", ex.call("exp", ex.sub(x, top)))
    (y,) = scan(
        make,
        "y",
        "rc",
        "c",
        [ex.div(ex.call("exp", ex.sub(x, top)), total)],
        [ex.add(left(), right())],
        reverse=reverse,
    )
    make.stage("out", "rc", ex.mul(y, w))
    return make.workload("between", out="float32")


def folded(n: int, m: int, reverse: bool = False) -> Workload:
    """The largest running sum of each row, and all of them less that."""
    make = Build(r=n, c=m)
    x = make.input("x", "rc")
    (y,) = scan(make, "y", "rc", "c", [ex.mul(x, Literal(0.5))], [ex.add(left(), right())], reverse=reverse)
    most = make.fold("most", "r", "c", y, "max")
    make.stage("out", "rc", ex.sub(y, most))
    return make.workload("folded", out="float32", most="float32")


def states(n: int, m: int, state: int = 3) -> Workload:
    """The sum over states of recurrences: out[r, c] = sum over n of w[n, c] h[r, n, c]."""
    make = Build(r=n, n=state, c=m)
    u, x, w = make.input("u", "rc"), make.input("x", "rnc"), make.input("w", "nc")
    rate = make.input("a", "rn")
    factor = ex.call("exp", ex.call("neg", ex.call("abs", ex.mul(u, rate))))
    combine = [ex.add(ex.mul(left(0), right(1)), right(0)), ex.mul(left(1), right(1))]
    h, _ = scan(make, "hg", "rnc", "c", [x, factor], combine)
    make.fold("out", "rc", "n", ex.mul(h, w))
    return make.workload("states", out="float32")


def folded_twice(n: int, m: int, along: str = "c") -> Workload:
    """The sum of running sums of what is shared out: folds of scans of folds."""
    make = Build(r=n, c=m)
    x, rest = make.input("x", "rc"), "r" if along == "c" else "c"
    total = make.fold("total", rest, along, ex.call("abs", x))
    (y,) = scan(make, "y", "rc", along, [ex.div(x, total)], [ex.add(left(), right())])
    make.fold("all", rest, along, y)
    return make.workload("folded_twice", all="float32")


def twice(n: int, m: int) -> Workload:
    """Running sums of running sums."""
    make = Build(r=n, c=m)
    x = make.input("x", "rc")
    (y,) = scan(make, "y", "rc", "c", [x], [ex.add(left(), right())])
    scan(make, "z", "rc", "c", [y], [ex.add(left(), right())])
    return make.workload("twice", z="float32")


def renamed(workload: Workload, names: dict[str, str]) -> Workload:
    """The same with other names for its stages, and its inputs."""

    def change(e: Expression) -> Expression | None:
        known = isinstance(e, ex.Access) and e.tensor in names
        return replace(e, tensor=names[e.tensor]) if known and isinstance(e, ex.Access) else None

    def of(name: str) -> str:
        return names.get(name, name)

    stages = tuple(
        replace(
            s,
            name=of(s.name),
            expression=rewritten(s.expression, change),
            scan=s.scan and replace(s.scan, members=tuple(map(of, s.scan.members))),
        )
        for s in workload.stages
    )
    inputs = tuple(replace(t, name=of(t.name)) for t in workload.inputs)
    outputs = tuple(map(of, workload.output_names))
    return replace(workload, inputs=inputs, stages=stages, output_names=outputs)


SCANS = (
    *(running(5, 301, operator) for operator in JOINS),
    running(5, 301, reverse=True),
    running(3, 2500, dtype="bfloat16"),
    running(301, 37, along="r"),
    running(130, 70, along="r", reverse=True),
    # Vectors of which one lane is left.
    running(3, 49, "max", reverse=True, dtype="bfloat16"),
    recurrence(7, 133),
    recurrence(3, 1500, reverse=True, dtype="float16"),
    recurrence(133, 20, along="r"),
    running_place(4, 99),
    running_place(99, 20, along="r"),
    counted(3, 257),
    between(5, 300),
    between(3, 130, reverse=True),
    folded(5, 300),
    folded(3, 130, reverse=True),
    twice(4, 200),
    folded_twice(3, 100),
    states(4, 70),
    states(3, 200, state=16),
    folded_twice(64, 5, along="r"),
)

# With rows that several programs share.
LONG = (
    running(2, 5000),
    running(2, 4999, "max", reverse=True),
    running(3000, 40, along="r"),
    recurrence(2, 5001),
    recurrence(3000, 20, along="r", reverse=True),
    running_place(1, 4100),
)
