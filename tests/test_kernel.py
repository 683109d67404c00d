"""Calling a kernel on tensors: what is accepted, what is copied, what is refused. The launch itself is a fake."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from autosched.backends.backend import Artefact
from autosched.kernel import Kernel
from search_spaces import InputError, OutOfMemoryError, Schedule, ops
from search_spaces.target import cpu
from tuning_logs import CompileFacts, Measurement, Provenance, TuningRecord

TARGET = cpu("Imaginary CPU", lanes=8, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11)
OP = ops.pointwise(6, 8, "residual")


class AddLauncher:
    """x + residual, as generated code would do it: on contiguous, aligned memory only."""

    def __init__(self) -> None:
        self.calls: list[tuple[torch.Tensor, ...]] = []

    def __call__(self, buffers: Sequence[torch.Tensor]) -> None:
        assert all(b.is_contiguous() and b.data_ptr() % 64 == 0 for b in buffers)
        self.calls.append(tuple(buffers))
        x, residual, out = buffers
        torch.add(x.detach(), residual.detach(), out=out.detach())

    def unload(self) -> None:
        pass


@pytest.fixture
def launcher() -> AddLauncher:
    return AddLauncher()


@pytest.fixture
def kernel(launcher: AddLauncher) -> Kernel:
    schedule = Schedule("made_up", (("width", 4),))
    provenance = Provenance("hash", "cold", 0.0, 0, 0)
    record = TuningRecord(OP, TARGET, schedule, Measurement("ok", (1e-6,)), provenance)
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


def test_out_is_written_and_returned(
    kernel: Kernel, launcher: AddLauncher, x: torch.Tensor, residual: torch.Tensor
) -> None:
    out = torch.empty(6, 8)
    assert kernel(x, residual, out=out) is out
    assert launcher.calls[0][2] is out
    torch.testing.assert_close(out, x + residual)


def test_ready_inputs_are_not_copied(
    kernel: Kernel, launcher: AddLauncher, x: torch.Tensor, residual: torch.Tensor
) -> None:
    kernel(x, residual)
    assert launcher.calls[0][0] is x
    assert launcher.calls[0][1] is residual


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
    kernel: Kernel, x: torch.Tensor, residual: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*shape: object, **options: object) -> torch.Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(torch, "empty", refuse)
    with pytest.raises(OutOfMemoryError, match=r"the elements of out\[6, 8\] float32 need"):
        kernel(x, residual)


def test_a_kernel_shows_its_source_and_where_it_comes_from(kernel: Kernel) -> None:
    assert kernel.source == "the source"
    assert kernel.workload == OP
    assert "width=4" in repr(kernel)
