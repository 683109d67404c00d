"""Assembly of one kernel of a traced function: from values to a workload.

Elements are pulled from the output: its element at index (i, j) is an expression of elements of its operands, and so on
down to tensors in memory. Views only change the index on the way. Tensors in memory are read through strided views, by
plain axes where their strides allow that and the index is never outside; axes that all tensors traverse alike are
merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from autosched.tracing.fusion.chained_stages import chained
from autosched.tracing.fusion.common_axes import index_among
from autosched.tracing.fusion.shared_reads import with_shared_reads
from autosched.tracing.values.elements import element
from autosched.tracing.values.narrowing import narrowed
from autosched.tracing.values.pulled import ROW, FusionLimits, NotOneKernelError, Pulled, axes_in
from autosched.tracing.values.reads import at_its_axes
from autosched.tracing.values.tensor_reads import MemoryView, TensorRead, check_within, view_of
from autosched.tracing.values.values import Index, Leaf, Value
from autosched.tracing.values.views import AxisCutError, NotAffineError
from search_spaces import InputError, Scan, Stage, Tensor, Workload
from search_spaces.scheduling import scheduling_of
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Gather, LookUp, Segment
from search_spaces.workloads.expressions.operators import ROUNDINGS, WRAPPINGS
from search_spaces.workloads.expressions.walking import rewritten, walk


@dataclass(frozen=True)
class Assembled:
    """The workload that computes `values`, its outputs, which are dense, and the memory that its inputs read.

    `chained`: it multiplies or reduces results of products (back-to-back GEMM, attention).
    """

    values: tuple[Value, ...]
    workload: Workload
    inputs: tuple[MemoryView, ...]
    chained: bool = False


def assemble(
    values: Sequence[Value], stored: Mapping[Value, tuple[int, ...]], name: str, fusing: FusionLimits
) -> Assembled:
    """The workload that computes `values` from tensors in memory; `stored` has their strides.

    Raises:
        NotOneKernelError: no sketch can compute it.
    """
    cuts: dict[str, int] = {}
    reached: set[Value] = set()
    while True:
        pulled = Pulled(stored, cuts, fusing)
        try:
            return _Assembly(tuple(values), pulled).assembled(name)
        except AxisCutError as cut:
            cuts = {**cuts, cut.axis: cut.inner}
            reached |= pulled.reached
        except NotAffineError:
            names = " and ".join(v.name for v in values)
            error = NotOneKernelError(f"{names}: no affine view of an operand")
            raise error.having(reached | pulled.reached) from None
        except NotOneKernelError as error:
            raise error.having(reached | pulled.reached) from None


@dataclass
class _Assembly:
    """The kernel of some values under construction.

    `indices`: of an element of every value, by the axes of the kernel. `outputs`: the stage of every value.
    """

    values: tuple[Value, ...]
    pulled: Pulled
    indices: dict[Value, Index] = field(default_factory=dict)
    outputs: dict[Value, str] = field(default_factory=dict)

    def assembled(self, name: str) -> Assembled:
        results = self._pulled()
        if not self.pulled.reads.operands:
            raise NotOneKernelError(f"{self.values[0].name} has no operand in memory")
        if not self.pulled.output_axes:
            self.pulled.extend(ROW, 1)
            self.pulled.output_axes = (ROW,)
        # Values with fewest elements are ready first.
        for value in sorted(self.values, key=lambda v: v.elements):
            self._store(value, results[value])
        stages, operands = with_shared_reads(self.pulled)
        tensors = {o.name: (o.value.dtype, tuple(n or 0 for n in o.sizes)) for o in operands}
        stages = narrowed(stages, tensors, set(self.outputs.values()))
        if self.pulled.fusing.chained:
            stages = chained(stages, self.pulled.products, self.pulled.extents)
        read = {e.tensor for s in stages for e in walk(s.expression) if isinstance(e, Access | LookUp)}
        operands = sorted((o for o in operands if o.name in read), key=_place)
        if ROW in self.pulled.output_axes:
            operands = [_in_row(o, self.pulled.extents) for o in operands]
            stages = [_reading(s, operands) for s in stages]
        placed = {self.outputs[v]: self._strides(v) for v in self.values}
        return self._workload(name, stages, operands, placed)

    def _pulled(self) -> dict[Value, Expression]:
        """The element to store of every value; the largest value comes first, and its dimensions are the axes."""
        first = max(self.values, key=lambda v: v.elements)
        self.indices[first] = tuple(self.pulled.dimension(f"d{d}", size) for d, size in enumerate(first.shape))
        self.pulled.output_axes = axes_in(self.indices[first])
        found = {first: element(self.pulled, first, self.indices[first])}
        for number, value in enumerate((v for v in self.values if v is not first), 1):
            self.indices[value] = index_among(value, self.pulled, number)
            found[value] = element(self.pulled, value, self.indices[value])
        return {v: _without_rounding(e, v.dtype) for v, e in found.items()}

    def _store(self, value: Value, result: Expression) -> None:
        """Store a value: by the stage that computes it unchanged, if there is one, or else by a new one."""
        axes = self.pulled.ordered(self._axes_of(value))
        for n, stage in enumerate(self.pulled.stages):
            own = [a.name for a in stage.axes] == list(axes) and _is_of(result, stage)
            if own and stage.name not in self.outputs.values():
                self.pulled.stages[n] = replace(stage, dtype=value.dtype)
                self.outputs[value] = stage.name
                return
        made = Stage(self.pulled.names.fresh("out"), self.pulled.axes(axes), result, None, value.dtype)
        self.pulled.stages.append(made)
        self.outputs[value] = made.name

    def _axes_of(self, value: Value) -> tuple[str, ...]:
        """The axes of the stage of a value, with the axes of size 1 that all stages have."""
        own, known = axes_in(self.indices[value]), self.pulled.output_axes
        return (
            *(a for a in known if a in own or self.pulled.extents[a] == 1),
            *(a for a in own if a not in known),
        )

    def _strides(self, value: Value) -> dict[str, int]:
        """Strides of the value's memory by the axes of its stage."""
        strides = dict.fromkeys(self._axes_of(value), 0)
        steps = zip(self.indices[value], value.memory_strides, strict=True)
        return strides | {v: c * step for at, step in steps if isinstance(at, Affine) for v, c in at.terms}

    def _workload(
        self,
        name: str,
        stages: Sequence[Stage],
        operands: Sequence[TensorRead],
        placed: Mapping[str, Mapping[str, int]],
    ) -> Assembled:
        extents = {a.name: a.extent for s in stages for a in s.loops}
        if self.pulled.fusing.chained:
            stages, operands = _read_once(stages, operands, extents)
        views = tuple(view_of(o, extents) for o in operands)
        for view in views:
            check_within(view, self.pulled.stored[view.value])
        constant = set() if self.pulled.fusing.chained else _constant_factors(stages, operands)
        inputs = enumerate(zip(operands, views, strict=True))
        outputs = [s for s in stages if s.name in placed]
        renamed = _with_common_names(stages, operands, [s.name for s in outputs])
        try:
            workload = Workload(
                name,
                tuple(Tensor(f"x{n}", v.shape, o.value.dtype, v.strides, o.name in constant) for n, (o, v) in inputs),
                tuple(renamed.values()),
                self.pulled.precision or "ieee",
                output_names=tuple(renamed[s.name].name for s in outputs),
                output_strides=tuple(tuple(placed[s.name][a.name] or 1 for a in s.axes) for s in outputs),
            )
        except InputError as error:
            raise NotOneKernelError(str(error)) from None
        self._check(workload)
        values = {stage: value for value, stage in self.outputs.items()}
        return Assembled(tuple(values[s.name] for s in outputs), workload, views, self.pulled.fusing.chained)

    def _check(self, workload: Workload) -> None:
        """Raise NotOneKernelError if no sketch computes the workload."""
        workload, fusing = workload.scheduled, self.pulled.fusing
        found = scheduling_of(workload, fusing.chained, fusing.computed)
        if not (fusing.chained or found.is_dots) and self.pulled.multiplies and any(s.factors for s in workload.stages):
            raise NotOneKernelError(f"no sketch computes {workload}")
        if found.why:
            raise NotOneKernelError(f"no sketch computes {workload}\n{found.why}")


def _constant_factors(stages: Sequence[Stage], operands: Sequence[TensorRead]) -> set[str]:
    """The operands whose values stay the same from call to call, and which products read as they are: weights.

    Nothing else of a kernel is stored in another layout for its sake.
    """
    factors = {e.tensor for s in stages for e in s.factors if isinstance(e, Access)}
    return {o.name for o in operands if o.value.constant} & factors


def _reading(stage: Stage, operands: Sequence[TensorRead]) -> Stage:
    """The stage with every operand read by its present axes; other indices stay unchanged, and in order."""
    known = {o.name: o for o in operands}

    def change(e: Expression) -> Expression | None:
        if not isinstance(e, Access) or e.tensor not in known:
            return None
        operand = known[e.tensor]
        others = iter([i for i in e.index if not any(v in operand.axes for v, _ in i.terms)])
        named = zip(operand.strides, operand.sizes, strict=True)
        return replace(e, index=tuple(axis_index(v) if size is None else next(others) for (v, _), size in named))

    return replace(stage, expression=rewritten(stage.expression, change))


def _in_row(operand: TensorRead, extents: Mapping[str, int]) -> TensorRead:
    """The operand with the axis of the only row, if it has axes at all."""
    if not operand.is_plain or not operand.strides:
        return operand
    axis, stride = operand.strides[0]
    strides = ((ROW, stride * extents[axis]), *operand.strides)
    return replace(operand, strides=strides, sizes=())


def _with_common_names(
    stages: Sequence[Stage], operands: Sequence[TensorRead], outputs: Sequence[str]
) -> dict[str, Stage]:
    """The stages with names that equal kernels of any function share: x0, x1 … for inputs."""
    names = {o.name: f"x{n}" for n, o in enumerate(operands)}
    names |= {s.name: f"s{n}" for n, s in enumerate(stages)}
    names |= {name: f"out{n}" if len(outputs) > 1 else "out" for n, name in enumerate(outputs)}

    def scan(given: Scan | None) -> Scan | None:
        return given and replace(given, members=tuple(map(names.__getitem__, given.members)))

    return {
        s.name: replace(s, name=names[s.name], expression=_with_names(s.expression, names), scan=scan(s.scan))
        for s in stages
    }


def _with_names(expression: Expression, names: Mapping[str, str]) -> Expression:
    def change(e: Expression) -> Expression | None:
        match e:
            case Access(tensor):
                return replace(e, tensor=names[tensor])
            case Gather(tensor, index):
                return Gather(
                    names[tensor], tuple(i if isinstance(i, Affine) else _with_names(i, names) for i in index)
                )
            case Segment(tensor, position, size):
                renamed = position if isinstance(position, Affine) else _with_names(position, names)
                return Segment(names[tensor], renamed, size)
            case _:
                return None

    return rewritten(expression, change)


def _read_once(
    stages: Sequence[Stage], operands: Sequence[TensorRead], extents: Mapping[str, int]
) -> tuple[list[Stage], list[TensorRead]]:
    """The stages with operands that products read alike by other axes made one; and the operands left."""
    first: dict[MemoryView, str] = {}
    same = {o.name: first.setdefault(view_of(o, extents), o.name) if o.is_plain else o.name for o in operands}

    def change(e: Expression) -> Expression | None:
        if isinstance(e, Access) and same.get(e.tensor, e.tensor) != e.tensor:
            return replace(e, tensor=same[e.tensor])
        return None

    found = [replace(s, expression=rewritten(s.expression, change)) for s in stages]
    return found, [o for o in operands if same[o.name] == o.name]


def _place(operand: TensorRead) -> int:
    """Sort key: arguments of the function in its order, then all others in order of discovery."""
    value = operand.value
    return value.position if isinstance(value, Leaf) and value.position is not None else 2**31


def _is_of(expression: Expression, stage: Stage) -> bool:
    """True if the expression is the stage's element, unchanged."""
    own = at_its_axes(stage)
    return expression in (own, ex.call("to_integer", own))


def _without_rounding(expression: Expression, dtype: str) -> Expression:
    """The expression without a last rounding that storing it repeats."""
    if isinstance(expression, ex.Apply) and {**ROUNDINGS, **WRAPPINGS}.get(expression.operator) == dtype:
        return expression.arguments[0]
    return expression
