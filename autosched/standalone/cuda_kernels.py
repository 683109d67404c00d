"""CUDA kernels in a stand-alone file: their text, compiled by NVRTC on the machine that runs the file."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from autosched.backends.cuda.nvrtc import architecture
from autosched.backends.cuda.source import launched, print_module
from autosched.backends.gpu.kernel import TensorMap
from autosched.backends.gpu.warps import WARP
from autosched.backends.printing.scope import INDENT, Identifiers, call
from search_spaces import Target, TileProgram
from search_spaces.programs.tile_program import Kernel

_RUNTIME = '''\
class _Cuda:
    """Kernels in CUDA C++, which are compiled for a device when they are first launched there."""

    def __init__(self, architecture, source):
        self.architecture, self.source, self.functions = architecture, source, {}

    def cubin(self, capability):
        """The code for devices of a compute capability, 80 for 8.0."""
        least, own = int(self.architecture[3:].rstrip("a")), self.architecture.endswith("a")
        if capability < least or (own and capability != least):
            raise RuntimeError(f"the GPU has compute capability {capability / 10}; expected {least / 10}")
        version, _ = _done(nvrtc.nvrtcVersion())
        if capability < 75 and version > 12:
            raise RuntimeError(f"NVRTC {version} has left out the GPU; expected cuda-bindings 12 with NVRTC 12")
        options = [f"--gpu-architecture=sm_{capability}{'a' * own}".encode(), b"--std=c++17"]
        program = _done(nvrtc.nvrtcCreateProgram(self.source.encode(), b"kernel.cu", 0, [], []))
        if int(nvrtc.nvrtcCompileProgram(program, len(options), options)[0]):
            log = b" " * _done(nvrtc.nvrtcGetProgramLogSize(program))
            nvrtc.nvrtcGetProgramLog(program, log)
            raise RuntimeError(f"NVRTC {_done(nvrtc.nvrtcVersion())}: {log.decode()}")
        code = b" " * _done(nvrtc.nvrtcGetCUBINSize(program))
        _done(nvrtc.nvrtcGetCUBIN(program, code))
        return code

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

    def launch(self, name, tensors, maps=(), blocks=1, threads=1, shared_bytes=0, cluster=1):
        """Launch a kernel, which takes the addresses of the tensors and then the maps, on torch's current stream."""
        function = self.loaded(name, shared_bytes, cluster)
        values = (ctypes.c_uint64 * len(tensors))(*(t.data_ptr() for t in tensors))
        places = [ctypes.addressof(values) + 8 * i for i in range(len(tensors))] + [m.address for m in maps]
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
    """

    def __init__(self, tensor, kind, sizes, strides_bytes, box, swizzle, window=None):
        self.memory = (ctypes.c_uint8 * 192)()
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
            raise RuntimeError(f"the driver makes no tensor map of {sizes} at {tensor.data_ptr():#x}")'''


@dataclass(frozen=True)
class CudaKernels:
    """The kernels of a program, as one text that the file assigns to `variable`."""

    program: TileProgram
    target: Target
    variable: str

    @staticmethod
    def named(program: TileProgram, target: Target, names: Identifiers) -> CudaKernels:
        """With a name that is unique in the file: `MATMUL`."""
        return CudaKernels(program, target, names.of((program, "source"), program.name.upper()))

    @property
    def names(self) -> tuple[str, ...]:
        return (self.variable, "driver", "nvrtc", "ctypes")

    @property
    def imports(self) -> tuple[str, ...]:
        return ("from cuda.bindings import driver, nvrtc",)

    @property
    def functions(self) -> tuple[str, ...]:
        text = _code(print_module(self.program, "", self.target))
        source = f"{self.variable} = _Cuda(\"{architecture(text, self.target.capability)}\", r'''\n{text}\n''')"
        mapped = any(kernel.maps for kernel in launched(self.program, self.target))
        return (_RUNTIME, *([_MAPS] if mapped else []), source)

    def launch(self, kernel: Kernel, variables: Mapping[str, str]) -> str:
        number = self.program.kernels.index(kernel)
        described = launched(self.program, self.target)[number]
        tensors = "".join(f"{variables[name]}, " for name in described.arguments)
        arguments = [f'"{described.name}"', f"({tensors.rstrip(' ')})"]
        if described.maps:
            maps = "".join(f"\n{2 * INDENT}{_map(variables[m.buffer], m)}," for m in described.maps)
            arguments.append(f"maps=({maps}\n{INDENT})")
        arguments += [f"blocks={described.programs * described.num_ctas}", f"threads={described.num_warps * WARP}"]
        arguments += [f"shared_bytes={described.shared_bytes}"] if described.shared_bytes else []
        arguments += [f"cluster={described.num_ctas}"] if described.num_ctas > 1 else []
        return call(f"{self.variable}.launch", *arguments)


def _code(text: str) -> str:
    """The text without its leading comment, which the file has at its top, and which may quote what ends a string."""
    return "\n".join(itertools.dropwhile(lambda line: line.startswith("//"), text.split("\n"))).strip("\n")


def _map(variable: str, described: TensorMap) -> str:
    from autosched.backends.gpu.tensor_maps import data_type
    from search_spaces.workloads.dtypes import dtype

    size = dtype(described.dtype).bytes
    sizes, box = described.shape[::-1], described.box[::-1]
    strides = tuple(size * stride for stride in described.strides[-2::-1])
    layout = [data_type(described.dtype), sizes, strides, box, described.swizzle]
    if window := described.window:
        layout.append((window.lower[::-1], window.upper[::-1], window.steps[::-1]))
    return f"_TensorMap({variable}, {', '.join(map(str, layout))})"
