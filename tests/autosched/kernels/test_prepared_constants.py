"""Constants that a kernel stores in another layout: once for a tensor, and again when that has changed."""

from __future__ import annotations

import gc
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

import autosched
import best_spaces
from autosched import ops
from autosched.kernels import prepared_constants
from autosched.kernels.kernel import Kernel
from autosched.kernels.prepared_constants import PreparedConstants
from autosched.kernels.static_tensors import StaticTensors
from autosched.machine import devices
from needed import needs_gpu
from schedule_checks import tried
from search_spaces import InputError, Schedule, Target, Workload
from untuned import untuned_kernel, untuned_kernels

CPU = devices.cpu_target()
LINEAR = ops.matmul(24, 40, 56, layout="nt", constant="b")
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def schedule(workload: Workload, target: Target, prepares: bool = True) -> Schedule:
    space = best_spaces.build(workload, target)
    return next(s for s in tried(space, 400, 0) if bool(s.program.prepared) is prepares)


class Counted:
    """A launcher that counts what it prepares."""

    def __init__(self, launcher) -> None:
        self.launcher, self.prepared = launcher, 0

    def launch(self, addresses, prepared=()) -> None:
        self.launcher.launch(addresses, prepared)

    def prepare(self, number, constant, memory=None) -> Tensor:
        self.prepared += 1
        return self.launcher.prepare(number, constant, memory)


def counted(kernel: Kernel) -> tuple[Kernel, Counted]:
    launcher = Counted(kernel._launcher)
    return Kernel(kernel.record, kernel.schedule, kernel.artefact, launcher, kernel.workload), launcher


@pytest.fixture
def kernel() -> tuple[Kernel, Counted]:
    return counted(untuned_kernel(schedule(LINEAR, CPU), LINEAR, CPU))


def operands() -> tuple[Tensor, Tensor]:
    return torch.randn(24, 56), torch.randn(40, 56)


def test_a_tensor_is_prepared_at_its_first_call_only(kernel) -> None:
    kernel, launcher = kernel
    x, weight = operands()
    for _ in range(3):
        torch.testing.assert_close(kernel(x, weight), F.linear(x, weight), **CLOSE)
    assert launcher.prepared == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.mul_(3),
        lambda w: w[3:5].zero_(),
        lambda w: w.view(-1).copy_(torch.randn(w.numel())),
        lambda w: w.detach().add_(1),
        lambda w: setattr(w, "data", torch.randn(40, 56)),
    ],
    ids=["in place", "in a part", "through a view", "detached", "other memory"],
)
def test_a_changed_tensor_is_prepared_again(kernel, change) -> None:
    kernel, launcher = kernel
    x, weight = operands()
    kernel(x, weight)
    change(weight)
    torch.testing.assert_close(kernel(x, weight), F.linear(x, weight), **CLOSE)
    assert launcher.prepared == 2


def test_a_step_of_an_optimizer_changes_the_result(kernel) -> None:
    kernel, _ = kernel
    x, weight = operands()
    parameter = nn.Parameter(weight)
    with torch.no_grad():
        kernel(x, parameter)
    parameter.grad = torch.ones_like(weight)
    torch.optim.SGD([parameter], lr=0.5).step()
    with torch.no_grad():
        torch.testing.assert_close(kernel(x, parameter), F.linear(x, parameter), **CLOSE)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_fused_step_of_an_optimizer_does_too(kernel, optimizer) -> None:
    """It does not raise the version counters of what it changes."""
    kernel, _ = kernel
    x, weight = operands()
    weight.requires_grad_()
    kernel(x, weight.detach())
    F.linear(x, weight).sum().backward()
    optimizer([weight], lr=0.5, fused=True).step()
    torch.testing.assert_close(kernel(x, weight.detach()), F.linear(x, weight.detach()), **CLOSE)


def test_memory_that_replaces_another_is_prepared_anew(kernel) -> None:
    """An allocator gives the same address again."""
    kernel, _ = kernel
    x, weight = operands()
    layer = nn.Linear(56, 40, bias=False).requires_grad_(False)
    layer.weight.data = weight
    kernel(x, layer.weight)
    for _ in range(4):
        layer.weight.data = torch.randn(40, 56)
        layer.half().float()
        torch.testing.assert_close(kernel(x, layer.weight), F.linear(x, layer.weight), **CLOSE)


def test_parts_of_a_tensor_have_memory_of_their_own(kernel) -> None:
    kernel, launcher = kernel
    x, weights = torch.randn(24, 56), torch.randn(2, 40, 56)

    def compute(n: int) -> None:
        for _ in range(100):
            torch.testing.assert_close(kernel(x, weights[n]), F.linear(x, weights[n]), **CLOSE)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compute, range(2)))
    assert launcher.prepared == 2


def test_prepared_memory_goes_with_its_kernel() -> None:
    kernel, _ = counted(untuned_kernel(schedule(LINEAR, CPU), LINEAR, CPU))
    x, weight = operands()
    kernel(x, weight)
    (known,) = kernel.constants._known.values()
    memory = weakref.ref(known.memory)
    gc.disable()
    try:
        del known, kernel
        assert memory() is None
    finally:
        gc.enable()


def test_several_tensors_are_prepared_side_by_side_and_forgotten_with_them(kernel) -> None:
    kernel, launcher = kernel
    x, weights = torch.randn(24, 56), [torch.randn(40, 56) for _ in range(3)]
    for weight in (*weights, *weights):
        torch.testing.assert_close(kernel(x, weight), F.linear(x, weight), **CLOSE)
    assert launcher.prepared == 3
    assert len(kernel.constants._known) == 3
    del weight, weights
    gc.collect()
    assert not kernel.constants._known


def test_memory_is_of_the_stream_that_it_was_made_on_when_another_prepares_in_it_again(kernel, monkeypatch) -> None:
    kernel, _ = kernel
    x, weight = operands()
    for stream in (1, 2):
        monkeypatch.setattr(prepared_constants, "stream_on", lambda _, now=stream: now)
        kernel(x, weight)
        weight.mul_(2)
    assert [known.streams for known in kernel.constants._known.values()] == [{1}]


def test_kernels_come_and_go_while_the_step_of_an_optimizer_ends(kernel) -> None:
    made = [PreparedConstants(kernel[1], (), torch.device("cpu")), StaticTensors(()), StaticTensors([None])]
    hooks = [
        register_optimizer_step_post_hook(lambda *_: made.clear()),
        register_optimizer_step_post_hook(lambda *_: made.append(StaticTensors([None]))),
    ]
    try:
        torch.optim.SGD([nn.Parameter(torch.zeros(1))]).step()
    finally:
        for hook in hooks:
            hook.remove()
    assert len(made) == 1


def test_a_new_view_of_changed_memory_is_prepared_anew(kernel) -> None:
    kernel, _ = kernel
    x, memory = torch.randn(24, 56), torch.randn(40, 56)
    kernel(x, memory[:])
    memory.mul_(2)
    torch.testing.assert_close(kernel(x, memory[:]), F.linear(x, memory), **CLOSE)


def test_new_views_of_a_tensor_are_prepared_once_until_it_changes(kernel) -> None:
    kernel, launcher = kernel
    x, memory = torch.randn(24, 56), torch.randn(40, 56)
    for _ in range(3):
        torch.testing.assert_close(kernel(x, memory[:]), F.linear(x, memory), **CLOSE)
    assert launcher.prepared == 1
    memory.mul_(2)
    torch.testing.assert_close(kernel(x, memory.view(40, 56)), F.linear(x, memory), **CLOSE)
    assert launcher.prepared == 2


def test_a_square_tensor_and_its_transpose_are_two() -> None:
    op = ops.matmul(24, 56, 56, layout="nt", constant="b")
    kernel, _ = counted(untuned_kernel(schedule(op, CPU), op, CPU))
    x, weight = torch.randn(24, 56), torch.randn(56, 56)
    for given in (weight, weight.t(), weight, weight.t_()):
        torch.testing.assert_close(kernel(x, given), F.linear(x, given), **CLOSE)


def test_a_constant_with_other_strides_is_prepared_once(kernel) -> None:
    kernel, launcher = kernel
    x, weight = torch.randn(24, 56), torch.randn(56, 40).t()
    for _ in range(2):
        torch.testing.assert_close(kernel(x, weight), F.linear(x, weight), **CLOSE)
    assert launcher.prepared == 1


def test_tensors_of_inference_mode_are_right_after_changes(kernel) -> None:
    kernel, _ = kernel
    with torch.inference_mode():
        x, weight = operands()
        kernel(x, weight)
        weight.mul_(2)
        torch.testing.assert_close(kernel(x, weight), F.linear(x, weight), **CLOSE)


def test_a_wrong_constant_is_refused_before_it_is_read(kernel) -> None:
    kernel, launcher = kernel
    x, _ = operands()
    with pytest.raises(InputError, match="shape"):
        kernel(x, torch.randn(4, 56))
    with pytest.raises(InputError, match="shape"):
        kernel.prepare(torch.randn(4, 56))
    assert launcher.prepared == 0


def test_threads_prepare_a_tensor_once(kernel) -> None:
    kernel, launcher = kernel
    x, weight = operands()
    expected = F.linear(x, weight)
    with ThreadPoolExecutor(8) as pool:
        for made in pool.map(lambda _: kernel(x, weight), range(64)):
            torch.testing.assert_close(made, expected, **CLOSE)
    assert launcher.prepared == 1


@pytest.mark.parametrize("prepares", [True, False], ids=["prepared", "in place"])
def test_a_kernel_takes_what_it_prepared_in_the_place_of_the_tensor(prepares: bool) -> None:
    kernel, launcher = counted(untuned_kernel(schedule(LINEAR, CPU, prepares), LINEAR, CPU))
    x, weight = operands()
    ready = kernel.prepare(weight)
    out = torch.empty(24, 40)
    assert kernel(x, ready, out=out) is out
    torch.testing.assert_close(out, F.linear(x, weight), **CLOSE)
    torch.testing.assert_close(kernel(x, ready), F.linear(x, weight), **CLOSE)
    weight.mul_(2)
    torch.testing.assert_close(kernel(x, ready), F.linear(x, weight), **CLOSE)
    weight.data.mul_(2)
    ready.update()
    torch.testing.assert_close(kernel(x, ready), F.linear(x, weight), **CLOSE)
    assert launcher.prepared == 3 * prepares


def test_memory_that_kernels_share_is_prepared_again_by_any_of_them(kernel) -> None:
    first, launcher = kernel
    other, further = counted(first)
    x, weight = operands()
    ready = first.prepare(weight)
    shared = other.prepare(weight, earlier=[ready])
    weight.mul_(2)
    torch.testing.assert_close(other(x, shared), F.linear(x, weight), **CLOSE)
    torch.testing.assert_close(first(x, ready), F.linear(x, weight), **CLOSE)
    assert (launcher.prepared, further.prepared) == (2, 0)


@pytest.mark.parametrize("prepares", [True, False], ids=["prepared", "in place"])
def test_what_another_kernel_prepared_is_refused(prepares: bool) -> None:
    kernel, other = (counted(untuned_kernel(schedule(LINEAR, CPU, prepares), LINEAR, CPU))[0] for _ in range(2))
    x, weight = operands()
    with pytest.raises(InputError, match="prepared by another kernel"):
        kernel(x, other.prepare(weight))
    with pytest.raises(InputError, match=r"expected one with the name of one of \['b'\]"):
        kernel.prepare(weight, "a")
    ((_, plain),) = untuned_kernels([ops.matmul(24, 40, 56, layout="nt")], CPU).items()
    with pytest.raises(InputError, match="a weight to prepare; expected one of operators with `constant=…`"):
        plain.prepare(weight)


def test_a_kernel_is_the_same_after_pickling(kernel) -> None:
    kernel, _ = kernel
    x, weight = operands()
    torch.testing.assert_close(pickle.loads(pickle.dumps(kernel))(x, weight), F.linear(x, weight), **CLOSE)


def test_a_record_says_what_is_prepared_and_replay_prepares_it(tmp_path) -> None:
    op, log = ops.matmul(8, 256, 256, layout="nt", constant="b"), tmp_path / "tuning.jsonl"
    autosched.tune(op, CPU, trials=6, log=log)
    records = autosched.TuningLog(log).records()
    assert {dict(r.schedule.values)["pack_b"] for r in records} >= {"prepared"}
    assert all(r.measurement.ok for r in records)
    kernel = autosched.replay(op, CPU, log=log)
    x, weight = torch.randn(8, 256), torch.randn(256, 256)
    torch.testing.assert_close(kernel(x, weight), F.linear(x, weight), rtol=1e-4, atol=1e-3)


def test_a_record_without_constants_is_replayed_for_a_workload_with_them(tmp_path) -> None:
    log = tmp_path / "tuning.jsonl"
    autosched.tune(LINEAR.varying, CPU, trials=2, log=log)
    x, weight = operands()
    torch.testing.assert_close(autosched.replay(LINEAR, CPU, log=log)(x, weight), F.linear(x, weight), **CLOSE)


class Layers(nn.Module):
    """Two products with equal sizes, and what stands between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(56, 56), nn.Linear(56, 56)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.second(torch.relu(self.first(x))), 0)


def test_weights_of_a_module_are_prepared_once_and_again_after_changes() -> None:
    module, x = Layers().requires_grad_(False), torch.randn(24, 56)
    traced = autosched.trace(module, x)
    cut = next(c for c in traced.cuts if all(any(t.constant for t in w.inputs) for w in c.workloads[:2]))
    kernels = {w.key: untuned_kernel(_schedule(w), w, CPU) for w in cut.workloads}
    kernel = autosched.TracedKernel(cut, kernels)
    torch.testing.assert_close(kernel(x), module(x), **CLOSE)
    known = [k.constants._known for k in kernel.kernels if k.constants is not None]
    assert known
    before = [dict(k) for k in known]
    kernel(x)
    assert [dict(k) for k in known] == before
    module.first.weight.mul_(2)
    module.load_state_dict(Layers().state_dict())
    torch.testing.assert_close(kernel(x), module(x), **CLOSE)


def _schedule(workload: Workload) -> Schedule:
    found = list(tried(best_spaces.build(workload, CPU), 60, 0))
    return next((s for s in found if s.program.prepared), found[0])


@pytest.mark.gpu
@needs_gpu
class TestOnAGpu:
    op = ops.matmul(64, 50, 70, dtype="float16", layout="nt", constant="b")

    @pytest.fixture
    def kernel(self) -> Kernel:
        target = devices.gpu_target()
        return untuned_kernel(schedule(self.op, target), self.op, target)

    @staticmethod
    def operands() -> tuple[Tensor, Tensor]:
        return (torch.randn(n, 70, device="cuda", dtype=torch.float16) for n in (64, 50))

    close: ClassVar = {"rtol": 1e-2, "atol": 5e-2}

    def test_a_changed_tensor_is_prepared_again(self, kernel: Kernel) -> None:
        x, weight = self.operands()
        torch.testing.assert_close(kernel(x, weight), F.linear(x, weight), **self.close)
        weight.mul_(2)
        torch.testing.assert_close(kernel(x, weight), F.linear(x, weight), **self.close)

    def test_a_graph_that_was_warmed_reads_what_is_prepared_by_then(self, kernel: Kernel) -> None:
        x, weight = self.operands()
        kernel(x, weight)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = kernel(x, weight)
        graph.replay()
        torch.testing.assert_close(made, F.linear(x, weight), **self.close)
        weight.mul_(2)
        kernel(x, weight)
        graph.replay()
        torch.testing.assert_close(made, F.linear(x, weight), **self.close)

    def test_a_graph_that_was_not_warmed_prepares_at_every_replay(self, kernel: Kernel) -> None:
        x, weight = self.operands()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = kernel(x, weight)
        for _ in range(2):
            graph.replay()
            torch.testing.assert_close(made, F.linear(x, weight), **self.close)
            weight.mul_(2)

    def test_streams_share_what_one_of_them_prepared(self, kernel: Kernel) -> None:
        x, weight = self.operands()
        torch.cuda.synchronize()
        expected = F.linear(x, weight)
        made = []
        for stream in [torch.cuda.Stream() for _ in range(4)]:
            with torch.cuda.stream(stream):
                made.append(kernel(x, weight))
        torch.cuda.synchronize()
        for result in made:
            torch.testing.assert_close(result, expected, **self.close)
