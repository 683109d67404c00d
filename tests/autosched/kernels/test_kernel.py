"""Calling a kernel on tensors: what is accepted, what is copied, what is refused. The launch itself is a fake."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from autosched.backends.backend import Artefact, Launcher
from autosched.kernels import dispatch
from autosched.kernels.dispatch import Argument
from autosched.kernels.kernel import Kernel
from search_spaces import Axis, InputError, OutOfMemoryError, Schedule, Stage, Workload, ops
from search_spaces import Tensor as TensorSpec
from search_spaces.devices.target import cpu
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access
from tuning_logs import CompileFacts, Measurement, Provenance, TuningRecord

TARGET = cpu("Imaginary CPU", lanes=8, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11)
OP = ops.pointwise(6, 8, "residual")


class AddLauncher:
    """x + residual, as generated code would do it: on dense, aligned memory only."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, ...]] = []

    def __call__(self, buffers: Sequence[torch.Tensor]) -> None:
        self.launch([b.data_ptr() for b in buffers])

    def launch(self, addresses: Sequence[int]) -> None:
        assert all(address % 64 == 0 for address in addresses)
        self.calls.append(tuple(addresses))
        x, residual, out = (np.ctypeslib.as_array((ctypes.c_float * 48).from_address(a)) for a in addresses)
        np.add(x, residual, out=out)

    def unload(self) -> None:
        pass


@pytest.fixture
def launcher() -> AddLauncher:
    return AddLauncher()


@pytest.fixture
def kernel(launcher: AddLauncher) -> Kernel:
    return kernel_of(launcher)


def kernel_of(launcher: Launcher, workload: Workload = OP) -> Kernel:
    schedule = Schedule("made_up", (("width", 4),))
    provenance = Provenance("hash", "cold", 0.0, 0, 0)
    record = TuningRecord(workload, TARGET, schedule, Measurement("ok", (1e-6,)), provenance)
    artefact = Artefact("fake", "the source", (), CompileFacts(0.1), "")
    return Kernel(record, schedule, artefact, launcher)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(6, 8)


@pytest.fixture
def residual() -> torch.Tensor:
    return torch.randn(6, 8)


def test_a_call_returns_a_new_tensor(kernel: Kernel, x: torch.Tensor, residual: torch.Tensor) -> None:
    torch.testing.assert_close(kernel(x, residual), x + residual)


def test_a_printed_kernel_names_the_tensors_of_its_source(launcher: AddLauncher) -> None:
    op = ops.matmul(6, 8, 4, dtype="float16", epilogue="bias")
    told = dict(line.strip().split(": ") for line in str(kernel_of(launcher, op)).split("\n")[1:])
    assert {*told} == {"in0", "in1", "in2", "out0"}
    for number, place in enumerate(op.canonical.inputs):
        tensor = op.inputs[place]
        assert told[f"in{number}"] == f"{tensor.name}{list(tensor.shape)} float16"


def test_out_is_written_and_returned(
    kernel: Kernel, launcher: AddLauncher, x: torch.Tensor, residual: torch.Tensor
) -> None:
    out = torch.empty(6, 8)
    assert kernel(x, residual, out=out) is out
    assert launcher.calls[0][2] == out.data_ptr()
    torch.testing.assert_close(out, x + residual)


def test_ready_inputs_are_not_copied(
    kernel: Kernel, launcher: AddLauncher, x: torch.Tensor, residual: torch.Tensor
) -> None:
    kernel(x, residual)
    assert launcher.calls[0][0] == x.data_ptr()
    assert launcher.calls[0][1] == residual.data_ptr()


def test_an_input_that_is_not_contiguous_is_copied(kernel: Kernel, residual: torch.Tensor) -> None:
    x = torch.randn(8, 6).T
    torch.testing.assert_close(kernel(x, residual), x + residual)


def test_an_input_expanded_from_a_row_is_copied(kernel: Kernel, residual: torch.Tensor) -> None:
    x = torch.randn(8).expand(6, 8)
    torch.testing.assert_close(kernel(x, residual), x + residual)


def test_a_misaligned_input_is_copied(kernel: Kernel, residual: torch.Tensor) -> None:
    x = torch.randn(49)[1:].view(6, 8)
    assert x.data_ptr() % 64
    torch.testing.assert_close(kernel(x, residual), x + residual)


@pytest.mark.parametrize("how", ["transposed", "misaligned"])
def test_an_awkward_out_is_written_by_way_of_a_temporary(
    kernel: Kernel, x: torch.Tensor, residual: torch.Tensor, how: str
) -> None:
    out = torch.empty(8, 6).T if how == "transposed" else torch.empty(49)[1:].view(6, 8)
    assert kernel(x, residual, out=out) is out
    torch.testing.assert_close(out, x + residual)


def test_the_same_tensor_may_be_given_for_two_inputs(kernel: Kernel, x: torch.Tensor) -> None:
    torch.testing.assert_close(kernel(x, x), 2 * x)


def test_a_wrong_number_of_tensors_is_refused(kernel: Kernel, x: torch.Tensor, residual: torch.Tensor) -> None:
    with pytest.raises(InputError, match=r"takes 2 tensors \(x\[6, 8\] float32, residual\[6, 8\] float32\), got 1"):
        kernel(x)
    with pytest.raises(InputError, match="got 3"):
        kernel(x, residual, residual)


def test_a_wrong_shape_is_refused(kernel: Kernel, x: torch.Tensor) -> None:
    with pytest.raises(InputError, match=r"residual: shape \[8, 6\], expected \[6, 8\]"):
        kernel(x, torch.randn(8, 6))


def test_a_wrong_dtype_is_refused(kernel: Kernel, x: torch.Tensor) -> None:
    with pytest.raises(InputError, match=r"residual: dtype torch\.float64, expected torch\.float32"):
        kernel(x, torch.randn(6, 8, dtype=torch.float64))


def test_a_wrong_device_is_refused(kernel: Kernel, x: torch.Tensor) -> None:
    with pytest.raises(InputError, match="residual: device meta, expected cpu"):
        kernel(x, torch.randn(6, 8, device="meta"))


def test_a_sparse_tensor_is_refused(kernel: Kernel, x: torch.Tensor) -> None:
    with pytest.raises(InputError, match=r"residual: layout torch\.sparse_coo, expected torch\.strided"):
        kernel(x, torch.randn(6, 8).to_sparse())


def test_something_that_is_no_tensor_is_refused(kernel: Kernel, x: torch.Tensor) -> None:
    with pytest.raises(InputError, match=r"residual: expected a torch\.Tensor .*, got list"):
        kernel(x, [1.0])


def test_a_wrong_out_is_refused(kernel: Kernel, launcher: AddLauncher, x: torch.Tensor, residual: torch.Tensor) -> None:
    for out in (torch.empty(6, 9), torch.empty(6, 8, dtype=torch.float16)):
        with pytest.raises(InputError, match="out: "):
            kernel(x, residual, out=out)
    assert not launcher.calls


def test_out_may_not_overlap_an_input(
    kernel: Kernel, launcher: AddLauncher, x: torch.Tensor, residual: torch.Tensor
) -> None:
    kept = x.clone()
    with pytest.raises(InputError, match="out overlaps x in memory"):
        kernel(x, residual, out=x)
    memory = torch.randn(12, 8)
    with pytest.raises(InputError, match="out overlaps residual in memory"):
        kernel(x, memory[:6], out=memory[4:10])
    assert not launcher.calls
    torch.testing.assert_close(x, kept)


def test_an_out_whose_elements_share_memory_is_refused(kernel: Kernel, x: torch.Tensor, residual: torch.Tensor) -> None:
    with pytest.raises(InputError, match="several elements in one"):
        kernel(x, residual, out=torch.empty(8).expand(6, 8))


def test_an_input_that_requires_a_gradient_is_refused_unless_gradients_are_off(
    kernel: Kernel, residual: torch.Tensor
) -> None:
    x = torch.randn(6, 8, requires_grad=True)
    with pytest.raises(InputError, match=r"x requires a gradient.*x\.detach\(\)"):
        kernel(x, residual)
    with torch.no_grad():
        torch.testing.assert_close(kernel(x, residual), x + residual)


def test_an_output_that_does_not_fit_in_memory_is_named(
    x: torch.Tensor, residual: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> torch.Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(dispatch, "allocator", lambda *_: refuse)
    with pytest.raises(OutOfMemoryError, match=r"the elements of out\[6, 8\] float32 need"):
        kernel_of(AddLauncher())(x, residual)


def test_a_kernel_shows_its_source_and_where_it_comes_from(kernel: Kernel) -> None:
    assert kernel.source == "the source"
    assert kernel.workload == OP
    assert "width=4" in repr(kernel)


class PaddedLauncher:
    """Copies rows of 8 that lie 12 apart to a dense output, and keeps the address of what it read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __call__(self, buffers: Sequence[torch.Tensor]) -> None:
        self.launch([b.data_ptr() for b in buffers])

    def launch(self, addresses: Sequence[int]) -> None:
        self.read.append(addresses[0])
        # Six rows, the last one without the gap after it.
        memory = np.ctypeslib.as_array((ctypes.c_float * 68).from_address(addresses[0]))
        out = np.ctypeslib.as_array((ctypes.c_float * 48).from_address(addresses[1])).reshape(6, 8)
        out[:] = np.lib.stride_tricks.as_strided(memory, (6, 8), (48, 4))

    def unload(self) -> None:
        pass


def copying(strides: tuple[int, int], dtype: str = "float32") -> Workload:
    stage = Stage("y", (Axis("r", 6), Axis("c", 8)), Access("x", (axis_index("r"), axis_index("c"))))
    return Workload("copying", (TensorSpec("x", (6, 8), dtype, strides),), (stage,))


def test_an_input_of_the_declared_strides_is_not_copied() -> None:
    launcher = PaddedLauncher()
    kernel, x = kernel_of(launcher, copying((12, 1))), torch.randn(6, 12)[:, :8]
    torch.testing.assert_close(kernel(x), x)
    assert launcher.read == [x.data_ptr()]


@pytest.mark.parametrize("how", ["dense", "transposed", "padded more"])
def test_an_input_of_other_strides_is_copied_to_the_declared_ones(how: str) -> None:
    launcher = PaddedLauncher()
    x = {"dense": torch.randn(6, 8), "transposed": torch.randn(8, 6).T, "padded more": torch.randn(6, 16)[:, :8]}[how]
    torch.testing.assert_close(kernel_of(launcher, copying((12, 1)))(x), x)
    assert launcher.read != [x.data_ptr()]


def argument(shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: str = "float32") -> Argument:
    return Argument(TensorSpec("x", shape, dtype, strides), torch.device("cpu"), 64)


def test_a_matrix_that_a_batch_shares_is_copied_once_and_must_be_shared() -> None:
    shared = argument((3, 2, 4), (0, 4, 1))
    x = torch.randn(4, 2).T.expand(3, 2, 4)
    shared.check(x)
    copy = shared.usable(x)
    assert copy.stride() == (0, 4, 1)
    torch.testing.assert_close(copy, x)
    with pytest.raises(InputError, match=r"x: stride 8 in dimension 0, .*expected stride 0, as of tensor\.expand"):
        shared.check(torch.randn(3, 2, 4))


def test_the_stride_of_a_dimension_of_size_one_does_not_matter() -> None:
    padded, x = argument((1, 6, 8), (72, 12, 1)), torch.randn(6, 12).as_strided((1, 6, 8), (5, 12, 1))
    assert padded.usable(x) is x


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "int8", "int32", "bfloat16"])
def test_every_dtype_is_allocated_and_copied(dtype: str) -> None:
    wanted = argument((2, 3), None, dtype)
    x = torch.arange(6).reshape(3, 2).T.to(wanted.dtype)
    found = wanted.usable(x)
    assert found.is_contiguous()
    assert found.dtype is x.dtype
    torch.testing.assert_close(found.float(), x.float())


def test_a_parameter_is_taken_as_it_is_where_no_gradient_is_recorded(
    kernel: Kernel, launcher: AddLauncher, residual: torch.Tensor
) -> None:
    x = torch.nn.Parameter(torch.randn(6, 8))
    with torch.inference_mode():
        kernel(x, residual)
    assert launcher.calls[0][0] == x.data_ptr()
