"""What the launcher asks of the CUDA driver, with a driver that writes down what it is asked."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from autosched.backends.backend import LoadError
from autosched.backends.cuda_kernel import CudaKernel
from search_spaces.tile_program import Buffer, TileProgram

cuda_launch = pytest.importorskip("autosched.backends.cuda_launch", reason="needs cuda-bindings")

CPU_DEVICE = -1  # what torch says of a tensor that is on no GPU
SHARED_MEMORY = 232448


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
class Stream:
    cuda_stream: int = 0


@dataclass
class FakeDriver:
    """Answers like the driver of a device with one context. Enumerations and structures are the real ones."""

    real: Any
    parameter_counts: dict[str, int]
    launches: list[Launch] = field(default_factory=list)
    cleared: list[tuple[int, int, int]] = field(default_factory=list)
    attributes: list[tuple[str, int]] = field(default_factory=list)
    unloaded: list[bytes] = field(default_factory=list)
    stream: Stream = field(default_factory=Stream)
    contexts_set: int = 0
    most_threads: int = 1024
    failures: list[Any] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

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

    def cuModuleLoadData(self, cubin):
        return self._ok(cubin) if cubin.startswith(b"\x7fELF") else (self.real.CUresult.CUDA_ERROR_INVALID_IMAGE, None)

    def cuModuleUnload(self, module):
        self.unloaded.append(module)
        return self._ok()

    def cuModuleGetFunction(self, module, name):
        return self._ok(name.decode())

    def cuFuncGetAttribute(self, attribute, function):
        return self._ok(self.most_threads)

    def cuFuncSetAttribute(self, function, attribute, value):
        self.attributes.append((attribute.name, value))
        return self._ok()

    def cuMemsetD8Async(self, address, value, size, stream):
        self.cleared.append((address, value, size))
        return self._ok()

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


@pytest.fixture
def driver(monkeypatch):
    fake = FakeDriver(cuda_launch.driver, {"first": 5, "second": 5})
    monkeypatch.setattr(cuda_launch, "driver", fake)
    monkeypatch.setattr(cuda_launch, "_allocate", lambda size: torch.empty(size, dtype=torch.uint8))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: CPU_DEVICE)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: fake.stream)
    return fake


def tensors() -> list[torch.Tensor]:
    return [torch.empty(64) for _ in range(3)]


def test_kernels_are_launched_in_order_with_the_addresses_of_their_buffers(driver):
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    a, b, out = tensors()
    launcher([a, b, out])
    first, second = driver.launches
    assert (first.blocks, first.threads, first.shared_bytes, first.cluster) == (100, 128, 1000, 1)
    assert (second.blocks, second.threads, second.shared_bytes, second.cluster) == (14, 256, 100_000, 2)
    assert first.parameters[:2] == [a.data_ptr(), b.data_ptr()]
    assert second.parameters[0] == out.data_ptr()
    assert first.parameters[2] == second.parameters[1] != 0


def test_hidden_parameters_are_scratch_memory_and_null(driver):
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    launcher(tensors())
    first, second = driver.launches
    assert first.parameters[3:] == [0, 0]
    assert second.parameters[2] != 0
    assert second.parameters[3:] == [0, 0]


def test_new_tensors_and_streams_are_used_from_call_to_call(driver):
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    launcher(tensors())
    driver.stream.cuda_stream = 0xABC
    others = tensors()
    launcher(others)
    assert [launch.stream for launch in driver.launches] == [0, 0, 0xABC, 0xABC]
    assert driver.launches[2].parameters[0] == others[0].data_ptr()


def test_zeroed_buffers_are_cleared_before_every_call(driver):
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    buffers = tensors()
    launcher(buffers)
    workspace = driver.launches[0].parameters[2]
    assert driver.cleared == [(buffers[2].data_ptr(), 0, 256), (workspace, 0, 512)]


def test_more_shared_memory_than_every_device_has_is_asked_for(driver):
    cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    assert driver.attributes == [("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 100_000)]


@pytest.mark.parametrize(
    ("kernel", "cubin", "words"),
    [
        (
            CudaKernel("k", (), 1, 4, 1, 300_000, 0, 2),
            CUBINS[0],
            "300000 bytes of shared memory; the device has 232448",
        ),
        (CudaKernel("k", (), 1, 64, 1, 0, 0, 2), CUBINS[0], "2048 threads per block; its registers allow 1024"),
        (CudaKernel("k", (), 1, 4, 1, 0, 0, 2), b"not a cubin", "CUDA_ERROR_INVALID_IMAGE: said the driver"),
    ],
)
def test_what_the_device_refuses_is_a_load_error(driver, kernel, cubin, words):
    with pytest.raises(LoadError, match=words):
        cuda_launch.CudaLauncher(PROGRAM, (cubin,), (kernel,))


def test_a_failure_to_load_unloads_what_was_loaded(driver):
    with pytest.raises(LoadError):
        cuda_launch.CudaLauncher(PROGRAM, (CUBINS[0], b"not a cubin"), (FIRST, SECOND))
    assert driver.unloaded == [CUBINS[0]]


def test_a_misaligned_buffer_is_refused_before_anything_runs(driver):
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    a, b, _ = tensors()
    with pytest.raises(RuntimeError, match=r"out is on cpu at address .*multiple of 16"):
        launcher([a, b, torch.empty(65)[1:]])
    assert driver.launches == []


def test_a_call_does_only_what_a_cuda_graph_can_capture(driver, monkeypatch):
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))

    def refuse(*_: object) -> None:
        raise AssertionError("waited or allocated")

    monkeypatch.setattr(torch.cuda, "synchronize", refuse)
    monkeypatch.setattr(cuda_launch, "_allocate", refuse)
    driver.asked.clear()
    launcher(tensors())
    assert driver.asked == ["cuMemsetD8Async"] * 2 + ["cuLaunchKernelEx"] * 2


def test_a_fault_on_the_device_is_raised_with_the_drivers_name_for_it(driver):
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    driver.failures = [driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS]
    with pytest.raises(RuntimeError, match="CUDA_ERROR_ILLEGAL_ADDRESS: said the driver"):
        launcher(tensors())


def test_a_thread_without_a_context_gets_the_one_the_kernels_were_loaded_in(driver):
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    driver.failures = [driver.CUresult.CUDA_ERROR_INVALID_CONTEXT]
    launcher(tensors())
    assert driver.contexts_set == 1
    assert [launch.function for launch in driver.launches] == ["first", "second"]


def test_an_unloaded_launcher_says_so(driver):
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    launcher.unload()
    assert driver.unloaded == list(CUBINS)
    with pytest.raises(RuntimeError, match="unloaded"):
        launcher(tensors())
