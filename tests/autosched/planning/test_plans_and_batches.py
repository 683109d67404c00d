"""Plans whose launches are those of a GPU, with a driver that writes down what it is asked."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from autosched.machine.garbage import without_collections
from autosched.planning import Launch, Layout, Plan, Slot
from autosched.planning.stream_order import StreamOrder

fake = pytest.importorskip("fake_cuda_driver", reason="needs cuda-bindings")
cuda_launch = pytest.importorskip("autosched.backends.gpu.launch", reason="needs cuda-bindings")


@dataclass(frozen=True)
class Kernel:
    """Of two inputs, the second of which is the first of the code."""

    batched: Any
    constants = None
    early = False
    order = (1, 0)

    def launch(self, addresses: Any, prepared: Any = ()) -> None:
        raise AssertionError("launched by itself")


@pytest.mark.parametrize("graphs", [False, True])
def test_launches_get_the_addresses_of_their_slots_and_workspaces_apart_from_these(
    monkeypatch: pytest.MonkeyPatch, graphs: bool
) -> None:
    driver = fake.installed(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(StreamOrder, "come_after_the_last", lambda order, shared: None)
    launcher = cuda_launch.CudaLauncher(fake.PROGRAM, fake.CUBINS, (fake.FIRST, fake.SECOND))
    made = Slot(Layout((64,), (1,), torch.float32))
    launches = [Launch(Kernel(launcher), ((n - 1, 0), (0, 0)), (n,)) for n in range(1, 5)]
    plan = Plan([Slot(), made, made, made, made], launches, {4}, torch.device("cpu"), graphs)
    for _ in range(2):
        driver.launches.clear()
        given = torch.zeros(64)
        tensors: list[Any] = [given]
        plan(tensors, [given.data_ptr()])
        firsts, seconds = driver.launches[::2], driver.launches[1::2]
        outputs = [x.parameters[0] for x in seconds]
        assert outputs[-1] == tensors[4].data_ptr()
        assert [x.parameters[0] for x in firsts] == [given.data_ptr()] * 4
        assert [x.parameters[1] for x in firsts] == [given.data_ptr(), *outputs[:-1]]
        for number, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
            partial, scratch = first.parameters[2], second.parameters[2]
            assert partial == second.parameters[1]
            spans = [(first.parameters[1], 256), (outputs[number], 256), (partial, 512), (scratch, 384 * 14)]
            for (one, size), (other, _) in zip(sorted(spans), sorted(spans)[1:], strict=False):
                assert one + size <= other
    assert driver.graphs_launched == 2 * graphs


@pytest.mark.parametrize("moves", [False, True], ids=["at the same addresses", "where the input has moved"])
def test_a_call_runs_as_much_python_for_many_launches_as_for_few(monkeypatch: pytest.MonkeyPatch, moves: bool) -> None:
    fake.installed(monkeypatch)
    launcher = cuda_launch.CudaLauncher(fake.PROGRAM, fake.CUBINS, (fake.FIRST, fake.SECOND))
    made = Slot(Layout((64,), (1,), torch.float32))

    def calls_of_python(count: int) -> int:
        launches = [Launch(Kernel(launcher), ((n - 1, 0), (0, 0)), (n,)) for n in range(1, count + 1)]
        plan = Plan([Slot(), *[made] * count], launches, {count}, torch.device("cpu"))
        inputs = [torch.zeros(64) for _ in range(2)]
        found = 0

        def counted(frame: Any, event: str, _: Any) -> None:
            nonlocal found
            found += event in ("call", "c_call") and frame.f_globals["__name__"].startswith("autosched.")

        for number in range(3):
            given = inputs[number % 2 if moves else 0]
            tensors, addresses = [given], [given.data_ptr()]
            found = 0
            # Finalizers of what earlier tests left would be counted, too.
            with without_collections():
                sys.setprofile(counted)
                try:
                    plan(tensors, addresses)
                finally:
                    sys.setprofile(None)
        return found

    assert calls_of_python(24) == calls_of_python(3) > 0
