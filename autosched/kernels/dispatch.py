"""Dispatch of a kernel's call to generated code, at little cost.

There are two paths. The fast one is for tensors that generated code can take as they are: one closure, built when the
kernel is loaded. Of every tensor it reads type, dtype, shape, layout, device, gradient flag and address, and nothing
twice; it allocates the outputs, and passes bare addresses to the launcher, which has prepared everything else. PyTorch
answers a read in C; a generator, a lambda or a Python function per tensor would cost as much as several, so there are
none. If anything is not as expected the closure returns None before it has done anything, and `Kernel` takes the slow
path, which copies what can be copied, and reports what cannot.

`backends/gpu/launch.py` calls the driver; `torch_internals.py` has the private functions of PyTorch used here, and the
reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn import Parameter

from autosched.machine.memory import memory_for
from autosched.machine.torch_internals import allocator
from search_spaces import InputError
from search_spaces.workloads.workload import Tensor as TensorSpec

# A kernel's result: a tensor, or a tuple of them for a workload with several outputs.
Made = Tensor | tuple[Tensor, ...]
# Runs generated code on the addresses of the inputs and then of the outputs.
Launch = Callable[[Sequence[int]], None]
# Takes the tensors, `out` and a launch; returns the result, or None if one of them needs a closer look.
ReadyCall = Callable[[Sequence[Tensor], Made | None, Launch], Made | None]


def as_tuple(made: Made) -> tuple[Tensor, ...]:
    """One or several tensors, as a tuple."""
    return made if isinstance(made, tuple) else (made,)


# Requirements for using a tensor as it is: element type, shape, and strides if it is not contiguous.
Expected = tuple[torch.dtype, torch.Size, tuple[int, ...] | None]


class Argument:
    """Requirements on one tensor of a call, and its allocation."""

    def __init__(self, tensor: TensorSpec, device: torch.device, alignment: int) -> None:
        """`alignment`: generated code needs the address to be a multiple of so many bytes."""
        self.name = tensor.name
        self.shape = torch.Size(tensor.shape)
        self.strides = tensor.effective_strides
        self.dense = tensor.strides is None
        self.dtype: torch.dtype = getattr(torch, tensor.dtype)
        self.device = device
        self.alignment = alignment
        self.span_bytes = tensor.span * self.dtype.itemsize
        self.empty = allocator(self.shape, self.strides, self.dtype, device)

    @property
    def expected(self) -> Expected:
        return self.dtype, self.shape, None if self.dense else self.strides

    @property
    def description(self) -> str:
        strides = "" if self.dense else f" with strides {list(self.strides)}"
        return f"{self.name}{list(self.shape)} {str(self.dtype).removeprefix('torch.')}{strides}"

    def check(self, tensor: Tensor) -> None:
        """Raise InputError for a tensor that no copy can mend."""
        if not isinstance(tensor, Tensor):
            raise InputError(f"{self.name}: expected a torch.Tensor ({self.description}), got {type(tensor).__name__}")
        self.check_kind(tensor)
        self._expect("device", self.device, tensor.device)
        self._expect("layout", torch.strided, tensor.layout)
        for dim, (size, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            if stride == 0 and size > 1 and tensor.stride(dim) != 0:
                raise InputError(
                    f"{self.name}: stride {tensor.stride(dim)} in dimension {dim}, whose elements this kernel assumes "
                    f"to be the same ones; expected stride 0, as of tensor.expand({list(self.shape)})"
                )

    def check_kind(self, tensor: Tensor) -> None:
        """Raise InputError unless shape and dtype are right and no gradient is requested; fake tensors will do."""
        # Not as lists yet: the sizes of a traced tensor are symbols, and comparing lists would specialise them to
        # numbers.
        if tensor.shape != self.shape:
            self._expect("shape", list(self.shape), list(tensor.shape))
        self._expect("dtype", self.dtype, tensor.dtype)
        self.check_gradient(tensor)

    def check_gradient(self, tensor: Tensor) -> None:
        """Raise InputError if a gradient is requested of the tensor."""
        if tensor.requires_grad and torch.is_grad_enabled():
            raise InputError(
                f"{self.name} requires a gradient, and kernels compute forward only; "
                f"pass {self.name}.detach(), call under torch.no_grad(), or trace a function with backward=True"
            )

    def _expect(self, what: str, expected: object, got: object) -> None:
        if expected != got:
            raise InputError(f"{self.name}: {what} {got}, expected {expected}; this kernel takes {self.description}")

    def is_ready(self, tensor: Tensor) -> bool:
        """True if generated code can take a tensor that passed `check` as it is."""
        # The stride of a dimension of size 1 is never used, and may be anything.
        layout = zip(self.shape, self.strides, tensor.stride(), strict=True)
        return all(size == 1 or want == got for size, want, got in layout) and tensor.data_ptr() % self.alignment == 0

    def usable(self, tensor: Tensor) -> Tensor:
        """The tensor, or an aligned copy of it with the right strides. Raises OutOfMemoryError."""
        if self.is_ready(tensor):
            return tensor
        copy = self.allocated()
        # Elements that share memory are written once.
        once = tuple(slice(1) if stride == 0 else slice(None) for stride in self.strides)
        copy[once].copy_(tensor[once])
        return copy

    def allocated(self) -> Tensor:
        """Memory for it. Raises OutOfMemoryError, which names the request."""
        try:
            return self.empty()
        except RuntimeError:
            # Only now, because querying free memory takes longer than many a kernel.
            with memory_for(f"the elements of {self.description}", self.span_bytes, self.device):
                return self.empty()


def ready_addresses(
    given: Sequence[Tensor], expected: Sequence[Expected], device: torch.device, alignment: int
) -> list[int] | None:
    """Addresses of the tensors, if all of them can be taken as they are; None if one needs a closer look."""
    if len(given) != len(expected):
        return None
    addresses: list[int] = []
    try:
        for number, (dtype, shape, strides) in enumerate(expected):
            tensor = given[number]
            # The attributes of other subclasses may mean anything.
            if type(tensor) is not Tensor and type(tensor) is not Parameter:
                return None
            if (
                tensor.dtype is not dtype
                or tensor.shape != shape
                or (not tensor.is_contiguous() if strides is None else tensor.stride() != strides)
                or tensor.device != device
                or (tensor.requires_grad and torch.is_grad_enabled())
            ):
                return None
            address = tensor.data_ptr()
            if address % alignment:
                return None
            addresses.append(address)
    except RuntimeError:
        # Sparse tensors have no strides, and those within a functorch transform no address.
        return None
    return addresses


def is_handled_elsewhere(tensor: object) -> bool:
    """True if a tensor's class defines the effect of operators itself, as those of tensors without data do."""
    return isinstance(tensor, Tensor) and type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__


def check_transforms(arguments: Sequence[Argument], tensors: Sequence[Tensor]) -> None:
    """Raise InputError for a tensor within torch.vmap, jvp or the like, which represents others and has no memory."""
    for argument, tensor in zip(arguments, tensors, strict=False):
        if isinstance(tensor, Tensor) and is_functorch_wrapped_tensor(tensor):
            argument.check_gradient(tensor)
            raise InputError(
                f"{argument.name} stands for other tensors within a transform such as torch.vmap, which does not reach "
                "into kernels; expected a tensor of its own: trace what the transform makes of the function instead, "
                "as by trace(torch.vmap(function), …)"
            )


def ready_call(inputs: Sequence[Argument], outputs: Sequence[Argument]) -> ReadyCall:
    """The fast path of a call.

    For a dense tensor `is_contiguous` is cheaper than comparing strides.
    """
    # Most kernels have one output: their path is as short as if there were no others.
    return _ready_call_of_one(inputs, outputs[0]) if len(outputs) == 1 else _ready_call(inputs, outputs)


def _ready_call_of_one(inputs: Sequence[Argument], output: Argument) -> ReadyCall:
    of_inputs = tuple(a.expected for a in inputs)
    of_all = (*of_inputs, output.expected)
    spans, out_span = tuple(a.span_bytes for a in inputs), output.span_bytes
    device, alignment, empty = output.device, output.alignment, output.empty

    def call(tensors: Sequence[Tensor], out: Made | None, launch: Launch) -> Made | None:
        if out is None:
            addresses = ready_addresses(tensors, of_inputs, device, alignment)
        else:
            # A tuple is no tensor, and found not ready there; a test here would cost every call.
            given = (*tensors, cast(Tensor, out))
            addresses = ready_addresses(given, of_all, device, alignment)
        if addresses is None:
            return None
        if out is None:
            try:
                out = empty()
            except RuntimeError:
                out = output.allocated()
            addresses.append(out.data_ptr())
        else:
            begin = addresses[-1]
            end = begin + out_span
            for number, span in enumerate(spans):
                if addresses[number] < end and begin < addresses[number] + span:
                    return None
        launch(addresses)
        return out

    return call


def _ready_call(inputs: Sequence[Argument], outputs: Sequence[Argument]) -> ReadyCall:
    """The fast path for several outputs."""
    of_inputs = tuple(a.expected for a in inputs)
    of_all = (*of_inputs, *(o.expected for o in outputs))
    spans, first_output, count = tuple(a.span_bytes for a in (*inputs, *outputs)), len(inputs), len(outputs)
    device, alignment = outputs[0].device, outputs[0].alignment

    def call(tensors: Sequence[Tensor], out: Made | None, launch: Launch) -> Made | None:
        if out is None:
            addresses = ready_addresses(tensors, of_inputs, device, alignment)
            if addresses is None:
                return None
            results = []
            for output in outputs:
                result = output.allocated()
                results.append(result)
                addresses.append(result.data_ptr())
            out = tuple(results)
        else:
            if type(out) is not tuple or len(out) != count:
                return None
            addresses = ready_addresses((*tensors, *out), of_all, device, alignment)
            if addresses is None or _overlapping(addresses, spans, first_output):
                return None
        launch(addresses)
        return out

    return call


def _overlapping(addresses: Sequence[int], spans: Sequence[int], first_output: int) -> bool:
    """True if an output (addresses from `first_output` on) shares memory with an input or an earlier output."""
    for number in range(first_output, len(addresses)):
        begin = addresses[number]
        end = begin + spans[number]
        for before in range(number):
            if addresses[before] < end and begin < addresses[before] + spans[before]:
                return True
    return False
