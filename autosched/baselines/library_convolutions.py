"""Convolutions by PyTorch and its libraries, cuDNN and oneDNN, in each of the ways in which a user may ask for one.

cuDNN's heuristic may be several times slower than the algorithm that `torch.backends.cudnn.benchmark` finds, and what
it is fast at depends on the memory format; so the library is the fastest of all ways. Tensors are in the format of the
way before it is called, or are converted by its call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from autosched.baselines.chains import chained, chained_into
from autosched.machine.element_types import torch_dtype
from search_spaces import Workload
from search_spaces.ops.conv import Window
from search_spaces.workloads.dtypes import FLOAT8, is_integer

Call = Callable[[], Tensor]
# Takes the operands, in the memory format of the way.
Way = Callable[[Sequence[Tensor]], Tensor]
# Takes a tensor to another memory format.
Convert = Callable[[Tensor], Tensor]
P = ParamSpec("P")
T = TypeVar("T")

# Narrower elements have no tf32.
_TF32_BYTES = 4
_CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
# Epilogues of cuDNN's that PyTorch has functions for.
_FUSED_BY_CUDNN = (("relu",), ("bias", "relu"), ("residual", "relu"), ("bias", "residual", "relu"))
# oneDNN's own epilogues, and their algorithms, as torch.compile calls them on a CPU.
_FUSED_BY_ONEDNN = {
    "relu": ("relu", ""),
    "silu": ("swish", ""),
    "gelu": ("gelu", "none"),
    "gelutanh": ("gelu", "tanh"),
    "hardswish": ("hardswish", ""),
}


@dataclass(frozen=True)
class LibraryConvolution:
    """A convolution with its epilogue: plain values, so that torch.compile follows a call.

    The call includes the first `absorbed` links. Operands that the library does not convolve are converted to the type
    `widened`; results are of the type `made`, that layout and shape, which may have a dimension for the groups.
    """

    links: tuple[str, ...]
    scale: float
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...] | Literal["same"]
    dilation: tuple[int, ...]
    groups: int
    absorbed: int
    widened: torch.dtype | None
    made: torch.dtype
    shape: tuple[int, ...]
    out_layout: str

    @staticmethod
    def of(workload: Workload, links: tuple[str, ...], scale: float) -> LibraryConvolution:
        """The convolution of an `ops.conv`."""
        given, (x, w, *_), (out,) = dict(workload.arguments), workload.inputs, workload.outputs
        names = ("size", "kernel", "stride", "padding", "dilation")
        window = Window.of(**{name: str(given[name]) for name in names if name in given})
        widened = torch.bfloat16 if x.dtype in FLOAT8 else torch.float32 if is_integer(x.dtype) else None
        return LibraryConvolution(
            links=links,
            scale=scale,
            kernel=window.kernel,
            stride=window.stride,
            # Where the sides differ, PyTorch has no numbers for it.
            padding=window.before if window.before == window.after else "same",
            dilation=window.dilation,
            groups=x.shape[1] // w.shape[1],
            # A bias of the operands' type.
            absorbed=int(links[:1] == ("bias",) and x.dtype == out.dtype and widened is None),
            widened=widened,
            made=torch_dtype(out.dtype),
            shape=out.shape,
            out_layout=str(given.get("out_layout", given["layout"])),
        )

    @property
    def called(self) -> str:
        """The function that a user calls."""
        return f"F.conv{len(self.kernel)}d"

    def eager(self, x: Tensor, w: Tensor, *extra: Tensor) -> Tensor:
        """The form that a user writes; its result is allocated, in the library's memory format."""
        made = self._convolved(x, w, extra)
        after = chained(made, self.links[self.absorbed :], self._broadcast(extra[self.absorbed :]), self.scale)
        return self._shaped(after.to(self.made))

    def ways(self, inputs: Sequence[Tensor]) -> Mapping[str, Call]:
        """Calls on these tensors, by name; each allocates its result, and passes over it as seldom as it can.

        A library may refuse some, by a RuntimeError.
        """
        found: dict[str, Call] = {}
        for name, converted in _FORMATS.items():
            given = [converted(t) for t in inputs]
            found |= {f"{name}{way}": partial(self._called, call, given) for way, call in self._ways(given)}
        return found

    def converting_ways(self, inputs: Sequence[Tensor]) -> Mapping[str, Call]:
        """The same from and to the given memory formats: conversions are in a call, but not those of weights."""
        x, w, *extra = inputs
        found: dict[str, Call] = {}
        for name, converted in _FORMATS.items():
            given = [x, converted(w), *extra]
            for way, call in self._ways([converted(x), *given[1:]]):
                found[name + way] = partial(self._converting, call, converted, given)
        return found

    def _called(self, call: Way, inputs: Sequence[Tensor]) -> Tensor:
        return self._shaped(call(inputs))

    def _converting(self, call: Way, converted: Convert, inputs: Sequence[Tensor]) -> Tensor:
        x, w, *extra = inputs
        return self._shaped(_FORMATS[self.out_layout](call([converted(x), w, *map(converted, extra)])))

    def _ways(self, inputs: Sequence[Tensor]) -> Iterator[tuple[str, Way]]:
        """The library's ways in the memory format of these operands, by the end of their names."""
        return self._by_cudnn(inputs[0]) if inputs[0].is_cuda else self._by_onednn(inputs)

    def _by_cudnn(self, x: Tensor) -> Iterator[tuple[str, Way]]:
        calls: dict[str, Way] = {"": self._in_place}
        same = self.made == x.dtype and self.widened is None
        if self.links in _FUSED_BY_CUDNN and self.padding != "same" and same:
            calls[", fused"] = self._fused
        for way, call in calls.items():
            yield f"{way}, benchmark", with_benchmark(call, x.element_size() < _TF32_BYTES)
            # PyTorch remembers one algorithm for what is computed, however it was chosen. Whether tf32 is allowed is
            # part of that: where it means nothing, it tells both apart.
            if x.element_size() < _TF32_BYTES:
                yield way, call

    def _by_onednn(self, inputs: Sequence[Tensor]) -> Iterator[tuple[str, Way]]:
        yield "", self._in_place
        if len(self.kernel) > 1 and self.padding != "same" and self.widened is None:
            yield ", packed", self._packed(inputs)

    def _in_place(self, inputs: Sequence[Tensor]) -> Tensor:
        """The convolution, then a pass over its result for every other link."""
        x, w, *extra = inputs
        made = self._convolved(x, w, extra)
        if made.dtype != self.made and self.links[self.absorbed :]:
            made = made.to(self.made)
        chained_into(made, made, self.links[self.absorbed :], self._broadcast(extra[self.absorbed :]), self.scale)
        return made.to(self.made)

    def _fused(self, inputs: Sequence[Tensor]) -> Tensor:
        """cuDNN's convolution, bias, addition and relu in one call."""
        x, w, *extra = inputs
        bias = extra[0] if self.links[0] == "bias" else None
        assert self.padding != "same"
        numbers = self.stride, self.padding, self.dilation
        if "residual" in self.links:
            made = torch.cudnn_convolution_add_relu(x, w, extra[-1], 1.0, bias, *numbers, self.groups)
        else:
            made = torch.cudnn_convolution_relu(x, w, bias, *numbers, self.groups)
        return made

    def _packed(self, inputs: Sequence[Tensor]) -> Way:
        """oneDNN's convolution with weights in its own layout, a bias and an activation, as torch.compile calls it."""
        x, w, *_ = inputs
        how = [list(numbers) for numbers in (self.padding, self.stride, self.dilation)]
        follows = self.links[self.absorbed :][:1]
        fused = follows[0] if follows and follows[0] in _FUSED_BY_ONEDNN else None
        attribute, algorithm = _FUSED_BY_ONEDNN[fused] if fused else ("none", "")
        packed = torch.ops.mkldnn._reorder_convolution_weight(w, *how, self.groups, list(x.shape))
        done = self.absorbed + (fused is not None)

        def call(inputs: Sequence[Tensor]) -> Tensor:
            x, _, *extra = inputs
            bias = extra[0] if self.absorbed else None
            made: Tensor = torch.ops.mkldnn._convolution_pointwise(
                x, packed, bias, *how, self.groups, attribute, [], algorithm
            )
            chained_into(made, made, self.links[done:], self._broadcast(extra[self.absorbed :]), self.scale)
            return made.to(self.made)

        return call

    def _convolved(self, x: Tensor, w: Tensor, extra: Sequence[Tensor]) -> Tensor:
        """The convolution with the links that it absorbs, in the type in which the library computes it."""
        if self.widened is not None:
            x, w = x.to(self.widened), w.to(self.widened)
        bias = extra[0] if self.absorbed else None
        return _CONVOLVE[len(self.kernel)](x, w, bias, self.stride, self.padding, self.dilation, self.groups)

    def _broadcast(self, extra: Sequence[Tensor]) -> Iterator[Tensor]:
        """The tensors of links; vectors follow the channels."""
        return (t.view(-1, *(1,) * len(self.kernel)) if t.ndim == 1 else t for t in extra)

    def _shaped(self, made: Tensor) -> Tensor:
        """A result in the shape of the workload's, which may have a dimension for the groups."""
        return made if made.ndim == len(self.shape) else made.unflatten(1, self.shape[1:3])


def with_benchmark(call: Callable[P, T], tf32: bool) -> Callable[P, T]:
    """The call with PyTorch's search among algorithms, which costs the host less than a microsecond once it has run."""

    def run(*inputs: P.args, **named: P.kwargs) -> T:
        benchmark, usual = torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32
        # PyTorch's properties refuse to be set once its own test helpers are imported.
        torch._C._set_cudnn_benchmark(True)
        torch._C._set_cudnn_allow_tf32(tf32 or usual)
        try:
            return call(*inputs, **named)
        finally:
            torch._C._set_cudnn_benchmark(benchmark)
            torch._C._set_cudnn_allow_tf32(usual)

    return run


def _channels_last(tensor: Tensor) -> Tensor:
    """The tensor with its second dimension innermost in memory: channels_last, in any number of dimensions."""
    return tensor.movedim(1, -1).contiguous().movedim(-1, 1) if tensor.ndim > 1 else tensor


_FORMATS: dict[str, Convert] = {"channels_last": _channels_last, "contiguous": Tensor.contiguous}
