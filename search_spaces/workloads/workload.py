"""The computation: a small graph of tensor expressions at concrete shapes and element types.

    inputs   a[512, 512] float32, b[512, 512] float32
    acc[m, n] = sum over k of mul(a[m, k], b[k, n])
    out[m, n] = maximum(acc[m, n], 0)

Every stage computes in float32 (float64 in the reference), except that sums of products of int8 are int32 and
exact, and that expressions of integers are (`kinds.is_integral`): a stage of one is int64, and so are its folds.
`Stage.dtype` is the type in which a stage is stored, and only outputs are stored (the last stage, where nothing else
is given): integers are stored as integers. A stage that reads an output reads the value of its expression before it is
rounded. An output of integers or booleans may be of a float32 expression with such values. Tensors are dense and
row-major unless they have strides.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from search_spaces.errors import InputError
from search_spaces.parsed_json import Scalar, array, members, scalar, text
from search_spaces.plain_text import encodable, visible
from search_spaces.workloads.canonical.axis_splitting import UnspellableError
from search_spaces.workloads.canonical.form import Canonical, canonical
from search_spaces.workloads.canonical.respelling import spelled_out
from search_spaces.workloads.dtypes import FLOAT8, FLOATS, dtype, is_float, is_integer
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.constants import with_constants_computed
from search_spaces.workloads.expressions.kinds import check_kinds, is_integral
from search_spaces.workloads.expressions.walking import accesses, affine_forms, distinct, gathers, segments, variables
from search_spaces.workloads.scanned_stages import check_scans, scan_text
from search_spaces.workloads.scans import Scan
from search_spaces.workloads.stages import (
    MAX_ELEMENTS,
    MAX_EXTENT,
    Axis,
    Reduction,
    Stage,
    Tensor,
    check_axes,
    check_depth,
    check_extents,
    check_fill,
    check_index,
    check_name,
    check_shape,
)
from search_spaces.workloads.stages_json import (
    input_from_json,
    input_to_json,
    stage_from_json,
    stage_to_json,
    whole_numbers,
)
from search_spaces.workloads.strides import check_strides, declared_strides

__all__ = [
    "MAX_ELEMENTS",
    "MAX_EXTENT",
    "PRECISIONS",
    "Axis",
    "Reduction",
    "Scalar",
    "Scan",
    "Stage",
    "Tensor",
    "Workload",
    "check_axes",
    "check_shape",
]

PRECISIONS = ("ieee", "tf32", "fast")
# Of the kernels that the partitioner tries for a gradient, a third have a form that it has tried before.
_MOST_KEPT = 1024


@dataclass(frozen=True)
class Workload:
    """An operator at concrete shapes. Equal computations have equal `key`s (`workloads.canonical.form`).

    `name` and `arguments` record its construction (for people and for library baselines). `precision` is that of dots:
    "ieee"; "tf32" for float32 operands cut to tf32; "fast" for 8-bit floats whose partial sums stay in the accumulator
    of the tensor core to the end, which keeps fewer bits than float32. `output_names` are the stored stages, in the
    order in which a call returns them: the last one by default. `output_strides` place each of them in memory as
    `Tensor.strides` do an input; by default all are dense.
    """

    name: str
    inputs: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    precision: str = "ieee"
    arguments: tuple[tuple[str, Scalar], ...] = field(default=(), compare=False)
    output_names: tuple[str, ...] = ()
    output_strides: tuple[tuple[int, ...] | None, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or encodable(self.name) != self.name:
            raise InputError(f"workload name {self.name!r}; expected text that UTF-8 has")
        if self.precision not in PRECISIONS:
            raise InputError(f"unknown precision {self.precision!r} (allowed: {', '.join(PRECISIONS)})")
        if not self.stages:
            raise InputError(f"workload {self.name!r} has no stage; expected at least one")
        if not self.inputs:
            raise InputError(f"workload {self.name!r} has no input; expected at least one")
        for tensor in self.inputs:
            check_name("input", tensor.name)
        known: dict[str, tuple[int, ...]] = {t.name: t.shape for t in self.inputs}
        if len(known) < len(self.inputs):
            raise InputError(f"workload {self.name!r} has two inputs of one name: {[t.name for t in self.inputs]}")
        stored = self.output_names or (self.stages[-1].name,)
        for stage in self.stages:
            if stage.name in stored:
                check_shape(stage.name, stage.shape)
            dtype(stage.dtype)
            check_name("stage", stage.name)
            check_axes(stage.name, stage.loops)
            self._check_stage(stage, known)
            known[stage.name] = stage.shape
        check_scans(self.stages)
        check_depth(self.stages)
        check_extents(self.stages)
        self._check_outputs()
        self._check_dtypes()

    def _check_outputs(self) -> None:
        """Complete the outputs' names and strides; raise InputError if they are no stages, or cannot lie like that."""
        names = self.output_names or (self.stages[-1].name,)
        stages = {s.name: s for s in self.stages}
        if len(set(names)) < len(names) or not stages.keys() >= set(names):
            raise InputError(f"workload {self.name!r}: outputs {list(names)}; expected each once, of {sorted(stages)}")
        given = self.output_strides or (None,) * len(names)
        if len(given) != len(names):
            raise InputError(f"workload {self.name!r}: strides of {len(given)} outputs, expected {len(names)}")
        found = []
        for name, strides in zip(names, given, strict=True):
            if strides is not None:
                check_strides(name, stages[name].shape, strides, shared=False)
                strides = declared_strides(stages[name].shape, strides)
            found.append(strides)
        object.__setattr__(self, "output_names", names)
        object.__setattr__(self, "output_strides", tuple(found))

    def _check_dtypes(self) -> None:
        """Raise InputError unless only sums of products and outputs are integers, and "fast" has an effect."""
        known = {t.name: t.dtype for t in self.inputs}
        for stage in self.stages:
            operands = [known[a.tensor] for a in accesses(stage.expression)]
            sums_integers = stage.is_contraction and all(d == "int8" for d in operands)
            stored = stage.name in self.output_names
            check_kinds(stage.expression)
            if is_integral(stage.expression):
                allowed = is_integer(stage.dtype) if stored else stage.dtype == "int64"
            else:
                allowed = is_float(stage.dtype) or (stage.dtype == "int32" if sums_integers else stored)
            if not allowed:
                raise InputError(
                    f"stage {stage.name!r} has dtype {stage.dtype}; expected one of {', '.join(FLOATS)}, "
                    "or int32 for a sum of products of int8, or int64 for an expression of integers"
                )
            known[stage.name] = stage.dtype
        if self.precision == "fast" and not all(d in FLOAT8 for d in self.contracted):
            raise InputError(f'precision "fast" is for products of {", ".join(FLOAT8)} only')

    def _check_stage(self, stage: Stage, known: dict[str, tuple[int, ...]]) -> None:
        if stage.name in known:
            raise InputError(f"stage {stage.name!r} is defined twice; every tensor needs a name of its own")
        read = {t.name: t.dtype for t in self.inputs}
        for access in (e for e in distinct(stage.expression) if isinstance(e, ex.Access)):
            if access.fill is not None:
                check_fill(access, read.get(access.tensor))
            if access.tensor not in known:
                raise InputError(f"stage {stage.name!r} reads {access.tensor!r}, which is none of {sorted(known)}")
            shape = known[access.tensor]
            if len(access.index) != len(shape):
                raise InputError(f"{ex.to_text(access)} has {len(access.index)} indices, expected {len(shape)}")
            for index, size in zip(access.index, shape, strict=True):
                # With a fill it may be outside.
                check_index(access, index, None if access.fill is not None else size, stage)
        inputs = {t.name for t in self.inputs}
        for gather in gathers(stage.expression):
            if gather.tensor not in inputs:
                raise InputError(
                    f"stage {stage.name!r} gathers from {gather.tensor!r}, which is none of {sorted(inputs)}"
                )
            if len(gather.index) != len(known[gather.tensor]):
                expected = len(known[gather.tensor])
                raise InputError(f"{ex.to_text(gather)} has {len(gather.index)} indices, expected {expected}")
            for at, size in zip(gather.index, known[gather.tensor], strict=True):
                if isinstance(at, Affine):
                    check_index(gather, at, size, stage)
        for segment in segments(stage.expression):
            self._check_segment(stage, segment)
        unknown = {v for form in affine_forms(stage.expression) for v, _ in form.terms} - stage.extents.keys()
        if unknown:
            raise InputError(
                f"{ex.to_text(stage.expression)} uses {sorted(unknown)}, which is no axis of {stage.name!r}"
            )

    def _check_segment(self, stage: Stage, segment: ex.Segment) -> None:
        """Raise InputError unless the ends of segments are a dense 1-D input of integers."""
        ends = next((t for t in self.inputs if t.name == segment.tensor), None)
        if ends is None or not is_integer(ends.dtype) or ends.shape != (segment.size,) or ends.strides is not None:
            raise InputError(
                f"stage {stage.name!r}: {ex.to_text(segment)}; expected a dense 1-D input of {segment.size} integers"
                f" among {sorted(t.name for t in self.inputs)}"
            )

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        """The stored stages as tensors, in the order in which a call returns them."""
        stages = {s.name: s for s in self.stages}
        given = zip(map(stages.__getitem__, self.output_names), self.output_strides, strict=True)
        return tuple(Tensor(s.name, s.shape, s.dtype, strides) for s, strides in given)

    @property
    def contracted(self) -> tuple[str, ...]:
        """The element types of the operands of contractions, in order, where both are of one type."""
        dtypes = {t.name: t.dtype for t in self.inputs} | {s.name: s.dtype for s in self.stages}
        pairs = [[dtypes[a.tensor] for a in accesses(s.expression)] for s in self.stages if s.is_contraction]
        return tuple(d for pair in pairs if len({*pair}) == 1 for d in pair)

    @cached_property
    def flops(self) -> int:
        """Floating-point operations, a fold of a reduction counted as one."""
        return sum(s.flops for s in self.stages)

    @cached_property
    def min_bytes(self) -> int:
        """Fewest bytes to move: inputs read once, of a table at most the elements looked up; outputs written once."""
        return sum(min(t.bytes, self._looked_up_bytes(t)) for t in self.inputs) + sum(t.bytes for t in self.outputs)

    def _looked_up_bytes(self, tensor: Tensor) -> int:
        """The bytes of as many elements as are gathered; all of them where the tensor is also read as a whole."""
        if any(tensor.name in (*s.read_elements, *(e.tensor for e in segments(s.expression))) for s in self.stages):
            return tensor.bytes
        found = sum(
            math.prod(s.extents[v] for v in variables(g))
            for s in self.stages
            for g in set(gathers(s.expression))
            if g.tensor == tensor.name
        )
        return found * dtype(tensor.dtype).bytes

    @cached_property
    def canonical(self) -> Canonical:
        """The computation without any names, and the order of the inputs there."""
        return canonical(self.inputs, self.stages, self.outputs, self.precision)

    @cached_property
    def scheduled(self) -> Workload:
        """The workload whose schedules are searched: one for all of its key (`workloads.canonical.respelling`).

        Its inputs are those of the canonical form, in order; its outputs are in the order of this one's. If no workload
        has dimensions for all of the form's addresses, it is this one.
        """
        form = self.canonical
        found = _spelled_out(form, self.precision, len(self.output_names))
        if found is None:
            # Some index fits no dimensions: the workload stays as written.
            inputs = tuple(self.inputs[n] for n in form.inputs)
            found = replace(self, name=_name(form), inputs=inputs, arguments=())
        vars(found)["scheduled"] = found
        return found

    @property
    def varying(self) -> Workload:
        """The same computation without constants. Its inputs have the same order in its canonical form."""
        if not any(t.constant for t in self.inputs):
            return self
        return replace(self, inputs=tuple(replace(t, constant=False) for t in self.inputs))

    def renamed(self, name: str) -> Workload:
        """The same workload under another name; cached results are kept, and its canonical form is computed."""
        assert self.canonical.key
        made = copy.copy(self)
        object.__setattr__(made, "name", name)
        return made

    @property
    def key(self) -> str:
        """16 hexadecimal digits, those of the canonical form: equal for workloads that compute the same."""
        return self.canonical.key

    @property
    def family(self) -> str:
        """Key of the workloads whose schedules inform its own."""
        return self.canonical.family

    def input_order(self, other: Workload) -> tuple[int, ...]:
        """For every input of another workload of the same key, in order, the number of this one's equal input."""
        mine = dict(zip(other.canonical.inputs, self.canonical.inputs, strict=True))
        return tuple(mine[n] for n in range(len(other.inputs)))

    @property
    def label(self) -> str:
        """A short name with sizes, for tables: `matmul m=512 n=512 k=512 float32`, `f_mm 512x512 over 64 float32`.

        A workload that no operator constructed shows the shapes of the outputs, and the folded extents, stage by stage.
        """
        # A stride of 0 shares an operand, so it is shown.
        given = [(k, v) for k, v in self.arguments if k not in ("dtype", "out_dtype", "histogram")]
        shown = [f"{k}={v}" for k, v in given if v not in (None, "") and v is not False]
        read, made = self.inputs[0].dtype, " and ".join(dict.fromkeys(t.dtype for t in self.outputs))
        dtypes = made if read == made else f"{read} to {made}"
        made = f"{dtypes} as tf32" if self.precision == "tf32" else dtypes
        made = " ".join([made, *dict.fromkeys(t.histogram for t in self.inputs if t.histogram)])
        return visible(" ".join([self.name, *(shown or self._sizes()), made]))

    def _sizes(self) -> tuple[str, ...]:
        folds = (_by(a.extent for a in s.reduction.axes) for s in self.stages if s.reduction)
        folded = ", ".join(dict.fromkeys(folds))
        made = " and ".join(dict.fromkeys(_by(t.shape) for t in self.outputs))
        return (made, *([f"over {folded}"] if folded else []))

    def __hash__(self) -> int:
        return hash((self.inputs, tuple(s.axes for s in self.stages), self.precision, self.output_names))

    def __str__(self) -> str:
        lines = [f"workload {self.label}"]
        lines += [f"  {'constant' if t.constant else 'input'} {t.name}{list(t.shape)} {t.dtype}" for t in self.inputs]
        for s in self.stages:
            fold = (
                f"{s.reduction.operator} over {', '.join(a.name for a in s.reduction.axes)} of " if s.reduction else ""
            )
            fold = scan_text(s) or fold
            where = ", ".join(a.name for a in s.axes)
            stored = ", stored" if len(self.outputs) > 1 and s.name in self.output_names else ""
            lines.append(
                f"  {s.name}[{where}] = {fold}{ex.to_text(with_constants_computed(s.expression))}  : {s.dtype}{stored}"
            )
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        # Later additions are written only where they differ from their defaults: logs of older versions stay valid.
        return {
            "name": self.name,
            "arguments": [list(a) for a in self.arguments],
            "precision": self.precision,
            **self._outputs_to_json(),
            "inputs": [input_to_json(t) for t in self.inputs],
            "stages": [stage_to_json(s) for s in self.stages],
        }

    def _outputs_to_json(self) -> dict[str, Any]:
        if self.output_names != (self.stages[-1].name,):
            given = zip(self.output_names, self.output_strides, strict=True)
            return {"outputs": [[name, *([list(strides)] if strides else [])] for name, strides in given]}
        (strides,) = self.output_strides
        return {"output_strides": list(strides)} if strides else {}

    @staticmethod
    def from_json(data: Any) -> Workload:
        """The workload that `to_json` gave.

        Raises:
            DataError, InputError: the data is no such workload.
        """
        told = members(data, "workload", ("name", "arguments", "precision", "inputs", "stages"))
        outputs = [array(o, "output", (1, 2)) for o in array(told.get("outputs", []), "outputs")]
        strides = tuple(whole_numbers(s[0], "strides") if s else None for _, *s in outputs)
        if "output_strides" in told:
            strides = (whole_numbers(told["output_strides"], "strides"),)
        given = (array(a, "argument", (2,)) for a in array(told["arguments"], "arguments"))
        return Workload(
            name=text(told["name"], "workload name"),
            arguments=tuple((text(k, "argument name"), scalar(v, "argument")) for k, v in given),
            precision=text(told["precision"], "precision"),
            output_names=tuple(text(name, "output name") for name, *_ in outputs),
            output_strides=strides,
            inputs=tuple(map(input_from_json, array(told["inputs"], "inputs"))),
            stages=tuple(map(stage_from_json, array(told["stages"], "stages"))),
        )


def _by(extents: Iterable[int]) -> str:
    return "x".join(map(str, extents))


@lru_cache(_MOST_KEPT)
def _spelled_out(form: Canonical, precision: str, outputs: int) -> Workload | None:
    """The workload of a form; None if none has dimensions for all of its addresses."""
    try:
        made = spelled_out(form.memory, form.lines, outputs)
        return Workload(_name(form), made.inputs, made.stages, precision, (), made.outputs, made.strides)
    except (InputError, UnspellableError):
        return None


def _name(form: Canonical) -> str:
    return "_".join([*(form.family.split() or ["pointwise"]), *("x".join(map(str, form.shapes[0])),)])
