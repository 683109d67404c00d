"""A tuned kernel: source text, and a callable on PyTorch tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

import search_spaces
from autosched import backends
from autosched.backends.backend import Artefact, CompileError, Launcher, LoadError
from autosched.build import build
from autosched.free_memory import memory_for
from autosched.text import duration_text
from search_spaces import AutoschedError, InputError, Schedule, Target, Workload
from search_spaces.workload import Tensor as TensorSpec
from tuning_logs import TuningRecord

# Generated code may use the widest vector loads: 64 bytes on a CPU with AVX-512, 16 on a GPU.
_ALIGNMENT = {"cpu": 64, "gpu": 16}


class Kernel:
    """The kernel of one tuning record, compiled and loaded on this machine.

    `kernel(*inputs)` returns a new tensor; `kernel(*inputs, out=tensor)` writes to `tensor` and returns it. Inputs come
    in the workload's order. One that is not contiguous or not aligned is copied first; such an `out` is written by way
    of a temporary. Forward only: nothing is recorded for autograd.
    """

    def __init__(self, record: TuningRecord, schedule: Schedule, artefact: Artefact, launcher: Launcher) -> None:
        self.record = record
        self.schedule = schedule
        self._artefact = artefact
        self._launch = launcher
        gpu = record.target.kind == "gpu"
        device = torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
        alignment = _ALIGNMENT[record.target.kind]
        self._inputs = tuple(_Argument(t, device, alignment) for t in record.workload.inputs)
        self._output = _Argument(record.workload.output, device, alignment)
        self._arguments = (*self._inputs, self._output)

    @property
    def workload(self) -> Workload:
        return self.record.workload

    @property
    def target(self) -> Target:
        return self.record.target

    @property
    def device(self) -> torch.device:
        """Where its tensors live."""
        return self._output.device

    @property
    def output_dtype(self) -> torch.dtype:
        return self._output.dtype

    @property
    def source(self) -> str:
        """The generated source text, byte for byte what was tuned."""
        return self._artefact.source

    def __repr__(self) -> str:
        tuned = f"tuned to {duration_text(self.record.measurement.latency_s)}"
        return f"<Kernel {self.workload.label} on {self.target.device}, {tuned}: {self.schedule.one_line}>"

    def __call__(self, *tensors: Tensor, out: Tensor | None = None) -> Tensor:
        """The output of the workload; `out` when that is given.

        Raises:
            OutOfMemoryError: there is no memory for the output, or for the copy of an input.
            InputError: number, shape, dtype or device of the tensors is not the workload's; `out` overlaps an input; or
                an input requires a gradient. Nothing was written.
        """
        result = self._output.allocated() if out is None else out
        buffers = (*tensors, result)
        if not self._is_ready(buffers) or (out is not None and self._overlaps(buffers)):
            return self._call_with_copies(tensors, result)
        self._launch(buffers)
        return result

    def _is_ready(self, buffers: Sequence[Tensor]) -> bool:
        """Whether generated code can take inputs and output as they are: the quick test of every call."""
        if len(buffers) != len(self._arguments):
            return False
        grad = torch.is_grad_enabled()
        return all(argument.is_ready(tensor, grad) for tensor, argument in zip(buffers, self._arguments, strict=True))

    def _overlaps(self, buffers: Sequence[Tensor]) -> bool:
        """Whether the last of these buffers, all of them ready, shares memory with another."""
        *inputs, out = buffers
        start = out.data_ptr()
        end = start + out.nbytes
        for tensor in inputs:
            first = tensor.data_ptr()
            if first < end and start < first + tensor.nbytes:
                return True
        return False

    def _call_with_copies(self, tensors: Sequence[Tensor], out: Tensor) -> Tensor:
        """The same for tensors that need a closer look: raise, or copy what the code cannot take as it is."""
        if len(tensors) != len(self._inputs):
            names = ", ".join(a.description for a in self._inputs)
            raise InputError(f"{self.workload.name} takes {len(self._inputs)} tensors ({names}), got {len(tensors)}")
        for tensor, argument in zip(tensors, self._inputs, strict=True):
            argument.check(tensor)
        self._output.check(out)
        _check_output(out, self._output.name, [a.name for a in self._inputs], tensors)
        inputs = [a.usable(t) for a, t in zip(self._inputs, tensors, strict=True)]
        if self._output.is_ready(out, torch.is_grad_enabled()):
            self._launch((*inputs, out))
        else:
            result = self._output.allocated()
            self._launch((*inputs, result))
            out.copy_(result)
        return out


class _Argument:
    """What one tensor of a call must be."""

    def __init__(self, tensor: TensorSpec, device: torch.device, alignment: int) -> None:
        self.name = tensor.name
        self.shape = torch.Size(tensor.shape)
        self.dtype: torch.dtype = getattr(torch, tensor.dtype)
        self.device = device
        self._alignment = alignment

    @property
    def description(self) -> str:
        return f"{self.name}{list(self.shape)} {str(self.dtype).removeprefix('torch.')}"

    def is_ready(self, tensor: Tensor, grad: bool) -> bool:
        """Whether generated code can take the tensor as it is; `grad`: whether gradients are being recorded."""
        return (
            isinstance(tensor, Tensor)
            and tensor.shape == self.shape
            and tensor.dtype is self.dtype
            and tensor.device == self.device
            and tensor.layout is torch.strided
            and tensor.is_contiguous()
            and not (grad and tensor.requires_grad)
            and tensor.data_ptr() % self._alignment == 0
        )

    def check(self, tensor: Tensor) -> None:
        """Raise InputError for what no copy can mend."""
        if not isinstance(tensor, Tensor):
            raise InputError(f"{self.name}: expected a torch.Tensor ({self.description}), got {type(tensor).__name__}")
        for what, expected, got in (
            ("shape", list(self.shape), list(tensor.shape)),
            ("dtype", self.dtype, tensor.dtype),
            ("device", self.device, tensor.device),
            ("layout", torch.strided, tensor.layout),
        ):
            if expected != got:
                raise InputError(
                    f"{self.name}: {what} {got}, expected {expected}; this kernel takes {self.description}"
                )
        if tensor.requires_grad and torch.is_grad_enabled():
            raise InputError(
                f"{self.name} requires a gradient, and kernels compute forward only; "
                f"pass {self.name}.detach(), or call under torch.no_grad()"
            )

    def usable(self, tensor: Tensor) -> Tensor:
        """The tensor, or a contiguous and aligned copy of it."""
        if self.is_ready(tensor, torch.is_grad_enabled()):
            return tensor
        return self.allocated().copy_(tensor)

    def allocated(self) -> Tensor:
        """Memory for it. Raises OutOfMemoryError, which names what was asked for."""
        try:
            return torch.empty(self.shape, dtype=self.dtype, device=self.device)
        except RuntimeError:
            # Only now, because to ask what is free takes longer than many a kernel.
            needed = self.shape.numel() * self.dtype.itemsize
            with memory_for(f"the elements of {self.description}", needed, self.device):
                return torch.empty(self.shape, dtype=self.dtype, device=self.device)


def _span(tensor: Tensor) -> tuple[int, int]:
    """First byte and the byte after the last of what the tensor covers in memory."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (reach + 1) * tensor.element_size()


def _overlap(a: Tensor, b: Tensor) -> bool:
    (first, first_end), (second, second_end) = _span(a), _span(b)
    return first < second_end and second < first_end


def _check_output(out: Tensor, name: str, input_names: Sequence[str], inputs: Sequence[Tensor]) -> None:
    if any(stride == 0 and size > 1 for size, stride in zip(out.shape, out.stride(), strict=True)):
        raise InputError(f"{name}: strides {out.stride()} place several elements in one; expected a tensor of its own")
    for input_name, tensor in zip(input_names, inputs, strict=True):
        if _overlap(tensor, out):
            raise InputError(f"{name} overlaps {input_name} in memory; expected memory of its own, such as out=None")


def load_kernel(record: TuningRecord) -> Kernel:
    """Build the kernel of a record on this machine: lower, print, compile, load; nothing is searched.

    Raises:
        InputError: the schedule is not of the search space that this version derives for the workload.
        AutoschedError: it cannot be compiled or loaded here; the message is the compiler's or the driver's.
    """
    space = search_spaces.build(record.workload, record.target)
    schedule = space.bind(record.schedule)
    backend = backends.for_target(record.target)
    try:
        artefact = build(schedule, record.target, backend)
        launcher = backend.load(artefact, schedule.program)
    except (CompileError, LoadError) as error:
        raise AutoschedError(f"{record.workload.label}: the kernel cannot be built here: {error}") from error
    return Kernel(record, schedule, artefact, launcher)
