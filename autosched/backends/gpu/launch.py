"""Launches compiled CUDA kernels through the driver API: no C compiler, no runtime of the language they came from.

Everything that stays the same from call to call is laid out beforehand, as the driver reads it: descriptions of the
launches, and arrays of pointers to parameter values. A call writes the addresses of its tensors where these point, and
launches.

That memory serves one call at a time: the driver copies parameter values while it launches, and Python's lock is
released meanwhile. So a call takes such a piece from a list of idle ones, or lays out another, and puts it back; `pop`
and `append` of a list are atomic, and cheaper than a lock. Their number is the most calls that ever ran at once.

Workspaces are allocated by every call that needs them and given back when it has launched, like any temporary tensor of
PyTorch's: its allocator hands memory of a stream out again to that stream alone, whose work is in order. So calls on
several streams never share one, no memory is kept between calls, and allocations that a CUDA graph captures come from,
and stay in, that graph's own pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from cuda.bindings import driver

from autosched.backends.backend import Batch, LoadError, PlacedLaunch
from autosched.backends.gpu.kernel import CudaKernel
from autosched.backends.gpu.parameters import CallMemory, ParameterLayout
from autosched.backends.gpu.tensor_maps import driver_version
from autosched.backends.gpu.warps import WARP
from autosched.machine.torch_internals import allocator, current_device, current_stream
from search_spaces import OutOfMemoryError, TileProgram

# Result of a driver call that returns nothing but a status.
DONE = (driver.CUresult.CUDA_SUCCESS,)
_NO_CONTEXT = (driver.CUresult.CUDA_ERROR_INVALID_CONTEXT,)
# Kernels are compiled to load up to 16 bytes at once from the start of a buffer.
_ALIGNMENT_BYTES = 16
# More dynamic shared memory than this has to be asked for (CUDA programming guide, "Shared Memory" of 7.x and later).
_SHARED_WITHOUT_ASKING = 48 * 1024
# Clusters of more blocks than this are not portable, and have to be allowed (same guide, "Thread Block Clusters").
_PORTABLE_CLUSTER = 8


class _Call:
    """Memory that the driver reads during one call: parameters, and the launches on `stream`.

    `steps` has, for every kernel, its launch, its function and the address of its parameters, as the driver takes them.
    """

    def __init__(self, layout: ParameterLayout, kernels: Sequence[CudaKernel], functions: Sequence[Any]) -> None:
        self.memory = CallMemory(layout)
        launches = [launch_of(k) for k in kernels]
        self.steps = tuple(zip(launches, functions, self.memory.parameters, strict=True))
        self.stream = 0

    def use_stream(self, stream: int) -> None:
        for launch, _, _ in self.steps:
            launch.hStream = driver.CUstream(stream)
        self.stream = stream


class CudaLauncher:
    """The kernels of a tile program on torch's current device; runs them on torch's current stream of that device.

    A call waits for nothing, and allocates nothing but workspaces, with PyTorch's allocator: a CUDA graph can capture
    it. The launcher, whose code the graph then runs, must outlive it. Threads may call it at the same time.
    """

    def __init__(self, program: TileProgram, images: Sequence[bytes], kernels: Sequence[CudaKernel]) -> None:
        """Load the code of every kernel, a cubin or PTX that ends with a zero byte; several may share one.

        Raises:
            LoadError: the device refuses it.
            OutOfMemoryError: it has too little memory for the workspaces of a call.
        """
        # Any call of torch's runtime makes the device's primary context current in this thread.
        torch.cuda.synchronize()
        self.device = current_device()
        (self._context,) = _loaded(driver.cuCtxGetCurrent())
        self._arguments = tuple(b for b in program.buffers if b.role != "workspace")
        self._program = program
        self.called = tuple(n for n, prepared in enumerate(program.preparing) if not prepared)
        self._modules: list[Any] = []
        self._idle: list[_Call] = []
        self.kernels = tuple(kernels)
        self.functions: list[Any] = []
        try:
            modules = {image: self._load_module(image) for image in dict.fromkeys(images)}
            self.functions = [_function_of(modules[i], k) for i, k in zip(images, kernels, strict=True)]
            self.layout = ParameterLayout(program, kernels)
            sizes = {self.layout.workspace_bytes, self.layout.called_bytes}
            self._allocators = {size: self._allocator(size) for size in sizes}
            if self.layout.workspace_bytes:
                # A lack of memory should be noticed now, not at the first call.
                self._workspace(self.layout.workspace_bytes)
            self._idle.append(self._another_call())
        except BaseException:
            self.unload()
            raise

    def __call__(self, buffers: Sequence[torch.Tensor]) -> None:
        """Enqueue every kernel. `buffers`: tensors of the program's strides, the inputs in order and then the outputs.

        Raises:
            RuntimeError: a buffer is on another device or starts at an odd address, or the driver reports an error,
                which may be that of a kernel launched earlier.
        """
        for buffer, tensor in zip(self._arguments, buffers, strict=True):
            if tensor.data_ptr() % _ALIGNMENT_BYTES or tensor.get_device() != self.device:
                raise RuntimeError(
                    f"{buffer.name} is on {tensor.device} at address {tensor.data_ptr():#x}; expected "
                    f"cuda:{self.device} and a multiple of {_ALIGNMENT_BYTES}"
                )
        self.launch([t.data_ptr() for t in buffers])

    def launch(self, addresses: Sequence[int], prepared: Sequence[int] = ()) -> None:
        """Enqueue every kernel on buffers at these addresses, which are not checked; given `prepared` ones, the rest.

        Raises:
            OutOfMemoryError: there is too little memory for the workspaces.
            RuntimeError: the driver reports an error, which may be that of a kernel launched earlier.
        """
        if current_device() != self.device:
            # Kernels run in the context that is current, and so does the default stream.
            with torch.cuda.device(self.device):
                return self.launch(addresses, prepared)
        size = self.layout.called_bytes if prepared else self.layout.workspace_bytes
        # Kept until everything is enqueued.
        workspace = self._workspace(size) if size else None
        address = 0 if workspace is None else workspace.data_ptr()
        return self._launch(addresses, address, prepared, self.called if prepared else None)

    def prepare(self, number: int, constant: int, memory: torch.Tensor | None = None) -> torch.Tensor:
        """Enqueue the kernels that fill the prepared workspace of this number; returns its memory.

        Raises:
            OutOfMemoryError: there is no memory for it.
            RuntimeError: the driver reports an error, which may be that of a kernel launched earlier.
        """
        if current_device() != self.device:
            with torch.cuda.device(self.device):
                return self.prepare(number, constant, memory)
        name, _ = self._program.prepared[number]
        size = self._program.buffer(name).room_bytes
        made = self._allocated(self._allocator(size), size) if memory is None else memory
        steps = tuple(n for n, prepared in enumerate(self._program.preparing) if prepared == name)
        # Its kernels read and write nothing else; addresses of all others only have to be possible ones.
        everything = [constant] * len(self._arguments)
        self._launch(everything, made.data_ptr(), [made.data_ptr()] * len(self._program.prepared), steps, zero=False)
        return made

    def _launch(
        self,
        addresses: Sequence[int],
        workspace: int,
        prepared: Sequence[int],
        steps: Sequence[int] | None,
        zero: bool = True,
    ) -> None:
        """Enqueue the kernels of these numbers, or all, on the current device."""
        try:
            call = self._idle.pop()
        except IndexError:
            call = self._another_call()
        stream = current_stream(self.device)
        if stream != call.stream:
            call.use_stream(stream)
        call.memory.set_addresses(addresses, workspace, prepared)
        enqueued = call.steps if steps is None else [call.steps[n] for n in steps]
        zeroed = self.layout.zeroed if zero else ()
        status = _enqueue(call, zeroed, enqueued)
        if status != DONE:
            self.enqueue_again(status, lambda: _enqueue(call, zeroed, enqueued))
        self._idle.append(call)

    def enqueue_again(self, status: tuple[Any], enqueue: Callable[[], tuple[Any]]) -> None:
        """Have the driver enqueue in the launcher's context what it refused, if that was for want of one.

        Raises:
            RuntimeError: it was not, or the driver reports another error, which may be that of an earlier kernel.
        """
        if status == _NO_CONTEXT:
            # A thread that never touched the device has none, and nothing was enqueued: give it ours.
            _launched(driver.cuCtxSetCurrent(self._context))
            status = enqueue()
        _launched(status)

    def workspace_bytes(self, prepared: bool) -> int:
        """Bytes for the workspaces of a launch in a batch; with `prepared` ones, for the rest of them."""
        return self.layout.called_bytes if prepared else self.layout.workspace_bytes

    def batch(self, launches: Sequence[PlacedLaunch]) -> Batch:
        """Launches of CudaLaunchers on one device as one."""
        # It launches what this module loads.
        from autosched.backends.gpu.batch import CudaBatch

        return CudaBatch(launches)

    def _allocator(self, size: int) -> Callable[[], torch.Tensor]:
        return allocator((size,), (1,), torch.uint8, torch.device("cuda", self.device))

    def unload(self) -> None:
        """Give back the code, once the kernels in flight are done."""
        modules, self._modules = self._modules, []
        self._idle.clear()
        for module in modules:
            # After a fault on the device nothing can be unloaded any more; the process's end does it.
            driver.cuModuleUnload(module)

    def _workspace(self, size: int) -> torch.Tensor:
        return self._allocated(self._allocators[size], size)

    @staticmethod
    def _allocated(allocate: Callable[[], torch.Tensor], size: int) -> torch.Tensor:
        try:
            return allocate()
        except torch.OutOfMemoryError as error:
            raise OutOfMemoryError(f"no {size} bytes of device memory for workspaces") from error

    def _another_call(self) -> _Call:
        if not self._modules:
            raise RuntimeError("this launcher was unloaded; load the artefact again")
        return _Call(self.layout, self.kernels, self.functions)

    def _load_module(self, image: bytes) -> Any:
        status, module = driver.cuModuleLoadData(image)
        if status == driver.CUresult.CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
            major, minor = driver_version() // 1000, driver_version() % 1000 // 10
            raise LoadError(
                f"the driver takes PTX of CUDA {major}.{minor} and older, and this is newer; expected a newer"
                f' driver, or an NVRTC as old: pip install "nvidia-cuda-nvrtc<={major}.{minor}.999"'
            )
        _loaded((status, module))
        self._modules.append(module)
        return module


def _enqueue(call: _Call, zeroed: Sequence[tuple[int, int]], steps: Sequence[tuple[Any, Any, int]]) -> Any:
    """The driver's status for the first step that it refuses, or for the last."""
    for slot, size in zeroed:
        status = driver.cuMemsetD8Async(call.memory.values[slot], 0, size, call.stream)
        if status != DONE:
            return status
    for launch, function, parameters in steps:
        status = driver.cuLaunchKernelEx(launch, function, parameters, 0)
        if status != DONE:
            return status
    return DONE


def _function_of(module: Any, kernel: CudaKernel) -> Any:
    """A kernel of loaded code, with the attributes that its launch needs."""
    (device,) = _loaded(driver.cuCtxGetDevice())
    optin = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    (limit,) = _loaded(driver.cuDeviceGetAttribute(optin, device))
    if kernel.shared_bytes > limit:
        raise LoadError(f"{kernel.name} needs {kernel.shared_bytes} bytes of shared memory; the device has {limit}")
    (function,) = _loaded(driver.cuModuleGetFunction(module, kernel.name.encode()))
    attribute = driver.CUfunction_attribute
    threads = kernel.num_warps * WARP
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


def launch_of(kernel: CudaKernel, early: bool = False) -> Any:
    """The driver's description of a launch, on the default stream; `early`: while the kernel before it runs."""
    launch = driver.CUlaunchConfig()
    launch.gridDimX, launch.gridDimY, launch.gridDimZ = kernel.programs * kernel.num_ctas, 1, 1
    launch.blockDimX, launch.blockDimY, launch.blockDimZ = kernel.num_warps * WARP, 1, 1
    launch.sharedMemBytes = kernel.shared_bytes
    launch.hStream = driver.CUstream(0)
    attributes = []
    if kernel.num_ctas > 1:
        cluster = driver.CUlaunchAttribute()
        cluster.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        cluster.value.clusterDim.x = kernel.num_ctas
        cluster.value.clusterDim.y = 1
        cluster.value.clusterDim.z = 1
        attributes.append(cluster)
    if kernel.dependent or early:
        ahead = driver.CUlaunchAttribute()
        ahead.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        ahead.value.programmaticStreamSerializationAllowed = 1
        attributes.append(ahead)
    if attributes:
        launch.attrs = attributes
    launch.numAttrs = len(attributes)
    return launch


def _loaded(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """The results of a driver call besides its status; LoadError when the status is a failure."""
    status, *values = result
    if (status,) != DONE:
        raise LoadError(_name(status))
    return tuple(values)


def _launched(result: tuple[Any]) -> None:
    if result != DONE:
        raise RuntimeError(_name(result[0]))


def _name(status: Any) -> str:
    """`CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered`."""
    _, text = driver.cuGetErrorString(status)
    return f"{status.name}: {text.decode()}" if text else str(status.name)
