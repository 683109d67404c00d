"""Convolutions by one call of cuDNN or oneDNN, with a bias, and of cuDNN with a residual or a relu, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from autosched.baselines.product_calls import Compute
from autosched.baselines.strided_operands import Operand, Placed, Steps, View, by_steps, extent_of
from autosched.baselines.sums_of_products import SumOfProducts
from search_spaces import Workload
from search_spaces.workloads.expressions.expression import Access
from search_spaces.workloads.expressions.walking import variables

_MOST_DIMENSIONS = 3


@dataclass(frozen=True)
class _Dimension:
    """One dimension of the image: its axis of the output, size and elements from one position to the next, and the
    window; `tap`: the axis of the kernel, "" where that has one position.
    """

    axis: str
    size: int
    memory: int
    stride: int
    padding: int
    dilation: int = 1
    tap: str = ""

    def fits(self, extents: Mapping[str, int]) -> bool:
        """True if PyTorch's result has this axis' extent."""
        reach = self.dilation * (extents.get(self.tap, 1) - 1)
        made = (self.size + 2 * self.padding - reach - 1) // self.stride + 1
        return self.padding >= 0 and self.stride > 0 and self.dilation > 0 and made == extents[self.axis]


def convolution_call(workload: Workload, on_gpu: bool) -> Compute | None:
    """The workload by a convolution of one to three dimensions, or None."""
    form = SumOfProducts.of(workload)
    if form is None:
        return None
    for image, weights in ((form.a, form.b), (form.b, form.a)):
        if image.fill in (None, 0) and (made := _convolving(form, image, weights, on_gpu)) is not None:
            return made
    return None


def _convolving(form: SumOfProducts, image: Access, weights: Access, on_gpu: bool) -> Compute | None:
    windows, w = _windows(form, image, weights), Operand.of(form.workload, weights)
    plain = _plain(form, image, {d.axis for d in windows or ()})
    if windows is None or w is None or plain is None:
        return None
    extents = dict(form.extents)
    # Images follow one another; along other axes the kernel has one position.
    batch, dimensions = _dimensions(form.only_in(image, weights), windows, plain.steps, extents)
    filters, groups = by_steps(form.only_in(weights, image), w.steps), by_steps(form.in_both, w.steps)
    channels = by_steps([x for x in form.reduced if x not in {d.tap for d in dimensions}], w.steps)
    all_filters = [*groups, *filters]
    whole = {*batch, *(d.axis for d in dimensions), *all_filters} == {*form.axes} and {*channels} <= variables(image)
    if not whole or not 0 < len(dimensions) <= _MOST_DIMENSIONS or not all(d.fits(extents) for d in dimensions):
        return None
    sizes = {**extents, **{d.axis: d.size for d in dimensions}}
    inner = Operand(plain.number, {**plain.steps, **{d.axis: d.memory for d in dimensions}}, plain.offset)
    x = inner.view(sizes, [batch, [*groups, *channels], *([d.axis] for d in dimensions)])
    filtered = w.view(extents, [all_filters, channels, *([d.tap] if d.tap else [] for d in dimensions)])
    shape = [batch, all_filters, *([d.axis] for d in dimensions)]
    placed = Placed.of(form.workload, shape)
    if x is None or filtered is None or placed is None:
        return None
    added = _added(form, all_filters, shape)
    if added is None:
        return None
    return _Convolution(
        *(x, filtered, *added, placed),
        [d.stride for d in dimensions],
        [d.padding for d in dimensions],
        [d.dilation for d in dimensions],
        extent_of(groups, extents),
        form.relu,
        form.workload.precision == "tf32",
    ).call(on_gpu)


def _windows(form: SumOfProducts, image: Access, weights: Access) -> list[_Dimension] | None:
    """The dimensions of the image that a window moves in; None where an index is none of a window."""
    tensor = next(t for t in form.workload.inputs if t.name == image.tensor)
    found = []
    indices = map(form.moving, image.index)
    for index, size, memory in zip(indices, tensor.shape, tensor.effective_strides, strict=True):
        moving = [v for v in index.axes if v in form.axes and v not in variables(weights)]
        taps = [v for v in index.axes if v in form.reduced]
        if len(moving) == 1 and not index.is_axis:
            if len(taps) > 1 or len(index.axes) > 1 + len(taps):
                return None
            (axis,), tap = moving, taps[0] if taps else ""
            spread = index.step(tap) if tap else 1
            found.append(_Dimension(axis, size, memory, index.step(axis), -index.offset, spread, tap))
    moving_along = [*(d.axis for d in found), *(d.tap for d in found if d.tap)]
    return found if len({*moving_along}) == len(moving_along) else None


def _dimensions(
    moved: Sequence[str], windows: Sequence[_Dimension], steps: Steps, extents: Mapping[str, int]
) -> tuple[list[str], list[_Dimension]]:
    """The axis of the batch, if there is one, and all dimensions of the image, outermost first."""
    batch, *others = by_steps([x for x in moved if x not in {d.axis for d in windows}], steps) or [""]
    points = [_Dimension(x, extents[x], steps[x], 1, 0) for x in others]
    return [batch] if batch else [], sorted([*windows, *points], key=lambda d: -d.memory)


def _plain(form: SumOfProducts, image: Access, moved: set[str]) -> Operand | None:
    """The image by the axes that no window moves along; None where one of these is filled, or is no plain axis."""
    number = next(n for n, t in enumerate(form.workload.inputs) if t.name == image.tensor)
    tensor = form.workload.inputs[number]
    steps, offset = dict[str, int](), 0
    indices = map(form.moving, image.index)
    for index, size, stride in zip(indices, tensor.shape, tensor.effective_strides, strict=True):
        if index.is_axis and form.extents[index.axis] == size:
            steps[index.axis] = stride
        elif not index.terms and 0 <= index.offset < size:
            offset += index.offset * stride
        elif not moved & {*index.axes}:
            return None
    # A diagonal moves along two dimensions at once.
    return Operand(number, steps, offset) if moved.isdisjoint(steps) else None


def _added(
    form: SumOfProducts, filters: list[str], shape: Sequence[list[str]]
) -> tuple[View | None, View | None] | None:
    """Bias and residual; None where something else is added."""
    bias: View | None = None
    residual: View | None = None
    for access in form.addends:
        operand = Operand.of(form.workload, access)
        if operand is None:
            return None
        if {x for x, step in operand.steps.items() if step and form.extents[x] > 1} <= {*filters} and bias is None:
            bias = operand.view(form.extents, [filters])
            if bias is None or not bias.strides[0]:
                return None
        elif residual is None:
            residual = operand.view(form.extents, shape)
            if residual is None:
                return None
        else:
            return None
    return bias, residual


@dataclass(frozen=True)
class _Convolution:
    """Views of the operands, and the arguments of PyTorch's functions."""

    x: View
    w: View
    bias: View | None
    residual: View | None
    placed: Placed
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int
    relu: bool
    tf32: bool

    def call(self, on_gpu: bool) -> Compute | None:
        """The convolution with all that is added to it in one call; None where the library has none."""
        if not self.relu and self.residual is None:
            return self._plain
        # oneDNN's call with a relu makes NaN 0, and one with a residual rounds twice in bfloat16.
        return self._by_cudnn if self.relu and on_gpu else None

    def _given(self, tensors: Sequence[Tensor], begins: Sequence[int]) -> list[Tensor | None]:
        views = (self.x, self.w, self.bias, self.residual)
        return [None if view is None else view.of(tensors, begins) for view in views]

    def _plain(self, tensors: Sequence[Tensor], begins: Sequence[int]) -> Tensor:
        x, w, bias, _ = self._given(tensors, begins)
        # cuDNN's heuristic may be several times slower than what its search finds.
        search, deterministic = True, torch.backends.cudnn.deterministic
        numbers = self.stride, self.padding, self.dilation, False, [0] * len(self.stride), self.groups
        made = torch.ops.aten._convolution(x, w, bias, *numbers, search, deterministic, True, self.tf32)
        return self.placed.written_by(made)

    def _by_cudnn(self, tensors: Sequence[Tensor], begins: Sequence[int]) -> Tensor:
        x, w, bias, residual = self._given(tensors, begins)
        numbers = self.stride, self.padding, self.dilation, self.groups
        if residual is None:
            made = torch.ops.aten.cudnn_convolution_relu(x, w, bias, *numbers)
        else:
            made = torch.ops.aten.cudnn_convolution_add_relu(x, w, residual, 1.0, bias, *numbers)
        return self.placed.written_by(made)
