"""Plans: their memory, and what they compute, with kernels written in NumPy."""

from __future__ import annotations

import ctypes
import gc
import itertools
import random
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import autosched.planning.runs as runs_module
from autosched.backends.backend import Batch, BatchLauncher, PlacedLaunch
from autosched.machine.torch_internals import allocator
from autosched.planning import Call, Launch, Layout, Plan, Slot, Step
from autosched.planning.stream_order import StreamOrder
from search_spaces import OutOfMemoryError

CPU = torch.device("cpu")
MIB = 2**20


@dataclass(frozen=True)
class Adding:
    """A kernel: element n of its only output is the sum of the elements n of its inputs, from their beginnings on
    where these are shorter, plus a number.

    `batched`: its launcher, if its launches are laid out with others.
    """

    sizes: tuple[int, ...]
    size: int
    number: float
    batched: BatchLauncher | None = None

    constants = None
    early = False

    @property
    def order(self) -> tuple[int, ...]:
        """The last input first."""
        return tuple(reversed(range(len(self.sizes))))

    def launch(self, addresses: Sequence[int], prepared: Sequence[int] = ()) -> None:
        *given, out = (
            np.ctypeslib.as_array((ctypes.c_float * n).from_address(address))
            for n, address in zip((*self.sizes, self.size), addresses, strict=True)
        )
        out[:] = sum((np.resize(x, self.size) for x in given), np.full(self.size, self.number, np.float32))


@dataclass
class BatchedAdding:
    """The launcher of an `Adding` whose launches are laid out together: they overwrite all of their workspaces."""

    kernel: Adding | None = None
    captured: int = 0

    def workspace_bytes(self, prepared: bool) -> int:
        assert not prepared
        return 600

    def batch(self, launches: Sequence[PlacedLaunch]) -> Batch:
        return AddingBatch(launches, self)


@dataclass(frozen=True)
class AddingBatch:
    launches: Sequence[PlacedLaunch]
    launcher: BatchedAdding

    def __call__(self, addresses: Sequence[int]) -> None:
        for launch in self.launches:
            assert isinstance(launch.launcher, BatchedAdding)
            assert launch.launcher.kernel is not None
            base, offset = launch.workspace
            ctypes.memset(addresses[base] + offset, 0xFF, 600)
            *given, out = (addresses[base] + offset for base, offset in launch.places)
            launch.launcher.kernel.launch([*reversed(given), out])

    def graph(self) -> AddingBatch:
        self.launcher.captured += 1
        return self


def layout(size: int) -> Slot:
    return Slot(Layout((size,), (1,), torch.float32))


def adding(sizes: Sequence[int], reads: Sequence[int], write: int, batched: bool = False) -> Launch:
    launcher = BatchedAdding() if batched else None
    kernel = Adding(tuple(sizes[n] for n in reads), sizes[write], write, launcher)
    if launcher is not None:
        launcher.kernel = kernel
    return Launch(kernel, tuple((n, 0) for n in reads), (write,))


def called(function: Callable[..., Sequence[Any]], reads: Sequence[int], writes: Sequence[int]) -> Call:
    """A call of a function of some slots' tensors that returns those of others."""

    def run(tensors: list[Any]) -> None:
        for slot, made in zip(writes, function(*(tensors[n] for n in reads)), strict=True):
            tensors[slot] = made

    return Call(run, tuple(reads), tuple(writes))


def run(plan: Plan, *given: Tensor) -> list[Any]:
    tensors: list[Any] = [*given]
    plan(tensors, [t.data_ptr() for t in given])
    return tensors


def chain(length: int, size: int, calls: Sequence[int] = ()) -> Plan:
    """Each slot is the one before it plus its number; where that is among `calls`, by PyTorch."""
    sizes = [size] * (length + 1)
    steps: list[Step] = [
        called(lambda x, n=n: [x + n], [n - 1], [n]) if n in calls else adding(sizes, [n - 1], n)
        for n in range(1, length + 1)
    ]
    slots = [Slot(), *(Slot() if n in calls else layout(size) for n in range(1, length + 1))]
    return Plan(slots, steps, {length}, CPU)


@pytest.fixture
def allocated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, weakref.ref[Tensor]]]:
    """Bytes of everything that plans allocate."""
    made: list[tuple[int, weakref.ref[Tensor]]] = []

    def watched(*arguments: Any) -> Callable[[], Tensor]:
        empty = allocator(*arguments)

        def counted() -> Tensor:
            tensor = empty()
            made.append((tensor.untyped_storage().nbytes(), weakref.ref(tensor)))
            return tensor

        return counted

    monkeypatch.setattr(runs_module, "allocator", watched)
    return made


@pytest.fixture
def graphs_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device without streams in the place of a GPU."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(StreamOrder, "come_after_the_last", lambda order, shared: None)


@pytest.mark.parametrize("way", ["one by one", "batched", "graphs"])
@pytest.mark.parametrize("seed", range(10))
def test_random_plans_compute_what_their_steps_do(seed: int, way: str, graphs_on_a_cpu: None) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice((1, 100, 257, 1000)) for _ in range(30)]
    steps: list[Step] = []
    slots = [Slot(), Slot()]
    given = [torch.randn(sizes[0]), torch.randn(sizes[1])]
    wanted = list(given)
    for number in range(2, len(sizes)):
        reads = rng.sample(range(max(0, number - 6), number), min(2, number))
        sums = torch.full((sizes[number],), float(number))
        for n in reads:
            sums = sums + torch.from_numpy(np.resize(wanted[n].numpy(), sizes[number]))
        wanted.append(sums)
        if rng.random() < 0.2:
            # A view of what it reads, as PyTorch's operators may return.
            wanted[-1] = wanted[reads[0]][: rng.randint(1, sizes[reads[0]])]
            sizes[number] = len(wanted[-1])
            steps.append(called(lambda x, size=sizes[number]: [x[:size]], [reads[0]], [number]))
            slots.append(Slot())
        else:
            steps.append(adding(sizes, reads, number, way != "one by one"))
            slots.append(layout(sizes[number]))
    kept = {len(sizes) - 1, *rng.sample(range(2, len(sizes)), 3)}
    plan = Plan(slots, steps, kept, CPU, graphs=way == "graphs")
    calls = [run(plan, *given) for _ in range(2)]
    for made, slot in itertools.product(calls, kept):
        torch.testing.assert_close(made[slot], wanted[slot])


def test_a_call_during_another_has_memory_of_its_own(graphs_on_a_cpu: None) -> None:
    """As of another thread, while the memory of graphs is in use."""
    sizes, waiting = [1000] * 6, [torch.ones(1000)]

    def interrupted(x: Tensor) -> list[Tensor]:
        while waiting:
            found.append(run(plan, waiting.pop())[5])
        return [x + 3]

    found: list[Tensor] = []
    steps: list[Step] = [
        adding(sizes, [0], 1, True),
        adding(sizes, [1], 2, True),
        called(interrupted, [2], [3]),
        adding(sizes, [3], 4, True),
        adding(sizes, [4], 5, True),
    ]
    slots = [Slot(), layout(1000), layout(1000), Slot(), layout(1000), layout(1000)]
    plan = Plan(slots, steps, {5}, CPU, graphs=True)
    assert torch.equal(run(plan, torch.zeros(1000))[5], torch.full((1000,), 15.0))
    assert torch.equal(found[0], torch.full((1000,), 16.0))


@pytest.mark.parametrize("way", ["one by one", "batched", "graphs"])
def test_a_value_within_a_given_slot_is_written_to_the_tensor_there(way: str, graphs_on_a_cpu: None) -> None:
    sizes = [1000] * 5
    batched = way != "one by one"
    steps = [adding(sizes, [0], 2, batched), adding(sizes, [1, 2], 3, batched), adding(sizes, [3], 4, batched)]
    within = Slot(Layout((1000,), (1,), torch.float32), (1, 0))
    plan = Plan([Slot(), Slot(), layout(1000), within, layout(1000)], steps, {4}, CPU, way == "graphs")
    for _ in range(2):
        written = torch.ones(1000)
        assert torch.equal(run(plan, torch.zeros(1000), written)[4], torch.full((1000,), 10.0))
        assert torch.equal(written, torch.full((1000,), 6.0))


def test_a_chain_takes_the_memory_of_two_values(allocated: list[tuple[int, weakref.ref[Tensor]]]) -> None:
    result = run(chain(12, MIB), torch.zeros(MIB))[12]
    assert result[0] == sum(range(13))
    assert sum(size for size, _ in allocated) <= 1.1 * 2 * 4 * MIB


def test_a_call_leaves_nothing_but_its_results(allocated: list[tuple[int, weakref.ref[Tensor]]]) -> None:
    plan = chain(9, 1000, calls=(4,))
    for _ in range(1000):
        result = run(plan, torch.zeros(1000))[9]
    gc.collect()
    assert len(allocated) == 4000
    assert [ref() is result for _, ref in allocated if ref() is not None] == [True]


def test_results_of_a_call_stay_as_they_are_in_later_calls() -> None:
    plan = chain(3, 100)
    first = run(plan, torch.zeros(100))[3]
    run(plan, torch.ones(100))
    assert torch.equal(first, torch.full((100,), 6.0))


def test_a_value_that_a_call_returns_a_view_of_keeps_its_memory() -> None:
    sizes = [100] * 6
    steps: list[Step] = [
        adding(sizes, [0], 1),
        called(lambda x: [x[:]], [1], [2]),
        adding(sizes, [0], 3),
        adding(sizes, [3], 4),
        adding(sizes, [2, 4], 5),
    ]
    slots = [Slot(), layout(100), Slot(), layout(100), layout(100), layout(100)]
    made = run(Plan(slots, steps, {2, 5}, CPU), torch.zeros(100))
    assert torch.equal(made[2], torch.ones(100))
    assert torch.equal(made[5], torch.full((100,), 1.0 + 3 + 4 + 5))


@pytest.mark.parametrize("kept", [{3}, {1, 3}, {1}])
def test_parts_of_a_value_are_written_where_that_lies(kept: set[int]) -> None:
    sizes = [64, 64, 64, 128, 128]
    halves = [Slot(Layout((64,), (1,), torch.float32), within=(3, 256 * n)) for n in range(2)]
    steps: list[Step] = [adding(sizes, [0], 1), adding(sizes, [0], 2), adding(sizes, [3], 4)]
    made = run(Plan([Slot(), *halves, layout(128), layout(128)], steps, {*kept, 4}, CPU), torch.zeros(64))
    for slot, wanted in {1: torch.ones(64), 3: torch.tensor([1.0] * 64 + [2.0] * 64)}.items():
        assert slot not in kept or torch.equal(made[slot], wanted)
    assert torch.equal(made[4], torch.tensor([5.0] * 64 + [6.0] * 64))


def test_a_value_is_read_from_where_a_launch_says() -> None:
    launch = Launch(Adding((64,), 64, 0.0), ((0, 256),), (1,))
    given = torch.arange(128.0)
    assert torch.equal(run(Plan([Slot(), layout(64)], [launch], {1}, CPU), given)[1], given[64:])


def test_an_error_of_a_call_is_the_callers_and_the_next_call_is_right() -> None:
    failures = itertools.chain([True], itertools.repeat(False))

    def once_failing(x: Tensor) -> list[Tensor]:
        if next(failures):
            raise ValueError("not today")
        return [x * 2]

    steps: list[Step] = [adding([8] * 4, [0], 1), called(once_failing, [1], [2]), adding([8] * 4, [2], 3)]
    plan = Plan([Slot(), layout(8), Slot(), layout(8)], steps, {3}, CPU)
    with pytest.raises(ValueError, match="not today"):
        run(plan, torch.zeros(8))
    assert torch.equal(run(plan, torch.zeros(8))[3], torch.full((8,), 5.0))


def test_threads_call_a_plan_at_the_same_time() -> None:
    plan = chain(20, 1000, calls=(5, 12))

    def many(seed: int) -> bool:
        given = torch.full((1000,), float(seed))
        return all(torch.equal(run(plan, given)[20], given + sum(range(21))) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(many, range(8)))


def test_a_call_may_leave_a_slot_that_is_no_tensor() -> None:
    steps = [called(lambda x: [x.sum().item()], [0], [1]), called(lambda x, n: [x + n], [0, 1], [2])]
    assert torch.equal(run(Plan([Slot()] * 3, steps, {2}, CPU), torch.ones(3))[2], torch.full((3,), 4.0))


def test_memory_that_is_not_there_is_an_error_that_names_its_size() -> None:
    plan = Plan([Slot(), layout(2**50)], [adding([1, 2**50], [0], 1)], {1}, CPU)
    with pytest.raises(OutOfMemoryError, match=r"results and intermediate values need 4503599\.6 GB"):
        run(plan, torch.ones(1))


def test_a_call_reads_tensors_and_replaces_those_that_it_writes() -> None:
    def swap(tensors: list[Any]) -> None:
        tensors[2], tensors[3] = tensors[1], tensors[0]

    made = run(Plan([Slot()] * 4, [Call(swap, (0, 1), (2, 3))], {2, 3}, CPU), torch.zeros(1), torch.ones(1))
    assert [float(t) for t in made[2:4]] == [1.0, 0.0]
