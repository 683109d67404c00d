"""Random workloads of the structures that sketches match, over types, odd sizes and strides; a seed always gives the
same one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from search_spaces import Axis, InputError, Reduction, Scan, Stage, Tensor, Workload
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Expression,
    Gather,
    Integer,
    Literal,
    Position,
    add,
    call,
    mul,
    sub,
)
from search_spaces.workloads.expressions.walking import walk
from search_spaces.workloads.scans import LEFT, RIGHT, operand

SIZES = (1, 2, 3, 15, 16, 17, 31, 33, 49, 63, 65)
FLOATS = ("float32", "bfloat16", "float16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
# Elements of an output, and multiply-adds of a product: what is checked in float64 in milliseconds.
MOST_POINTS = 2**17


@dataclass
class Maker:
    """Draws the parts of one workload."""

    rng: np.random.Generator
    inputs: list[Tensor] = field(default_factory=list)

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def one_of(self, *choices: str) -> str:
        return choices[int(self.rng.integers(len(choices)))]

    def axes(self, names: Sequence[str], most: int = MOST_POINTS) -> tuple[Axis, ...]:
        """Axes of random sizes, with at most so many points in all."""
        while True:
            found = tuple(Axis(n, int(self.rng.choice(SIZES))) for n in names)
            if math.prod(a.extent for a in found) <= most:
                return found

    def dtype(self) -> str:
        return self.one_of(*FLOATS)

    def strides(self, shape: Sequence[int], shared: bool) -> tuple[int, ...] | None:
        """Dense, or dimensions in any order in memory, with gaps; `shared`: some may have a stride of 0."""
        if self.chance(0.4):
            return None
        order = self.rng.permutation(len(shape)) if self.chance(0.6) else np.arange(len(shape))
        strides, step = [0] * len(shape), 2 if self.chance(0.1) else 1
        for dimension in reversed(order.tolist()):
            if shared and self.chance(0.08):
                continue
            strides[dimension] = step
            step = step * shape[dimension] + (int(self.rng.choice([0, 0, 1, 3, 8])))
        return tuple(strides)

    def tensor(self, axes: Sequence[Axis], dtype: str | None = None, shared: bool = True) -> Access:
        """A new input that is read at these axes."""
        shape = tuple(a.extent for a in axes)
        strides = self.strides(shape, shared)
        name = f"x{len(self.inputs)}"
        self.inputs.append(Tensor(name, shape, dtype or self.dtype(), strides))
        return Access(name, tuple(axis_index(a.name) for a in axes))

    def elsewhere(self, axes: Sequence[Axis]) -> Access:
        """A new input that is read with steps, backwards, at sums of axes or along a diagonal; often outside of it."""
        dtype, guarded = self.one_of(*FLOATS, "int64", "bool"), self.chance(0.7)
        extents = {a.name: a.extent for a in axes}
        index: list[Affine] = []
        for axis in self.some(axes) or axes[-1:]:
            terms = [(axis.name, int(self.rng.choice([1, 1, 1, -1, 2, 3, -2])))]
            if self.chance(0.15):
                terms.append((axes[int(self.rng.integers(len(axes)))].name, int(self.rng.choice([1, -1]))))
            index.append(Affine.of(*terms))
        if self.chance(0.1):
            index.append(Affine(offset=int(self.rng.integers(3))))
        shape: list[int] = []
        for at, form in enumerate(index):
            first, most = form.minimum(extents), form.maximum(extents)
            # All of it is inside, or some before, behind, on both sides, or none.
            shape.append(max(1, int((most - first + 1) * self.rng.uniform(0.1, 1.4))) if guarded else most - first + 1)
            moved = int(self.rng.integers(-shape[-1], shape[-1] + 1)) if guarded else 0
            index[at] = form + Affine(offset=moved - first)
        fill = float(self.rng.choice([0.0, 0.0, -1.0, -np.inf])) if dtype in FLOATS else int(self.rng.integers(2))
        name = f"x{len(self.inputs)}"
        self.inputs.append(Tensor(name, tuple(shape), dtype, self.strides(shape, shared=True)))
        return Access(name, tuple(index), fill if guarded else None)

    def some(self, axes: Sequence[Axis]) -> list[Axis]:
        """Some of the axes, in their order."""
        return [a for a in axes if self.chance(0.6)]

    def index(self, axes: Sequence[Axis], size: int) -> Expression:
        """Integers that index a dimension of that size, by some of the axes."""
        read = self.tensor(self.some(axes), self.one_of("int32", "int64"), shared=False)
        return call("where", call("lt", read, Literal(0.0)), add(read, Literal(float(size))), read)

    def gathered(self, axes: Sequence[Axis]) -> Expression:
        """An element of a table, one of whose dimensions is looked up."""
        used = self.some(axes)
        at = int(self.rng.integers(len(used) + 1))
        rows = int(self.rng.choice(SIZES))
        shape = [a.extent for a in used]
        shape.insert(at, rows)
        index: list[Affine | Expression] = [axis_index(a.name) for a in used]
        index.insert(at, self.index(axes, rows))
        name = f"x{len(self.inputs)}"
        dtype = self.one_of(*FLOATS, "int64", "bool")
        self.inputs.append(Tensor(name, tuple(shape), dtype, self.strides(shape, shared=False)))
        return Gather(name, tuple(index))

    def operand(self, axes: Sequence[Axis], gathers: bool) -> Expression:
        """Something that is read, or counted, at some of the axes."""
        kind = self.rng.random()
        if kind < 0.1:
            return Literal(float(self.rng.choice([-2.0, 0.5, 3.0])))
        if kind < 0.2 and axes:
            return Position(axis_index(axes[int(self.rng.integers(len(axes)))].name))
        if kind < 0.3 and gathers:
            return self.gathered(axes)
        dtype = self.one_of(*FLOATS, *FLOATS, "int8", "int32", "int64", "bool")
        return self.tensor(self.some(axes) if self.chance(0.5) else axes, dtype)

    def pointwise(self, start: Expression, axes: Sequence[Axis], steps: int, gathers: bool) -> Expression:
        """The expression, and so many more operations on it."""
        for _ in range(steps):
            start = self._step(start, axes, gathers)
        return start

    def _step(self, x: Expression, axes: Sequence[Axis], gathers: bool) -> Expression:
        match self.one_of("binary", "binary", "relu", "smooth", "round", "choose"):
            case "binary":
                return call(self.one_of("add", "sub", "mul"), x, self.operand(axes, gathers))
            case "relu":
                return call("maximum", x, Literal(0.0))
            case "smooth":
                return call(self.one_of("tanh", "neg", "abs", "sin"), x)
            case "round":
                return call(self.one_of("round_bfloat16", "round_float16", "floor"), x)
            case _:
                other = self.operand(axes, gathers)
                return call("where", call(self.one_of("lt", "le", "eq"), x, other), x, Literal(1.0))

    def integral(self, axes: Sequence[Axis], steps: int) -> Expression:
        """An expression of integers: something read or counted, and so many operations on it."""
        x = call("to_integer", self.tensor(axes, self.one_of(*INTEGERS, "bool")))
        for _ in range(steps):
            other: Expression = Integer(int(self.rng.integers(-5, 6)))
            if self.chance(0.4):
                other = call("to_integer", self.tensor(self.some(axes), self.one_of(*INTEGERS)))
            elif self.chance(0.3):
                other = call("to_integer", Position(axis_index(axes[-1].name)))
            match self.one_of("binary", "binary", "one", "shift", "choose"):
                case "binary":
                    x = call(self.one_of("add", "sub", "mul", "maximum", "bitwise_and", "bitwise_xor"), x, other)
                case "one":
                    x = call(self.one_of("neg", "abs", "wrap_int32", "wrap_int16", "wrap_int8", "wrap_uint8"), x)
                case "shift":
                    x = call(
                        self.one_of("shift_left", "shift_right", "quotient"), x, Integer(int(self.rng.integers(1, 9)))
                    )
                case _:
                    x = call("where", call(self.one_of("lt", "le", "eq"), x, other), x, Integer(7))
        return x

    def workload(self, name: str, *stages: Stage) -> Workload:
        """The workload of these stages; the output sometimes of integers or booleans."""
        *before, last = stages
        result, dtype = last.expression, self.dtype()
        if last.reduction is None and self.chance(0.2):
            dtype = self.one_of("int32", "int64", "bool")
            result = call("lt", result, Literal(0.5)) if dtype == "bool" else call("floor", result)
        return self.stored(name, before, last.axes, result, dtype, last.reduction)

    def stored(
        self,
        name: str,
        before: Sequence[Stage],
        axes: Sequence[Axis],
        result: Expression,
        dtype: str,
        reduction: Reduction | None = None,
    ) -> Workload:
        """The workload with a last stage that computes this; the output somehow in memory."""
        out = Stage("out", tuple(axes), result, reduction, dtype)
        strides = self.strides(out.shape, shared=False)
        read = {e.tensor for s in (*before, out) for e in _parts(s.expression)}
        inputs = tuple(t for t in self.inputs if t.name in read)
        return Workload(name, inputs, (*before, out), output_strides=(strides,))

    def outputs(self, name: str, stages: Sequence[Stage], stored: Sequence[str]) -> Workload:
        """The workload that stores these stages, in any order and somehow in memory."""
        kept = [replace(s, dtype=self.dtype()) if s.name in stored and s.dtype == "float32" else s for s in stages]
        names = [str(n) for n in self.rng.permutation(list(stored))]
        shapes = {s.name: s.shape for s in kept}
        read = {e.tensor for s in kept for e in _parts(s.expression)}
        return Workload(
            name,
            tuple(t for t in self.inputs if t.name in read),
            tuple(kept),
            output_names=tuple(names),
            output_strides=tuple(self.strides(shapes[n], shared=False) for n in names),
        )


def _parts(expression: Expression) -> list[Access | Gather]:
    return [e for e in walk(expression) if isinstance(e, Access | Gather)]


def product(make: Maker) -> Workload:
    """out[batch…, m, n] = epilogue(sum over k of a · b)."""
    names = [f"b{i}" for i in range(int(make.rng.choice([0, 0, 1, 2])))]
    *batch, m, n, k = make.axes([*names, "m", "n", "k"])
    dtype, axes = make.dtype(), (*batch, m, n)
    left = [*batch, m, k] if make.chance(0.5) else [*batch, k, m]
    right = [*batch, k, n] if make.chance(0.5) else [*batch, n, k]
    sum_of = Reduction("sum", (k,))
    body = mul(make.tensor(left, dtype), make.tensor(right, dtype))
    steps = int(make.rng.integers(4))
    contraction = Stage("out" if steps == 0 else "s", axes, body, sum_of)
    if steps == 0:
        return make.workload("product", contraction)
    result = make.pointwise(_whole(contraction), axes, steps, gathers=make.chance(0.3))
    return make.workload("product", contraction, Stage("out", axes, result))


def rows(make: Maker, elsewhere: bool = False) -> Workload:
    """Reductions of rows, or of columns, and what is computed of them; also of what is looked up."""
    names = [f"r{i}" for i in range(int(make.rng.choice([1, 1, 2])))]
    *outer, c = make.axes([*names, "c"])
    gathers = make.chance(0.3)
    first = make.gathered([*outer, c]) if gathers else make.tensor([*outer, c])
    if elsewhere:
        first = make.elsewhere([*outer, c])
    body = make.pointwise(first, (*outer, c), int(make.rng.integers(3)), gathers)
    if make.chance(0.25):
        body = mul(body, make.tensor([outer[-1], c]))
    operator = make.one_of("sum", "sum", "max", "min")
    if make.chance(0.3):
        return make.workload("rows", Stage("out", tuple(outer), body, _reduction(operator, c)))
    top = Stage("top", tuple(outer), body, _reduction(operator, c))
    if make.chance(0.5):
        axes = (*outer, c) if make.chance(0.7) else tuple(outer)
        body = sub(body, _whole(top)) if len(axes) > len(outer) else _whole(top)
        return make.workload("rows", top, Stage("out", axes, make.pointwise(body, axes, 1, gathers)))
    exponential = call("exp", sub(call("tanh", body), call("tanh", _whole(top))))
    total = Stage("total", tuple(outer), exponential, _reduction("sum", c))
    axes = (*outer, c)
    return make.workload("rows", top, total, Stage("out", axes, call("div", exponential, _whole(total))))


def elements(make: Maker, elsewhere: bool = False) -> Workload:
    """out[…] = f(…), without reductions."""
    names = [f"i{i}" for i in range(int(make.rng.choice([1, 2, 3])))]
    axes = make.axes(names)
    gathers = make.chance(0.4)
    start = make.gathered(axes) if gathers else make.tensor(axes)
    if elsewhere:
        start = call(make.one_of("add", "maximum", "sub"), make.elsewhere(axes), make.elsewhere(axes))
    result = make.pointwise(start, axes, 1 + int(make.rng.integers(4)), gathers)
    return make.workload("elements", Stage("out", axes, result))


def integers(make: Maker) -> Workload:
    """Arithmetic of integers, or a reduction of them, and what is made of it."""
    *outer, c = axes = make.axes(["i0", "i1"])
    dtype = make.one_of(*INTEGERS)
    if make.chance(0.5):
        result = make.integral(axes, 1 + int(make.rng.integers(3)))
        if make.chance(0.3):
            return make.stored("integers", (), axes, call("to_float", result), make.dtype())
        return make.stored("integers", (), axes, call(f"wrap_{dtype}", result) if dtype != "int64" else result, dtype)
    body, operator = make.integral(axes, int(make.rng.integers(3))), make.one_of("sum", "max", "min")
    total = Stage("total", tuple(outer), body, _reduction(operator, c), "int64")
    whole = call("to_integer", _whole(total))
    if make.chance(0.5):
        return make.stored("integers", (total,), axes if make.chance(0.5) else outer, sub(whole, body), "int64")
    return make.stored("integers", (total,), outer, call("to_float", whole), make.dtype())


def rows_elsewhere(make: Maker) -> Workload:
    """Reductions of what is read elsewhere than at the axes."""
    return rows(make, elsewhere=True)


def elements_elsewhere(make: Maker) -> Workload:
    """Parts put together, moved and padded."""
    return elements(make, elsewhere=True)


def several(make: Maker) -> Workload:
    """One of the others of which more is stored than the last stage: stages before, and something else of its axes."""
    kinds: tuple[Callable[[Maker], Workload], ...] = (product, rows, rows, elements)
    one = kinds[int(make.rng.integers(len(kinds)))](make)
    *before, out = one.stages
    stored = [s.name for s in before if make.chance(0.6)]
    stages = [replace(s, dtype=make.dtype()) if s.name in stored else s for s in before]
    # What is no part of a product is no matter of its kernel.
    if one.name != "product" and (not stored or make.chance(0.5)):
        axes = tuple(Axis(name, extent) for name, extent in one.stages[0].extents.items())
        result = make.pointwise(make.tensor(axes), axes, 1 + int(make.rng.integers(2)), gathers=False)
        whole = make.chance(0.3)
        stages.append(
            Stage("more", axes, call("floor", result) if whole else result, dtype="int32" if whole else out.dtype)
        )
        stored.append("more")
    return make.outputs("several", [*stages, out], [*stored, out.name])


def folds(make: Maker) -> Workload:
    """Reductions over any of the axes, adjacent or not, also of reductions of some of them; each may be a result."""
    axes = make.axes([f"a{i}" for i in range(int(make.rng.choice([1, 2, 3, 4])))])
    kinds = [make.one_of("row", "kept", "folded", "folded") for _ in axes]
    if "folded" not in kinds:
        kinds[int(make.rng.integers(len(kinds)))] = "folded"
    parallel, kept, folded = (tuple(a for a, kind in zip(axes, kinds, strict=True) if kind == k) for k in _KINDS)
    order = [axes[i] for i in make.rng.permutation(len(axes))]
    body = make.pointwise(make.tensor(order), axes, int(make.rng.integers(3)), gathers=False)
    operator = make.one_of("sum", "max", "min")
    stages = []
    if kept and make.chance(0.7):
        # Folds of folds, or of what is made of them.
        each = Stage("each", (*parallel, *kept), body, _reduction(operator, *folded))
        over, inner = (kept, _whole(each)) if make.chance(0.6) else ((*kept, *folded), sub(body, _whole(each)))
        stages += [each, Stage("all", parallel, inner, _reduction(make.one_of("sum", "max"), *over))]
    else:
        first = Stage("all", parallel, body, _reduction(operator, *kept, *folded))
        stages.append(first)
        if make.chance(0.5):
            moved = call("tanh", sub(body, _whole(first)))
            stages.append(Stage("more", parallel, moved, _reduction("sum", *kept, *folded)))
    if make.chance(0.5) or not parallel:
        value = body
        for stage in stages:
            value = sub(value, call("tanh", _whole(stage)))
        stages.append(Stage("out", tuple(order), make.pointwise(value, axes, 1, gathers=False)))
    stored = [s.name for s in stages[:-1] if make.chance(0.5)] + [stages[-1].name]
    return make.outputs("folds", stages, stored)


def neighbours(make: Maker) -> Workload:
    """What is read at steps and offsets of an axis, partly outside; or windows of it, folded."""
    i, j, k = (*make.axes(["i", "j"], MOST_POINTS // 8), Axis("k", int(make.rng.integers(1, 5))))
    step, offset = int(make.rng.choice([1, 1, 2, -1])), int(make.rng.integers(-3, 4))
    size = int(make.rng.choice(SIZES))
    name, fill = f"x{len(make.inputs)}", float(make.rng.choice([0.0, -2.0]))
    shape = (i.extent, size) if make.chance(0.6) else (size, i.extent)
    make.inputs.append(Tensor(name, shape, make.dtype(), make.strides(shape, shared=True)))
    window = make.chance(0.5)
    along = Affine.of(("j", step), *([("k", 1)] if window else []), offset=offset + (j.extent - 1 if step < 0 else 0))
    index = (axis_index("i"), along) if shape[0] == i.extent else (along, axis_index("i"))
    body = make.pointwise(Access(name, index, fill), (i, j), int(make.rng.integers(2)), gathers=False)
    if not window:
        return make.outputs(
            "neighbours", [Stage("out", (i, j), make.pointwise(body, (i, j), 1, gathers=False))], ["out"]
        )
    pooled = Stage("pooled", (i, j), body, _reduction(make.one_of("sum", "max", "min"), k))
    if make.chance(0.5):
        total = Stage("total", (i,), _whole(pooled), _reduction("sum", j))
        return make.outputs("neighbours", [pooled, total], ["pooled", "total"] if make.chance(0.5) else ["total"])
    return make.outputs("neighbours", [pooled], ["pooled"])


def scans(make: Maker) -> Workload:
    """What is scanned along any axis, either way, of one value or of two, with work before and after it."""
    axes = make.axes([f"a{i}" for i in range(int(make.rng.choice([1, 2, 2, 3])))])
    along, reverse = axes[int(make.rng.integers(len(axes)))], make.chance(0.4)
    order = [axes[i] for i in make.rng.permutation(len(axes))]
    body = make.pointwise(make.tensor(order), axes, int(make.rng.integers(3)), gathers=False)
    left, right = ([operand(side, n) for n in range(2)] for side in (LEFT, RIGHT))
    if make.chance(0.4):
        combine = (add(mul(left[0], right[1]), right[0]), mul(left[1], right[1]))
        scan = Scan(along.name, ("first", "factor"), combine, reverse)
        factor = call("tanh", make.tensor(make.some(order) or order))
        stages = [Stage("first", axes, body, scan=scan), Stage("factor", axes, factor, scan=scan)]
    else:
        operator = make.one_of("add", "add", "maximum", "minimum", "mul")
        body = call("tanh", body) if operator == "mul" else body
        scan = Scan(along.name, ("first",), (call(operator, left[0], right[0]),), reverse)
        stages = [Stage("first", axes, body, scan=scan)]
    value: Expression = _whole(stages[0])
    if make.chance(0.3):
        rest = tuple(a for a in axes if a != along)
        stages.append(Stage("fold", rest, value, _reduction(make.one_of("sum", "max"), along)))
        value = sub(value, call("tanh", _whole(stages[-1])))
    if make.chance(0.5):
        stages.append(Stage("out", axes, make.pointwise(value, axes, 1, gathers=False)))
    stored = [s.name for s in stages if make.chance(0.4)] or [stages[-1].name]
    if stages[-1].name == "factor" and "first" not in stored:
        # Which is read by nothing else.
        stored.append("first")
    return make.outputs("scans", stages, stored)


_KINDS = ("row", "kept", "folded")
STRUCTURES: tuple[Callable[[Maker], Workload], ...] = (
    *(product, product, rows, rows, elements, integers, several),
    *(folds, folds, neighbours),
    *(rows_elsewhere, elements_elsewhere, scans),
)


def random_workload(seed: int) -> Workload:
    """The workload of a seed."""
    rng = np.random.default_rng(seed)
    while True:
        try:
            return STRUCTURES[int(rng.integers(len(STRUCTURES)))](Maker(rng))
        except InputError:
            # Such as strides of two elements in one place.
            continue


def _whole(stage: Stage) -> Access:
    return Access(stage.name, tuple(axis_index(a.name) for a in stage.axes))


def _reduction(operator: str, *axes: Axis) -> Reduction:
    match operator:
        case "sum" | "max" | "min":
            return Reduction(operator, axes)
        case _:
            raise ValueError(operator)
