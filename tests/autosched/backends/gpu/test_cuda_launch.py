"""What the launcher asks of the CUDA driver, with a driver that writes down what it is asked."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from autosched.backends.backend import LoadError, PlacedLaunch
from autosched.backends.gpu.kernel import CudaKernel, TensorMap, Window, kernels_from_json, kernels_to_json
from search_spaces.programs.tile_program import Buffer, TileProgram
from search_spaces.workloads.dtypes import DTYPES

cuda_launch = pytest.importorskip("autosched.backends.gpu.launch", reason="needs cuda-bindings")
cuda_batch = pytest.importorskip("autosched.backends.gpu.batch", reason="needs cuda-bindings")
enqueueing = pytest.importorskip("autosched.backends.gpu.enqueueing", reason="needs cuda-bindings")
parameters = pytest.importorskip("autosched.backends.gpu.parameters", reason="needs cuda-bindings")
tensor_maps = pytest.importorskip("autosched.backends.gpu.tensor_maps", reason="needs cuda-bindings")

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
    maps: list[Encoding] = field(default_factory=list)
    windows: list[Any] = field(default_factory=list)
    version: int = 13020
    functions: list[Function] = field(default_factory=list)

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
        launch = Launch(name, given.grid[0], given.block[0], given.shared_bytes, given.stream, 0, values)
        return self._enqueued(lambda: self.launches.append(replace(launch, cluster=given.attribute_count)))

    def _clear(self, memory, value, size, stream):
        return self._enqueued(lambda: self.cleared.append((memory, value, size)))

    def _enqueued(self, enqueue):
        if self.failures:
            return int(self.failures.pop(0))
        enqueue()
        return 0

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

    monkeypatch.setattr(cuda_launch, "driver", fake)
    monkeypatch.setattr(tensor_maps, "driver", fake)
    monkeypatch.setattr(cuda_batch, "enqueueing", enqueueing.Enqueueing)
    monkeypatch.setattr(cuda_batch, "current_device", lambda: fake.device)
    monkeypatch.setattr(cuda_batch, "current_stream", lambda device: fake.stream)
    monkeypatch.setattr(cuda_launch, "allocator", allocator)
    monkeypatch.setattr(cuda_launch, "current_device", lambda: fake.device)
    monkeypatch.setattr(cuda_launch, "current_stream", lambda device: fake.stream)
    monkeypatch.setattr(torch.cuda, "device", on_device)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    # What torch says of a tensor that is on no GPU.
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: 0)
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
    driver.stream = 0xABC
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


def test_kernels_that_share_their_code_load_it_once(driver):
    cuda_launch.CudaLauncher(PROGRAM, (CUBINS[0], CUBINS[0]), (FIRST, SECOND))
    assert driver.loaded == [CUBINS[0]]


def test_ptx_that_is_too_new_for_the_driver_is_told_with_the_ways_on(driver):
    driver.version = 12040
    ways = r'PTX of CUDA 12\.4 and older.*a newer driver, or an NVRTC as old: pip install "nvidia-cuda-nvrtc<=12\.4'
    with pytest.raises(LoadError, match=ways):
        cuda_launch.CudaLauncher(PROGRAM, (b"//\n.version 9.1\0",), (FIRST,))


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
        raise AssertionError("waited")

    monkeypatch.setattr(torch.cuda, "synchronize", refuse)
    driver.asked.clear()
    launcher(tensors())
    assert driver.asked == ["cuMemsetD8Async"] * 2 + ["cuLaunchKernelEx"] * 2


def test_every_call_has_workspaces_of_its_own(driver):
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    launcher(tensors())
    launcher(tensors())
    first, second, third, fourth = (launch.parameters for launch in driver.launches)
    assert first[2] == second[1] != third[2] == fourth[1]
    assert second[2] != fourth[2] != 0


def test_workspaces_of_a_call_do_not_overlap(driver):
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    launcher(tensors())
    memory, (first, second) = driver.workspaces[-1], driver.launches
    partial, scratch = first.parameters[2], second.parameters[2]
    assert sorted([partial, scratch])[0] == memory.data_ptr()
    # 128 elements of four bytes, and 384 bytes for each of 14 blocks.
    assert partial + 512 <= scratch
    assert scratch + 384 * 14 <= memory.data_ptr() + memory.nbytes
    assert scratch % 256 == memory.data_ptr() % 256


def test_a_call_within_a_call_has_parameters_of_its_own(driver):
    """As of another thread, while the driver has not read the first one's parameters yet."""
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    outer, inner, launch = tensors(), tensors(), driver.cuLaunchKernelEx
    waiting = [inner]

    def interrupted(*arguments):
        while waiting:
            driver.stream = 0xABC
            launcher(waiting.pop())
        return launch(*arguments)

    driver.cuLaunchKernelEx = interrupted
    launcher(outer)
    assert [x.parameters[0] for x in driver.launches if x.function == "first"] == [
        t[0].data_ptr() for t in (inner, outer)
    ]
    assert [x.stream for x in driver.launches] == [0xABC, 0xABC, 0, 0]


def test_threads_may_call_at_the_same_time(driver):
    launcher, calls = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND)), [tensors() for _ in range(64)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(launcher, calls))
    found = sorted(tuple(x.parameters[:2]) for x in driver.launches if x.function == "first")
    assert found == sorted((a.data_ptr(), b.data_ptr()) for a, b, _ in calls)


def test_a_kernel_runs_on_its_own_device_whatever_the_current_one_is(driver):
    launcher, launch, devices = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND)), driver.cuLaunchKernelEx, []

    def watched(*arguments):
        devices.append(driver.device)
        return launch(*arguments)

    driver.cuLaunchKernelEx, driver.device = watched, 1
    launcher(tensors())
    assert devices == [0, 0]
    assert driver.device == 1


MAP = TensorMap("a", "float16", (4, 16), (24, 1), (2, 8), 1)
MAPPED = CudaKernel("first", ("b",), 1, 4, 1, 0, 0, 2, (MAP,))


def mapped(driver: FakeDriver, *calls: list[torch.Tensor], kernel: CudaKernel = MAPPED) -> list[tuple[int, list[int]]]:
    """The first two words of the map that each call's kernel was given."""
    driver.parameter_counts["first"] = 8
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS[:1], (kernel,))
    found, launch = [], driver.cuLaunchKernelEx

    def watched(description, function, parameters, extra):
        pointers = (ctypes.c_void_p * 8).from_address(parameters)
        found.append(list((ctypes.c_uint64 * 2).from_address(pointers[1])))
        return launch(description, function, parameters, extra)

    driver.cuLaunchKernelEx = watched
    for buffers in calls:
        launcher(buffers)
    return found


def test_a_descriptor_is_a_map_of_its_tensor_followed_by_sizes_and_strides(driver):
    a, b, out = tensors()
    ((address, _),) = mapped(driver, [a, b, out])
    assert address == a.data_ptr()
    assert driver.launches[0].parameters[0] == b.data_ptr()
    assert driver.launches[0].parameters[2:] == [4, 16, 24, 1, 0, 0]
    # Innermost first; strides in bytes, without the one that is always the same.
    half = int(driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16)
    assert driver.maps == [Encoding(half, [16, 4], [48], [8, 2], 1)]


# Of 2 images of 8 rows of 6 columns of 64 channels.
WINDOW = Window((-1, -2), (0, 1), (2, 3))
WINDOWED = replace(MAP, shape=(2, 8, 6, 64), strides=(3072, 384, 64, 1), box=(128, 32), swizzle=2, window=WINDOW)


def test_an_im2col_map_has_corners_and_steps_of_columns_before_those_of_rows(driver):
    (a, b, out), driver.version = tensors(), 13010
    found = mapped(driver, [a, b, out], kernel=replace(MAPPED, maps=(WINDOWED,)))
    assert driver.windows == [([-2, -1], [1, 0], 32, 128, [1, 3, 2, 1])]
    half = int(driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16)
    assert driver.maps == [Encoding(half, [64, 6, 8, 2], [128, 768, 6144], [], 2)]
    # Only tiled maps of old drivers have the wrong bit.
    assert found == [[a.data_ptr(), 0xFFFFFFFF]]


def test_an_im2col_map_is_the_same_after_a_journey_as_json():
    kernel = replace(MAPPED, maps=(WINDOWED, MAP))
    assert kernels_from_json(kernels_to_json([kernel])) == (kernel,)


def test_where_no_sizes_follow_a_map_is_all_that_is_passed_of_a_descriptor(driver):
    kernel = replace(MAPPED, maps=(replace(MAP, sizes_follow=False),), hidden_parameters=0)
    (slots,) = parameters.ParameterLayout(PROGRAM, (kernel,)).parameters
    assert len(slots) == len(kernel.arguments) + len(kernel.maps)


def test_a_map_is_made_once_for_every_address(driver):
    one, other = tensors(), tensors()
    found = mapped(driver, one, other, one, other)
    assert [address for address, _ in found] == [one[0].data_ptr(), other[0].data_ptr()] * 2
    assert len(driver.maps) == 2


def test_few_maps_are_kept(driver, monkeypatch):
    monkeypatch.setattr(tensor_maps, "_MOST_KEPT", 2)
    calls = [tensors() for _ in range(4)]
    found = mapped(driver, *calls, *calls)
    assert [address for address, _ in found] == [a.data_ptr() for a, _, _ in calls] * 2


@pytest.mark.parametrize(("version", "word"), [(13010, 0xFFDFFFFF), (13020, 0xFFFFFFFF)])
def test_the_bit_that_older_drivers_set_in_maps_of_small_tensors_is_cleared(driver, version, word):
    driver.version = version
    assert [second for _, second in mapped(driver, tensors())] == [word]


def test_what_the_driver_cannot_describe_is_an_error_that_names_it(driver):
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS[:1], (MAPPED,))
    with pytest.raises(
        RuntimeError, match=r"CUDA_ERROR_INVALID_VALUE: no tensor map for TensorMap\(buffer='a'.* at 0x8"
    ):
        launcher.launch([8, 16, 32])


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
    assert len(driver.cleared) == 2
    assert [launch.function for launch in driver.launches] == ["first", "second"]


def test_an_unloaded_launcher_says_so(driver):
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    launcher.unload()
    assert driver.unloaded == list(CUBINS)
    with pytest.raises(RuntimeError, match="unloaded"):
        launcher(tensors())


def test_every_element_type_can_be_moved_by_descriptor() -> None:
    assert set(DTYPES) == set(tensor_maps._TYPES)


def batch_of_two(driver: FakeDriver) -> Any:
    """The program twice: on bases 0, 1 and 2, then on 256 bytes into each, with memory of base 3 for workspaces."""
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    size = launcher.workspace_bytes
    return launcher.batch(
        [PlacedLaunch(launcher, tuple((n, 256 * i) for n in range(3)), (3, size * i)) for i in range(2)]
    )


def bases() -> list[torch.Tensor]:
    return [torch.empty(128), torch.empty(128), torch.empty(128), torch.empty(100_000)]


def test_a_batch_launches_what_its_launches_would_one_after_the_other(driver):
    batch, given = batch_of_two(driver), [t.data_ptr() for t in bases()]
    batch(given)
    launched, cleared = driver.launches[:], driver.cleared[:]
    driver.launches.clear()
    driver.cleared.clear()
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    for i in range(2):
        launcher.launch([address + 256 * i for address in given[:3]])
    for one, other in zip(launched, driver.launches, strict=True):
        assert replace(one, cluster=0, parameters=[]) == replace(other, cluster=0, parameters=[])
    assert [x.parameters[:2] for x in launched[::2]] == [x.parameters[:2] for x in driver.launches[::2]]
    assert [x.parameters[0] for x in launched[1::2]] == [x.parameters[0] for x in driver.launches[1::2]]
    assert [x.parameters[3:] for x in launched] == [x.parameters[3:] for x in driver.launches]
    assert [(size, value) for _, value, size in cleared] == [(256, 0), (512, 0)] * 2
    assert [at for at, _, _ in cleared[::2]] == [given[2], given[2] + 256]


def test_workspaces_of_a_batch_lie_in_the_memory_that_it_is_given(driver):
    batch, given = batch_of_two(driver), bases()
    batch([t.data_ptr() for t in given])
    begin, size = given[3].data_ptr(), cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND)).workspace_bytes
    found = [
        [x.parameters[2] if x.function == "first" else x.parameters[1] for x in driver.launches[n:][:2]] for n in (0, 2)
    ]
    assert found[0][0] == found[0][1]
    assert begin <= found[0][0] < begin + size <= found[1][0] < begin + 2 * size


def test_a_batch_is_called_with_new_addresses_and_on_new_streams(driver):
    batch, first, second = batch_of_two(driver), bases(), bases()
    for given, stream in ((first, 0), (second, 0xABC), (first, 0xABC)):
        driver.stream = stream
        batch([t.data_ptr() for t in given])
    assert [x.parameters[0] for x in driver.launches[::4]] == [t[0].data_ptr() for t in (first, second, first)]
    assert [x.stream for x in driver.launches] == [0] * 4 + [0xABC] * 8


def test_a_descriptor_of_a_batch_is_a_map_of_the_tensor_of_the_call(driver):
    driver.parameter_counts["first"] = 8
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS[:1], (MAPPED,))
    found = []

    def watched(config, function, parameters, extra):
        pointers = (ctypes.c_void_p * 8).from_address(parameters)
        found.append(ctypes.c_uint64.from_address(pointers[1]).value)
        sizes = [ctypes.c_uint64.from_address(p).value for p in pointers[2:6]]
        assert sizes == [4, 16, 24, 1]
        return 0

    driver.launch = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(watched)
    batch = launcher.batch([PlacedLaunch(launcher, ((0, 0), (1, 0), (2, 0)), (3, 0))])
    calls = [bases(), bases()]
    for given in (*calls, calls[0]):
        batch([t.data_ptr() for t in given])
    assert found == [t[0].data_ptr() for t in (*calls, calls[0])]


def test_a_batch_that_the_driver_refuses_raises_its_words_and_the_next_one_runs(driver):
    batch, given = batch_of_two(driver), [t.data_ptr() for t in bases()]
    driver.failures.append(driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS)
    with pytest.raises(RuntimeError, match="CUDA_ERROR_ILLEGAL_ADDRESS: said the driver"):
        batch(given)
    assert driver.launches == []
    batch(given)
    assert len(driver.launches) == 4


def test_a_batch_in_a_thread_without_a_context_gets_the_launchers(driver):
    batch, given = batch_of_two(driver), [t.data_ptr() for t in bases()]
    driver.failures.append(driver.CUresult.CUDA_ERROR_INVALID_CONTEXT)
    batch(given)
    assert (driver.contexts_set, len(driver.launches)) == (1, 4)


def test_threads_may_call_a_batch_at_the_same_time(driver):
    batch, calls = batch_of_two(driver), [bases() for _ in range(32)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda given: batch([t.data_ptr() for t in given]), calls))
    found = sorted(tuple(x.parameters[:2]) for x in driver.launches if x.function == "first")
    wanted = [(a.data_ptr() + n, b.data_ptr() + n) for a, b, *_ in calls for n in (0, 256)]
    assert found == sorted(wanted)
