"""Launches by the CUDA driver in a stand-alone file: what loads cubins and launches their kernels, by cuda-bindings."""

from __future__ import annotations

from collections.abc import Mapping

from autosched.backends.gpu.kernel import CudaKernel, TensorMap
from autosched.backends.gpu.warps import WARP
from autosched.backends.printing.scope import INDENT, call
from search_spaces.workloads.dtypes import dtype

# Names of the file that these parts use.
DRIVER_NAMES = ("driver", "ctypes")

_KERNELS = '''\
class _Kernels:
    """Kernels that are loaded on a device when they are first launched there.

    `cubin`: a function of a compute capability, 80 for 8.0, that returns the code for such devices.
    """

    def __init__(self, cubin):
        self.cubin, self.functions = cubin, {}

    def loaded(self, name, shared_bytes, cluster):
        """A kernel on torch's current device."""
        key = torch.cuda.current_device(), name
        if key not in self.functions:
            major, minor = torch.cuda.get_device_capability()
            module = _done(driver.cuModuleLoadData(self.cubin(10 * major + minor)))
            function, attribute = _done(driver.cuModuleGetFunction(module, name.encode())), driver.CUfunction_attribute
            if shared_bytes > 48 * 1024:
                dynamic = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                _done(driver.cuFuncSetAttribute(function, dynamic, shared_bytes))
            if cluster > 8:
                large = attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
                _done(driver.cuFuncSetAttribute(function, large, 1))
            self.functions[key] = function
        return self.functions[key]

    def launch(
        self, name, tensors, maps=(), blocks=1, threads=1, shared_bytes=0, cluster=1, hidden=0, scratch_bytes=0
    ):
        """Launch a kernel on torch's current stream.

        It takes the addresses of the tensors, then the maps, each with the numbers that follow it, and then `hidden`
        addresses: that of `scratch_bytes` of memory, and null.
        """
        _use_device()
        function = self.loaded(name, shared_bytes, cluster)
        scratch = torch.empty(scratch_bytes, dtype=torch.uint8, device="cuda") if scratch_bytes else None
        numbers = [t.data_ptr() for t in tensors] + [n for m in maps for n in m.numbers]
        numbers += [scratch.data_ptr() if scratch_bytes and not n else 0 for n in range(hidden)]
        values = (ctypes.c_uint64 * len(numbers))(*numbers)
        free = iter(range(ctypes.addressof(values), ctypes.addressof(values) + 8 * len(numbers), 8))
        places = [next(free) for _ in tensors]
        for m in maps:
            places += [m.address, *(next(free) for _ in m.numbers)]
        places += free
        parameters = (ctypes.c_void_p * len(places))(*places)
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = blocks, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes, config.numAttrs = shared_bytes, 0
        config.hStream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
        if cluster > 1:
            clustered = driver.CUlaunchAttribute()
            clustered.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = clustered.value.clusterDim
            size.x, size.y, size.z = cluster, 1, 1
            config.attrs, config.numAttrs = [clustered], 1
        _done(driver.cuLaunchKernelEx(config, function, ctypes.addressof(parameters), 0))


def _use_device():
    """Let the driver work on torch's current device, in a thread that never touched it too."""
    if not int(_done(driver.cuCtxGetCurrent())):
        device = _done(driver.cuDeviceGet(torch.cuda.current_device()))
        _done(driver.cuCtxSetCurrent(_done(driver.cuDevicePrimaryCtxRetain(device))))


def _done(result):
    """The results of a CUDA call without its status. Raises RuntimeError unless that is success."""
    status, *values = result
    if int(status):
        raise RuntimeError(f"CUDA: {status.name}")
    return values[0] if len(values) == 1 else values'''

_MAPS = '''\
class _TensorMap:
    """A map of a tensor for the tensor memory accelerator, in memory of its own; innermost sizes come first.

    `window`: of an im2col map its lower and upper corners and the steps of pixels, and `box` is channels and pixels.
    `numbers`: what the kernel takes after the map.
    """

    def __init__(self, tensor, kind, sizes, strides_bytes, box, swizzle, window=None, numbers=()):
        _use_device()
        self.memory, self.numbers = (ctypes.c_uint8 * 192)(), numbers
        self.address = ctypes.addressof(self.memory) + -ctypes.addressof(self.memory) % 64
        pointer, number = ctypes.c_void_p, ctypes.c_int
        rank, unsigned = len(sizes), ctypes.c_uint32
        laid_out = (ctypes.c_uint64 * rank)(*sizes), (ctypes.c_uint64 * (rank - 1))(*strides_bytes)
        if window is None:
            name, types = b"cuTensorMapEncodeTiled", [pointer] * 2
            tiles = (unsigned * rank)(*box), (unsigned * rank)(*[1] * rank)
        else:
            name, types = b"cuTensorMapEncodeIm2col", [pointer, pointer, unsigned, unsigned, pointer]
            lower, upper = ((number * (rank - 2))(*corner) for corner in window[:2])
            tiles = lower, upper, *box, (unsigned * rank)(1, *window[2], 1)
        place = _done(driver.cuGetProcAddress(name, 12000, 0))[0]
        kinds = (pointer, number, unsigned, *[pointer] * 3, *types, *[number] * 4)
        encode = ctypes.CFUNCTYPE(number, *kinds)(int(place))
        promotion = driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B
        moved = 0, swizzle, int(promotion), 0
        if encode(self.address, kind, rank, tensor.data_ptr(), *laid_out, *tiles, *moved):
            raise RuntimeError(f"the driver makes no tensor map of {sizes} at {tensor.data_ptr():#x}")
        steps = (tensor.element_size(), *strides_bytes)
        reach = steps[0] + sum((size - 1) * step for size, step in zip(sizes, steps))
        if window is None and reach < 2**17 and _done(driver.cuDriverGetVersion()) <= 13010:
            # These drivers set a wrong bit in tiled maps of small tensors, as CUTLASS's copy_traits_sm90_tma.hpp says.
            words = (ctypes.c_uint64 * 2).from_address(self.address)
            words[1] &= ~(1 << 21)'''


def runtime_texts(mapped: bool) -> tuple[str, ...]:
    """The parts of a file that launch; with those that make tensor maps, if kernels are `mapped`."""
    return (_KERNELS, *([_MAPS] if mapped else []))


def launch_text(variable: str, kernel: CudaKernel, tensors: Mapping[str, str]) -> str:
    """The statement that launches a kernel of the `_Kernels` in a variable; `tensors`: the names of its buffers."""
    given = "".join(f"{tensors[name]}, " for name in kernel.arguments)
    arguments = [f'"{kernel.name}"', f"({given.rstrip(' ')})"]
    if kernel.maps:
        maps = "".join(f"\n{2 * INDENT}{_map(tensors[m.buffer], m)}," for m in kernel.maps)
        arguments.append(f"maps=({maps}\n{INDENT})")
    arguments += [f"blocks={kernel.programs * kernel.num_ctas}", f"threads={kernel.num_warps * WARP}"]
    arguments += [f"shared_bytes={kernel.shared_bytes}"] if kernel.shared_bytes else []
    arguments += [f"cluster={kernel.num_ctas}"] if kernel.num_ctas > 1 else []
    arguments += [f"hidden={kernel.hidden_parameters}"] if kernel.hidden_parameters else []
    scratch = kernel.scratch_bytes * kernel.programs * kernel.num_ctas
    arguments += [f"scratch_bytes={scratch}"] if scratch else []
    return call(f"{variable}.launch", *arguments)


def _map(tensor: str, described: TensorMap) -> str:
    from autosched.backends.gpu.tensor_maps import data_type

    size = dtype(described.dtype).bytes
    sizes, box = described.shape[::-1], described.box[::-1]
    strides = tuple(size * stride for stride in described.strides[-2::-1])
    arguments = [*map(str, (data_type(described.dtype), sizes, strides, box, described.swizzle))]
    if window := described.window:
        arguments.append(str((window.lower[::-1], window.upper[::-1], window.steps[::-1])))
    if described.sizes_follow:
        arguments.append(f"numbers={(*described.shape, *described.strides)}")
    return f"_TensorMap({tensor}, {', '.join(arguments)})"
