"""Ways to write a workload that mean the same, each of a workload and numbers to draw by."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from search_spaces import Axis, Reduction, Stage, Tensor, Workload
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Gather, Position
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.walking import accesses, gathers, rewritten, variables, walk


def written_with(
    w: Workload,
    forms: Callable[[Stage, Affine], Affine] = lambda stage, form: form,
    axes: Callable[[Stage, Axis], Axis] = lambda stage, axis: axis,
    names: Callable[[str], str] = lambda name: name,
) -> Workload:
    """The workload with every affine form and axis of a stage, and the names of all tensors, exchanged."""

    def changed(stage: Stage, e: Expression) -> Expression:
        def one(part: Expression) -> Expression | None:
            match part:
                case Access(tensor, index, fill):
                    return Access(names(tensor), tuple(forms(stage, i) for i in index), fill)
                case Gather(tensor, mixed):
                    at = (forms(stage, i) if isinstance(i, Affine) else rewritten(i, one) for i in mixed)
                    return Gather(names(tensor), tuple(at))
                case Position(form):
                    return Position(forms(stage, form))
            return None

        return rewritten(e, one)

    stages = tuple(
        Stage(
            names(s.name),
            tuple(axes(s, a) for a in s.axes),
            changed(s, s.expression),
            s.reduction and Reduction(s.reduction.operator, tuple(axes(s, a) for a in s.reduction.axes)),
            s.dtype,
            s.scan
            and dataclasses.replace(
                s.scan,
                axis=axes(s, Axis(s.scan.axis, s.extents[s.scan.axis])).name,
                members=tuple(map(names, s.scan.members)),
            ),
        )
        for s in w.stages
    )
    inputs = tuple(dataclasses.replace(t, name=names(t.name)) for t in w.inputs)
    stored = tuple(map(names, w.output_names))
    return Workload("another", inputs, stages, w.precision, (("of", "none"),), stored, w.output_strides)


def is_scanned_with_others(stage: Stage) -> bool:
    """Whether its axes, and its place among the stages, are also those of others."""
    return stage.scan is not None and len(stage.scan.members) > 1


def last_output(w: Workload) -> Tensor:
    """The last stage, which is stored, as it lies in memory."""
    return next(t for t in w.outputs if t.name == w.stages[-1].name)


def strides_with_last(w: Workload, strides: tuple[int, ...]) -> tuple[tuple[int, ...] | None, ...]:
    """Those of the outputs, these being those of the last stage."""
    last = w.stages[-1].name
    return tuple(strides if n == last else s for n, s in zip(w.output_names, w.output_strides, strict=True))


def renamed(w: Workload, rng: np.random.Generator) -> Workload:
    """Every stage has names of its own for its axes, but for those that are scanned together."""
    known: dict[str, str] = {}

    def of(stage: Stage, axis: str) -> str:
        whose = stage.scan.members[0] if stage.scan else stage.name
        return known.setdefault(f"{whose} {axis}", f"axis{rng.integers(10**9)}")

    return written_with(
        w,
        lambda s, form: Affine.of(*((of(s, v), c) for v, c in form.terms), offset=form.offset),
        lambda s, a: Axis(of(s, a.name), a.extent),
        lambda name: known.setdefault(name, f"tensor{rng.integers(10**9)}"),
    )


def with_inputs_shuffled(w: Workload, rng: np.random.Generator) -> Workload:
    return dataclasses.replace(w, inputs=tuple(w.inputs[n] for n in rng.permutation(len(w.inputs))))


def with_dimensions_shuffled(w: Workload, rng: np.random.Generator) -> Workload:
    """Every tensor, stages included, has its dimensions in another order, and lies as it did."""
    shapes = {t.name: t.shape for t in w.inputs} | {s.name: s.shape for s in w.stages}
    order = {name: rng.permutation(len(shape)).tolist() for name, shape in shapes.items()}
    order |= {s.name: order[s.scan.members[0]] for s in w.stages if s.scan}

    def moved(e: Expression) -> Expression | None:
        match e:
            case Access(tensor, index):
                return dataclasses.replace(e, index=tuple(index[d] for d in order[tensor]))
            case Gather(tensor, mixed):
                at = [i if isinstance(i, Affine) else rewritten(i, moved) for i in mixed]
                return Gather(tensor, tuple(at[d] for d in order[tensor]))
        return None

    inputs = tuple(
        dataclasses.replace(
            t,
            shape=tuple(t.shape[d] for d in order[t.name]),
            strides=tuple(t.effective_strides[d] for d in order[t.name]),
        )
        for t in w.inputs
    )
    stages = tuple(
        dataclasses.replace(s, axes=tuple(s.axes[d] for d in order[s.name]), expression=rewritten(s.expression, moved))
        for s in w.stages
    )
    strides = tuple(tuple(t.effective_strides[d] for d in order[t.name]) for t in w.outputs)
    return dataclasses.replace(w, inputs=inputs, stages=stages, output_strides=strides)


def with_an_axis_of_one_index(w: Workload, rng: np.random.Generator) -> Workload:
    """The last stage, and the first input that is not looked up in, have one dimension more, of size 1."""
    *before, last = w.stages
    read = {a.tensor for s in w.stages for a in accesses(s.expression)}
    wider = next((t for t in w.inputs if t.name in read), None)
    stored = last.name in w.output_names and not is_scanned_with_others(last)
    if wider is None or not stored or any(g.tensor == wider.name for s in w.stages for g in gathers(s.expression)):
        return w

    def widened(e: Expression) -> Expression | None:
        if not isinstance(e, Access) or e.tensor != wider.name:
            return None
        return dataclasses.replace(e, index=(*e.index, Affine()))

    grown = dataclasses.replace(wider, shape=(*wider.shape, 1), strides=(*wider.effective_strides, 7))
    stages = [dataclasses.replace(s, expression=rewritten(s.expression, widened)) for s in (*before, last)]
    stages[-1] = dataclasses.replace(stages[-1], axes=(Axis("one", 1), *last.axes))
    strides = (int(rng.integers(1, 10**6)), *last_output(w).effective_strides)
    inputs = tuple(grown if t is wider else t for t in w.inputs)
    return dataclasses.replace(w, inputs=inputs, stages=tuple(stages), output_strides=strides_with_last(w, strides))


def with_an_axis_cut(w: Workload, rng: np.random.Generator) -> Workload:
    """An axis of the last stage is two, of which every index is a sum."""
    *before, last = w.stages
    fixed = {v for e in walk(last.expression) if isinstance(e, Gather | Position) for v in variables(e)}
    fixed |= {*(a.name for a in last.axes)} if is_scanned_with_others(last) else set()
    fixed |= {last.scan.axis} if last.scan else set()
    longest = [(n, a) for n, a in enumerate(last.axes) if a.extent % 3 == 0 and a.name not in fixed]
    if not longest or last.name not in w.output_names:
        return w
    place, axis = longest[int(rng.integers(len(longest)))]
    outer, inner = Axis("outer", axis.extent // 3), Axis("inner", 3)
    cut = Affine.of(("outer", 3), ("inner", 1))

    def changed(e: Expression) -> Expression | None:
        if not isinstance(e, Access):
            return None
        found = []
        for i in e.index:
            form = Affine.of(*((v, c) for v, c in i.terms if v != axis.name), offset=i.offset)
            by = dict(i.terms).get(axis.name, 0)
            found.append(form + Affine.of(*((v, by * c) for v, c in cut.terms)))
        return dataclasses.replace(e, index=tuple(found))

    stage = dataclasses.replace(
        last,
        axes=(*last.axes[:place], outer, inner, *last.axes[place + 1 :]),
        expression=rewritten(last.expression, changed),
    )
    strides = last_output(w).effective_strides
    placed = (*strides[:place], 3 * strides[place], strides[place], *strides[place + 1 :])
    return dataclasses.replace(w, stages=(*before, stage), output_strides=strides_with_last(w, placed))


def with_arguments_exchanged(w: Workload, rng: np.random.Generator) -> Workload:
    def turned(e: Expression) -> Expression:
        match e:
            case Apply("add" | "mul" as operator, (a, b)):
                return Apply(operator, (turned(b), turned(a)))
            case Apply(operator, arguments):
                return Apply(operator, tuple(map(turned, arguments)))
        return e

    stages = tuple(dataclasses.replace(s, expression=turned(s.expression)) for s in w.stages)
    return dataclasses.replace(w, stages=stages)


def with_a_stage_that_nothing_reads(w: Workload, rng: np.random.Generator) -> Workload:
    unread = Stage("unread", (Axis("unread_i", 5),), Position(axis_index("unread_i")))
    return dataclasses.replace(w, stages=(unread, *w.stages))


def with_an_expression_named(w: Workload, rng: np.random.Generator) -> Workload:
    """An argument of the last stage is a stage of its own, where it is a float32 and nothing multiplies it in a dot."""
    *before, last = w.stages
    parts = [e for e in walk(last.expression) if isinstance(e, Apply) and not is_integral(e)]
    if last.is_contraction or is_scanned_with_others(last) or not parts:
        return w
    part = parts[int(rng.integers(len(parts)))]
    folded = last.reduction.axes if last.reduction else ()
    axes = tuple(a for a in (*folded, *last.axes) if a.name in variables(part)) or last.axes[:1]
    named = Stage("named", axes, part)
    own = Access("named", tuple(axis_index(a.name) for a in axes))
    expression = rewritten(last.expression, lambda e: own if e == part else None)
    return dataclasses.replace(w, stages=(*before, named, dataclasses.replace(last, expression=expression)))


WAYS = (
    with_an_expression_named,
    renamed,
    with_inputs_shuffled,
    with_dimensions_shuffled,
    with_an_axis_of_one_index,
    with_an_axis_cut,
    with_arguments_exchanged,
    with_a_stage_that_nothing_reads,
)
