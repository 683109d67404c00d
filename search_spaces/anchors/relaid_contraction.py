"""Contractions of operands whose summed axis is no neighbour in memory: copied first with that axis innermost.

Before:  x[n, c, h, w] read at [n, c, p + r - 1, q + s - 1]             channels first: tiles are gathered
After:   grid n.0, c.0, h.0, w.0: x_relaid[n, h, w, c] = x[n, c, h, w]  a kernel of its own, at every call
         the contraction of x_relaid[n, p + r - 1, q + s - 1, c]        with all decisions that channels last have

Groups of few channels come just before these: x_relaid[n, h, w, g, c].

Rows of the copy begin at multiples of 16 bytes, so that descriptors can move boxes and windows of it, also of three
channels. The copy costs its bytes twice over, as the transpositions of cuDNN do for images with channels first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from search_spaces.anchors import contraction as anchor
from search_spaces.anchors.contractions.batch_tiles import LINE_BYTES
from search_spaces.anchors.contractions.copied_contraction import of_copies
from search_spaces.anchors.contractions.operand_copies import copying_kernel
from search_spaces.anchors.contractions.window_rows import window_rows
from search_spaces.devices.architectures import TMA
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.programs.lowering import workspace_name
from search_spaces.programs.tile_program import Buffer, Kernel
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.sketch import Sketch
from search_spaces.structure.contraction import contraction
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Expression
from search_spaces.workloads.expressions.walking import accesses, rewritten
from search_spaces.workloads.strides import dense_strides
from search_spaces.workloads.workload import Tensor, Workload

_NAME = "relaid_contraction"


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """The sketch of the contraction of copies, on a GPU."""
    if target.kind != "gpu":
        raise UnmatchedError("a CPU copies operands in boxes and panels")
    if contraction(workload) is None:
        raise UnmatchedError("its sums are no products of rows and columns over common axes")
    if rows := window_rows(workload):
        changed, turned = rows
        return of_copies(_NAME, workload, turned, anchor.derive(changed, target, offers))
    images = tuple(copy for tensor in workload.inputs if (copy := _copy(workload, tensor)))
    if not images:
        raise UnmatchedError("what it sums over are neighbours in memory, or tiles are slices without a copy")
    copies = (*images, *_copies_of_factors(workload, images))
    changed = _changed(workload, {c.tensor.name: c for c in copies})
    return of_copies(_NAME, workload, copies, anchor.derive(changed, target, offers))


@dataclass(frozen=True)
class _Copy:
    """A tensor, and the order of its dimensions in a copy."""

    workload: Workload
    tensor: Tensor
    order: tuple[int, ...]

    @property
    def made(self) -> Tensor:
        """The copy; its rows are padded to the alignment of descriptors."""
        shape = tuple(self.tensor.shape[d] for d in self.order)
        aligned = TMA.vector(dtype(self.tensor.dtype).bytes)
        strides = dense_strides((*shape[:-1], -(-shape[-1] // aligned) * aligned))
        return Tensor(workspace_name(self.workload, f"{self.tensor.name}_relaid"), shape, self.tensor.dtype, strides)

    @property
    def constant(self) -> str:
        return ""

    @property
    def workspace(self) -> Buffer:
        made = self.made
        return Buffer(made.name, made.shape, made.dtype, "workspace", made.effective_strides)

    @property
    def kernel(self) -> Kernel:
        axes = [f"d{n}" for n in range(len(self.order))]
        extents = dict(zip(axes, self.tensor.shape, strict=True))
        source = Access(self.tensor.name, tuple(map(axis_index, axes)))
        name = f"{self.workload.name}_relay_{self.tensor.name}"
        return copying_kernel(name, source, extents, self.workspace, [axis_index(axes[d]) for d in self.order])


def _copy(workload: Workload, tensor: Tensor) -> _Copy | None:
    """The copy of an input that a product reads in windows, along whose summed axis it has no neighbours."""
    read = {(a, s.reduction) for s in workload.stages for a in accesses(s.expression) if a.tensor == tensor.name}
    if tensor.constant or len(read) != 1:
        return None
    ((access, reduction),) = read
    summed = {x.name: x.extent for x in reduction.axes} if reduction else {}
    if access.fill is None and all(i.is_axis for i in access.index):
        return None
    channels = [d for d, i in enumerate(access.index) if i.is_axis and i.axis in summed]
    if not channels:
        return None
    last = max(channels, key=lambda d: summed[access.index[d].axis])
    rows = tensor.shape[last] * dtype(tensor.dtype).bytes
    if last == len(tensor.shape) - 1 and tensor.effective_strides[last] == 1 and rows % TMA.alignment_bytes == 0:
        return None
    inner = [*(_batch(workload, access, summed) if rows < LINE_BYTES else ()), last]
    return _Copy(workload, tensor, (*(d for d in range(len(tensor.shape)) if d not in inner), *inner))


def _batch(workload: Workload, access: Access, summed: Collection[str]) -> list[int]:
    """The dimensions along which products are a batch: rows of several that are short are then whole lines."""
    product = next(s.expression for s in workload.stages if access in accesses(s.expression))
    others = {v for a in accesses(product) if a.tensor != access.tensor for i in a.index for v in i.axes}
    return [d for d, i in enumerate(access.index) if i.is_axis and i.axis in others and i.axis not in summed]


def _copies_of_factors(workload: Workload, images: Sequence[_Copy]) -> Iterator[_Copy]:
    """Copies of what images are multiplied by, if its neighbours in memory are taps: descriptors move rows of channels.

    Constants are copied by the contraction itself, once.
    """
    names = {c.tensor.name for c in images}
    for stage in (s for s in workload.stages if s.reduction):
        read = {a.tensor: a for a in accesses(stage.expression)}
        summed = {read[c.tensor.name].index[c.order[-1]].axis for c in images if c.tensor.name in read}
        for tensor in workload.inputs:
            if tensor.name in names or tensor.name not in read or tensor.constant:
                continue
            index = read[tensor.name].index
            last = max((d for d, i in enumerate(index) if i.is_axis and i.axis in summed), default=-1)
            if 0 <= last < len(index) - 1 and all(i.is_axis for i in index):
                yield _Copy(workload, tensor, (*(d for d in range(len(index)) if d != last), last))


def _changed(workload: Workload, copies: Mapping[str, _Copy]) -> Workload:
    """The workload with copies in the place of these inputs."""

    def change(e: Expression) -> Expression | None:
        if not isinstance(e, Access) or e.tensor not in copies:
            return None
        copy = copies[e.tensor]
        return Access(copy.made.name, tuple(e.index[d] for d in copy.order), e.fill)

    inputs = tuple(copies[t.name].made if t.name in copies else t for t in workload.inputs)
    stages = tuple(replace(s, expression=rewritten(s.expression, change)) for s in workload.stages)
    return replace(workload, inputs=inputs, stages=stages)
