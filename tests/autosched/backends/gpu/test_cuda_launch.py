"""What the launcher asks of the CUDA driver, with a driver that writes down what it is asked."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from autosched.backends.backend import LoadError
from autosched.backends.gpu.kernel import CudaKernel, Window, kernels_from_json, kernels_to_json
from search_spaces.workloads.dtypes import DTYPES

fake = pytest.importorskip("fake_cuda_driver", reason="needs cuda-bindings")
cuda_launch = pytest.importorskip("autosched.backends.gpu.launch", reason="needs cuda-bindings")
parameters = pytest.importorskip("autosched.backends.gpu.parameters", reason="needs cuda-bindings")
tensor_maps = pytest.importorskip("autosched.backends.gpu.tensor_maps", reason="needs cuda-bindings")
PROGRAM, FIRST, SECOND, CUBINS, MAP, MAPPED = (
    fake.PROGRAM,
    fake.FIRST,
    fake.SECOND,
    fake.CUBINS,
    fake.MAP,
    fake.MAPPED,
)


@pytest.fixture
def driver(monkeypatch):
    return fake.installed(monkeypatch)


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


def mapped(driver, *calls: list[torch.Tensor], kernel: CudaKernel = MAPPED) -> list[tuple[int, list[int]]]:
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
    assert driver.maps == [fake.Encoding(half, [16, 4], [48], [8, 2], 1)]


# Of 2 images of 8 rows of 6 columns of 64 channels.
WINDOW = Window((-1, -2), (0, 1), (2, 3))
WINDOWED = replace(MAP, shape=(2, 8, 6, 64), strides=(3072, 384, 64, 1), box=(128, 32), swizzle=2, window=WINDOW)


def test_an_im2col_map_has_corners_and_steps_of_columns_before_those_of_rows(driver):
    (a, b, out), driver.version = tensors(), 13010
    found = mapped(driver, [a, b, out], kernel=replace(MAPPED, maps=(WINDOWED,)))
    assert driver.windows == [([-2, -1], [1, 0], 32, 128, [1, 3, 2, 1])]
    half = int(driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16)
    assert driver.maps == [fake.Encoding(half, [64, 6, 8, 2], [128, 768, 6144], [], 2)]
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


def test_a_thread_without_a_context_gets_it_before_a_map_is_made(driver):
    driver.parameter_counts["first"] = 8
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS[:1], (MAPPED,))
    driver.map_failures = [driver.CUresult.CUDA_ERROR_INVALID_CONTEXT]
    launcher(tensors())
    assert driver.contexts_set == 1
    assert [launch.function for launch in driver.launches] == ["first"]


def test_an_unloaded_launcher_says_so(driver):
    launcher = cuda_launch.CudaLauncher(PROGRAM, CUBINS, (FIRST, SECOND))
    launcher.unload()
    assert driver.unloaded == list(CUBINS)
    with pytest.raises(RuntimeError, match="unloaded"):
        launcher(tensors())


def test_every_element_type_can_be_moved_by_descriptor() -> None:
    assert set(DTYPES) == set(tensor_maps._TYPES)
