"""Launches compiled CUDA kernels through the driver API: no C compiler, no runtime of the language they came from.

Everything that stays the same from call to call is laid out once. A call writes the addresses of its tensors into an
array that the driver reads kernel parameters from, and launches.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from cuda.bindings import driver

from autosched.backends.backend import LoadError
from autosched.backends.cuda_kernel import CudaKernel
from search_spaces import TileProgram

_SUCCESS = driver.CUresult.CUDA_SUCCESS
_WARP_SIZE = 32
_POINTER_BYTES = 8
# Kernels are compiled to load up to 16 bytes at once from where a buffer starts.
_ALIGNMENT_BYTES = 16
# More dynamic shared memory than this has to be asked for (CUDA programming guide, "Shared Memory" of 7.x and later).
_SHARED_WITHOUT_ASKING = 48 * 1024
# Clusters of more blocks than this are not portable, and have to be allowed (same guide, "Thread Block Clusters").
_PORTABLE_CLUSTER = 8


@dataclass(frozen=True)
class _Step:
    """One kernel launch: `parameters` is the address of an array of pointers to the values of its parameters."""

    function: Any
    launch: Any
    parameters: int


class CudaLauncher:
    """The kernels of a tile program on torch's current device; runs them on torch's current stream there.

    A call allocates nothing and waits for nothing, so a CUDA graph can capture it; the launcher, whose code and
    workspaces the graph then uses, must outlive it. Not for use by two threads at once.
    """

    def __init__(self, program: TileProgram, cubins: Sequence[bytes], kernels: Sequence[CudaKernel]) -> None:
        """Load the cubins and allocate workspaces.

        Raises:
            LoadError: the device refuses a cubin or has too little memory.
        """
        # Any call of torch's runtime makes the device's primary context current in this thread.
        torch.cuda.synchronize()
        self._device = torch.cuda.current_device()
        (self._context,) = _loaded(driver.cuCtxGetCurrent())
        self._arguments = tuple(b for b in program.buffers if b.role != "workspace")
        self._modules: list[Any] = []
        self._stream = 0
        try:
            self._workspaces = {b.name: _allocate(b.bytes) for b in program.buffers if b.role == "workspace"}
            self._scratch = [_allocate(k.scratch_bytes * k.programs * k.num_ctas) for k in kernels]
            self._prepare(program, cubins, kernels)
        except BaseException:
            self.unload()
            raise

    def __call__(self, buffers: Sequence[torch.Tensor]) -> None:
        """Enqueue every kernel. `buffers`: contiguous tensors, the inputs in order and then the output.

        Raises:
            RuntimeError: a buffer is on another device or starts at an odd address, or the driver reports an error,
                which may be that of a kernel launched earlier.
        """
        if not self._modules:
            raise RuntimeError("this launcher was unloaded; load the artefact again")
        self._set_addresses(buffers)
        stream = torch.cuda.current_stream(self._device).cuda_stream
        if stream != self._stream:
            self._set_stream(stream)
        for address, size in self._zeroed:
            _launched(driver.cuMemsetD8Async(self._values[address], 0, size, stream))
        for step in self._steps:
            (status,) = driver.cuLaunchKernelEx(step.launch, step.function, step.parameters, 0)
            if status != _SUCCESS:
                self._launch_again(step, status)

    def unload(self) -> None:
        """Give back code and workspaces, once the kernels in flight are done."""
        modules, self._modules = self._modules, []
        self._workspaces, self._scratch = {}, []
        for module in modules:
            # After a fault on the device nothing can be unloaded any more; the process's end does it.
            driver.cuModuleUnload(module)

    def _prepare(self, program: TileProgram, cubins: Sequence[bytes], kernels: Sequence[CudaKernel]) -> None:
        """Lay out parameter values (buffers in order, then null, then each kernel's scratch) and load every kernel."""
        names = [b.name for b in self._arguments] + list(self._workspaces)
        slot = {name: i for i, name in enumerate(names)}
        null = len(names)
        self._values = (ctypes.c_uint64 * (null + 1 + len(kernels)))()
        for name, workspace in self._workspaces.items():
            self._values[slot[name]] = workspace.data_ptr()
        for i, scratch in enumerate(self._scratch):
            self._values[null + 1 + i] = scratch.data_ptr()
        self._zeroed = tuple((slot[name], program.buffer(name).bytes) for name in program.zeroed)
        self._pointers: list[Any] = []
        self._steps: list[_Step] = []
        for i, (cubin, kernel) in enumerate(zip(cubins, kernels, strict=True)):
            hidden = [null + 1 + i, *[null] * kernel.hidden_parameters][: kernel.hidden_parameters]
            self._pointers.append(self._point_to([*(slot[a] for a in kernel.arguments), *hidden]))
            function = self._load_function(cubin, kernel)
            self._steps.append(_Step(function, _launch_of(kernel), ctypes.addressof(self._pointers[-1])))

    def _point_to(self, slots: list[int]) -> Any:
        """An array of pointers to these slots of `_values`, as the driver wants kernel parameters."""
        first = ctypes.addressof(self._values)
        return (ctypes.c_void_p * len(slots))(*(first + _POINTER_BYTES * s for s in slots))

    def _load_function(self, cubin: bytes, kernel: CudaKernel) -> Any:
        (device,) = _loaded(driver.cuCtxGetDevice())
        optin = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        (limit,) = _loaded(driver.cuDeviceGetAttribute(optin, device))
        if kernel.shared_bytes > limit:
            raise LoadError(f"{kernel.name} needs {kernel.shared_bytes} bytes of shared memory; the device has {limit}")
        (module,) = _loaded(driver.cuModuleLoadData(cubin))
        self._modules.append(module)
        (function,) = _loaded(driver.cuModuleGetFunction(module, kernel.name.encode()))
        attribute = driver.CUfunction_attribute
        threads = kernel.num_warps * _WARP_SIZE
        (most,) = _loaded(driver.cuFuncGetAttribute(attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function))
        if threads > most:
            raise LoadError(f"{kernel.name} needs {threads} threads per block; its registers allow {most}")
        if kernel.shared_bytes > _SHARED_WITHOUT_ASKING:
            dynamic = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _loaded(driver.cuFuncSetAttribute(function, dynamic, kernel.shared_bytes))
        if kernel.num_ctas > _PORTABLE_CLUSTER:
            large = attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            _loaded(driver.cuFuncSetAttribute(function, large, 1))
        return function

    def _set_addresses(self, buffers: Sequence[torch.Tensor]) -> None:
        for i, (buffer, tensor) in enumerate(zip(self._arguments, buffers, strict=True)):
            address = tensor.data_ptr()
            if address % _ALIGNMENT_BYTES or tensor.get_device() != self._device:
                raise RuntimeError(
                    f"{buffer.name} is on {tensor.device} at address {address:#x}; expected cuda:{self._device} "
                    f"and a multiple of {_ALIGNMENT_BYTES}"
                )
            self._values[i] = address

    def _set_stream(self, stream: int) -> None:
        for step in self._steps:
            step.launch.hStream = driver.CUstream(stream)
        self._stream = stream

    def _launch_again(self, step: _Step, status: Any) -> None:
        """A thread that never touched the device has no current context: give it ours; any other error is raised."""
        if status != driver.CUresult.CUDA_ERROR_INVALID_CONTEXT:
            _launched((status,))
        _launched(driver.cuCtxSetCurrent(self._context))
        _launched(driver.cuLaunchKernelEx(step.launch, step.function, step.parameters, 0))


def _launch_of(kernel: CudaKernel) -> Any:
    """The driver's description of a launch, on the default stream."""
    launch = driver.CUlaunchConfig()
    launch.gridDimX, launch.gridDimY, launch.gridDimZ = kernel.programs * kernel.num_ctas, 1, 1
    launch.blockDimX, launch.blockDimY, launch.blockDimZ = kernel.num_warps * _WARP_SIZE, 1, 1
    launch.sharedMemBytes = kernel.shared_bytes
    launch.hStream = driver.CUstream(0)
    launch.numAttrs = 0
    if kernel.num_ctas > 1:
        cluster = driver.CUlaunchAttribute()
        cluster.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        cluster.value.clusterDim.x = kernel.num_ctas
        cluster.value.clusterDim.y = 1
        cluster.value.clusterDim.z = 1
        launch.attrs = [cluster]
        launch.numAttrs = 1
    return launch


def _allocate(size: int) -> torch.Tensor:
    try:
        return torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        raise LoadError(f"no {size} bytes of device memory for a workspace") from error


def _loaded(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a driver call returned beside its status; LoadError when the status is one of failure."""
    status, *values = result
    if status != _SUCCESS:
        raise LoadError(_name(status))
    return tuple(values)


def _launched(result: tuple[Any, ...]) -> None:
    (status,) = result
    if status != _SUCCESS:
        raise RuntimeError(_name(status))


def _name(status: Any) -> str:
    """`CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered`."""
    _, text = driver.cuGetErrorString(status)
    return f"{status.name}: {text.decode()}" if text else str(status.name)
