"""A CUDA driver that writes down what it is asked, and programs to launch with it."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cuda.bindings import driver

from autosched.backends.gpu import batch as cuda_batch
from autosched.backends.gpu import enqueueing, tensor_maps
from autosched.backends.gpu import graph as cuda_graph
from autosched.backends.gpu import launch as cuda_launch
from autosched.backends.gpu.kernel import CudaKernel, TensorMap
from search_spaces.programs.tile_program import Buffer, TileProgram

PROGRAM = TileProgram(
    "two_kernels",
    (
        Buffer("a", (64,), "float32", "input"),
        Buffer("b", (64,), "float32", "input"),
        Buffer("out", (64,), "float32", "output"),
        Buffer("partial", (128,), "float32", "workspace"),
    ),
    (),
    zeroed=("out", "partial"),
)
FIRST = CudaKernel("first", ("a", "b", "partial"), 100, 4, 1, 1000, 0, 2)
SECOND = CudaKernel("second", ("out", "partial"), 7, 8, 2, 100_000, 384, 3)
CUBINS = (b"\x7fELF first", b"\x7fELF second")
MAP = TensorMap("a", "float16", (4, 16), (24, 1), (2, 8), 1)
MAPPED = CudaKernel("first", ("b",), 1, 4, 1, 0, 0, 2, (MAP,))

SHARED_MEMORY = 232448
# The only stream that is captured.
CAPTURING = 0xCA


@dataclass
class Launch:
    function: str
    blocks: int
    threads: int
    shared_bytes: int
    stream: int
    cluster: int
    parameters: list[int]


@dataclass
class Encoding:
    kind: int
    shape: list[int]
    strides: list[int]
    box: list[int]
    swizzle: int


class Function(str):
    """A function by its name, and by a number as its handle."""

    __slots__ = ()

    def __int__(self) -> int:
        return id(self)


@dataclass
class Node:
    """A step of a graph: a launch, or memory that is cleared."""

    what: Any


class LaunchConfig(ctypes.Structure):
    """The driver's CUlaunchConfig, of which the dimensions are three each."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_uint64),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


@dataclass
class FakeDriver:
    """Answers like the driver of a device with one context. Enumerations and structures are the real ones."""

    real: Any
    parameter_counts: dict[str, int]
    launches: list[Launch] = field(default_factory=list)
    cleared: list[tuple[int, int, int]] = field(default_factory=list)
    attributes: list[tuple[str, int]] = field(default_factory=list)
    loaded: list[bytes] = field(default_factory=list)
    unloaded: list[bytes] = field(default_factory=list)
    stream: int = 0
    device: int = 0
    workspaces: list[torch.Tensor] = field(default_factory=list)
    contexts_set: int = 0
    most_threads: int = 1024
    failures: list[Any] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    map_failures: list[Any] = field(default_factory=list)
    maps: list[Encoding] = field(default_factory=list)
    windows: list[Any] = field(default_factory=list)
    version: int = 13020
    functions: list[Function] = field(default_factory=list)
    captured: list[Node] | None = None
    graphs_launched: int = 0
    graphs_destroyed: int = 0
    patched: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        pointer, number = ctypes.c_void_p, ctypes.c_int
        kinds = (pointer, number, ctypes.c_uint32, pointer, *[pointer] * 4, *[number] * 4)
        self.encoder = ctypes.CFUNCTYPE(number, *kinds)(self._encode)
        window = (pointer, pointer, ctypes.c_uint32, ctypes.c_uint32, pointer)
        kinds = (pointer, number, ctypes.c_uint32, pointer, pointer, pointer, *window, *[number] * 4)
        self.window_encoder = ctypes.CFUNCTYPE(number, *kinds)(self._encode_window)
        self.launch = ctypes.CFUNCTYPE(number, *[pointer] * 4)(self._launch)
        self.clear = ctypes.CFUNCTYPE(number, pointer, ctypes.c_uint8, ctypes.c_size_t, pointer)(self._clear)

    def _launch(self, config, function, parameters, extra):
        """A launch by machine code."""
        assert extra is None
        given = LaunchConfig.from_address(config)
        name = next(f for f in self.functions if int(f) == function)
        pointers = (ctypes.c_void_p * self.parameter_counts[name]).from_address(parameters)
        values = [ctypes.c_uint64.from_address(p).value for p in pointers]
        launch = Launch(
            name, given.grid[0], given.block[0], given.shared_bytes, given.stream, given.attribute_count, values
        )
        return self._enqueued(launch, given.stream)

    def _clear(self, memory, value, size, stream):
        return self._enqueued((memory, value, size), stream)

    def _enqueued(self, what, stream):
        if self.failures:
            return int(self.failures.pop(0))
        if stream == CAPTURING:
            self.captured.append(Node(what))
        elif isinstance(what, Launch):
            self.launches.append(what)
        else:
            self.cleared.append(what)
        return 0

    def cuStreamCreate(self, flags):
        return self._ok(CAPTURING)

    def cuStreamDestroy(self, stream):
        return self._ok()

    def cuStreamBeginCapture(self, stream, mode):
        self.captured = []
        return self._ok()

    def cuStreamGetCaptureInfo(self, stream):
        return self._ok("active", 0, "graph", self.captured[-1:], [None], 1)

    def cuStreamEndCapture(self, stream):
        return self._ok(self.captured)

    def cuGraphInstantiate(self, graph, flags):
        return self._ok({id(node): node.what for node in graph})

    def cuGraphKernelNodeGetParams(self, node):
        return self._ok(SimpleNamespace(kernelParams=0))

    def cuGraphMemsetNodeGetParams(self, node):
        return self._ok(SimpleNamespace(dst=0))

    def cuGraphExecKernelNodeSetParams(self, executable, node, given):
        pointers = (ctypes.c_void_p * len(node.what.parameters)).from_address(given.kernelParams)
        values = [ctypes.c_uint64.from_address(p).value for p in pointers]
        executable[id(node)] = replace(node.what, parameters=values)
        self.patched.append(id(node))
        return self._ok()

    def cuGraphExecMemsetNodeSetParams(self, executable, node, given, context):
        _, value, size = node.what
        executable[id(node)] = (int(given.dst), value, size)
        self.patched.append(id(node))
        return self._ok()

    def cuGraphLaunch(self, executable, stream):
        if self.failures:
            return (self.failures.pop(0),)
        self.graphs_launched += 1
        for what in executable.values():
            self._enqueued(replace(what, stream=int(stream)) if isinstance(what, Launch) else what, int(stream))
        return self._ok()

    def cuGraphExecDestroy(self, executable):
        return self._ok()

    def cuGraphDestroy(self, graph):
        self.graphs_destroyed += 1
        return self._ok()

    def _encode_window(self, made, kind, rank, address, shape, strides, lower, upper, channels, pixels, steps, *others):
        """Writes where the map lies and a bit that must stay."""
        corners = (list((ctypes.c_int * (rank - 2)).from_address(at)) for at in (lower, upper))
        self.windows.append((*corners, channels, pixels, list((ctypes.c_uint32 * rank).from_address(steps))))
        sizes = (list((ctypes.c_uint64 * n).from_address(at)) for n, at in ((rank, shape), (rank - 1, strides)))
        self.maps.append(Encoding(kind, *sizes, [], others[1]))
        (ctypes.c_uint64 * 16).from_address(made)[:] = [address, 0xFFFFFFFF, *[0] * 14]
        return 0

    def _encode(self, made, kind, rank, address, shape, strides, box, steps, interleave, swizzle, promotion, fill):
        """Writes where the map lies and which bit is set that CUTLASS clears; refuses what the driver would."""
        if self.map_failures:
            return int(self.map_failures.pop(0))
        if made % 64 or address % 16 or interleave or fill:
            return int(self.real.CUresult.CUDA_ERROR_INVALID_VALUE)
        assert list((ctypes.c_uint32 * rank).from_address(steps)) == [1] * rank
        self.maps.append(
            Encoding(
                kind,
                list((ctypes.c_uint64 * rank).from_address(shape)),
                list((ctypes.c_uint64 * (rank - 1)).from_address(strides)),
                list((ctypes.c_uint32 * rank).from_address(box)),
                swizzle,
            )
        )
        (ctypes.c_uint64 * 16).from_address(made)[:] = [address, 0xFFFFFFFF, *[0] * 14]
        return 0

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("cu"):
            self.asked.append(name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def _ok(self, *values: Any) -> tuple[Any, ...]:
        return (self.real.CUresult.CUDA_SUCCESS, *values)

    def cuCtxGetCurrent(self):
        return self._ok("context")

    def cuCtxSetCurrent(self, context):
        assert context == "context"
        self.contexts_set += 1
        return self._ok()

    def cuCtxGetDevice(self):
        return self._ok(0)

    def cuDeviceGetAttribute(self, attribute, device):
        return self._ok(SHARED_MEMORY)

    def cuModuleLoadData(self, image):
        self.loaded.append(image)
        if image.startswith(b"\x7fELF"):
            return self._ok(image)
        too_new = self.real.CUresult.CUDA_ERROR_UNSUPPORTED_PTX_VERSION
        return (too_new if b".version" in image else self.real.CUresult.CUDA_ERROR_INVALID_IMAGE, None)

    def cuModuleUnload(self, module):
        self.unloaded.append(module)
        return self._ok()

    def cuModuleGetFunction(self, module, name):
        self.functions.append(Function(name.decode()))
        return self._ok(self.functions[-1])

    def cuFuncGetAttribute(self, attribute, function):
        return self._ok(self.most_threads)

    def cuFuncSetAttribute(self, function, attribute, value):
        self.attributes.append((attribute.name, value))
        return self._ok()

    def cuMemsetD8Async(self, address, value, size, stream):
        if self.failures:
            return (self.failures.pop(0),)
        self.cleared.append((address, value, size))
        return self._ok()

    def cuDriverGetVersion(self):
        return self._ok(self.version)

    def cuGetProcAddress(self, name, version, flags):
        made = {
            b"cuTensorMapEncodeTiled": self.encoder,
            b"cuTensorMapEncodeIm2col": self.window_encoder,
            b"cuLaunchKernelEx": self.launch,
            b"cuMemsetD8Async": self.clear,
        }[name]
        return self._ok(ctypes.cast(made, ctypes.c_void_p).value, 0)

    def cuGetErrorString(self, status):
        return self._ok(b"said the driver")

    def cuLaunchKernelEx(self, launch, function, parameters, extra):
        if self.failures:
            return (self.failures.pop(0),)
        pointers = (ctypes.c_void_p * self.parameter_counts[function]).from_address(parameters)
        cluster = launch.attrs[0].value.clusterDim.x if launch.numAttrs else 1
        self.launches.append(
            Launch(
                function,
                launch.gridDimX,
                launch.blockDimX,
                launch.sharedMemBytes,
                int(launch.hStream),
                cluster,
                [ctypes.c_uint64.from_address(p).value for p in pointers],
            )
        )
        return self._ok()


def installed(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """A driver in the place of the real one, and a device that is none."""
    fake = FakeDriver(driver, {"first": 5, "second": 5})

    def allocator(shape, strides, dtype, device):
        def allocate() -> torch.Tensor:
            # Kept, so that no two have the same address.
            fake.workspaces.append(torch.empty(shape, dtype=dtype))
            return fake.workspaces[-1]

        return allocate

    @contextmanager
    def on_device(index):
        before, fake.device = fake.device, index
        yield
        fake.device = before

    for module in (cuda_launch, cuda_batch, cuda_graph, tensor_maps):
        monkeypatch.setattr(module, "driver", fake)
    monkeypatch.setattr(cuda_batch, "enqueueing", enqueueing.Enqueueing)
    monkeypatch.setattr(cuda_launch, "allocator", allocator)
    for module in (cuda_launch, cuda_batch, cuda_graph):
        monkeypatch.setattr(module, "current_device", lambda: fake.device)
        monkeypatch.setattr(module, "current_stream", lambda device: fake.stream)
    monkeypatch.setattr(torch.cuda, "device", on_device)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    # What torch says of a tensor that is on no GPU.
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: 0)
    return fake
