"""Graphs that write to their inputs: the same results and the same memory as eager, call after call.

Kernels are untuned, so that everything that has one is computed by it.
"""

from __future__ import annotations

import copy
import ctypes
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import autosched
from autosched.backends import Artefact
from autosched.kernels import in_place
from autosched.torch_compile import composition, graph_compiler
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.input_writes import write_back
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from autosched.tracing import TracedFunction, loaded
from search_spaces import Target, TileProgram
from search_spaces.programs.interpreting.interpreter import run_kernel
from search_spaces.programs.text import to_text
from search_spaces.programs.tile_program import Buffer
from tuning_logs import CompileFacts
from untuned import untuned_kernels

DTYPES = (torch.float32, torch.bfloat16)


@pytest.fixture(autouse=True)
def kernels_for_everything(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels without a log or a search, and PyTorch's operators in the place of Inductor, which takes seconds."""

    def untuned(traced: TracedFunction, target: Target, **_: Any) -> Any:
        here = traced.for_target(target)
        return loaded(here, untuned_kernels(here.workloads, target))

    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(graph_compiler, "replay", untuned)
    torch.compiler.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def compiled(model: Callable[..., Any], **options: Any) -> tuple[Callable[..., Any], list[GraphReport]]:
    reports: list[GraphReport] = []
    return torch.compile(model, backend=backend_of(Options(**options), reports.append)), reports


def check(model: Callable[..., Any], called: Callable[..., Any], given: Sequence[Tensor], calls: int = 3) -> None:
    """Both give the same results, and leave the same in their inputs, call after call."""
    ours, eagers = [x.clone() for x in given], [x.clone() for x in given]
    for _ in range(calls):
        torch.testing.assert_close(called(*ours), model(*eagers))
        torch.testing.assert_close(ours, eagers)


def added(x: Tensor, y: Tensor) -> Tensor:
    x.add_(y)
    return x * 2


def entered(cache: Tensor, entry: Tensor, position: Tensor) -> Tensor:
    cache.index_copy_(0, position, entry)
    return (cache * 2).sum(1)


def exchanged(x: Tensor, y: Tensor) -> Tensor:
    old = x.clone()
    x.copy_(y)
    y.copy_(old)
    return x + 1


def old_and_new(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    old = x.clone()
    x.mul_(y)
    return old, x


def also_returned(x: Tensor, y: Tensor) -> Tensor:
    made = x + y
    x.copy_(made)
    return made


def read_shifted(x: Tensor, y: Tensor) -> Tensor:
    x.copy_(x.flip(0) + y)
    return y * 2


def through_a_view(x: Tensor, y: Tensor) -> Tensor:
    x[1:].add_(y[1:])
    return x.sum()


def normalised(x: Tensor, y: Tensor) -> Tensor:
    x.copy_(torch.softmax(x + y, -1))
    return y.sum()


def parts_returned(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    x.add_(y)
    return x[1:], x.t(), y[3:]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "function", [added, exchanged, old_and_new, also_returned, read_shifted, through_a_view, normalised, parts_returned]
)
def test_inputs_are_written_as_by_eager(function: Callable[..., Any], dtype: torch.dtype) -> None:
    called, reports = compiled(function)
    check(function, called, [torch.randn(48, 64, dtype=dtype), torch.randn(48, 64, dtype=dtype)])
    assert len(reports) == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_entries_of_a_cache_are_written_at_a_position(dtype: torch.dtype) -> None:
    called, reports = compiled(entered)
    for position in (3, 0, 7):
        given = torch.randn(8, 16, dtype=dtype), torch.randn(1, 16, dtype=dtype), torch.tensor([position])
        check(entered, called, given)
    assert reports[0].kernels
    assert len(reports) == 1


def test_one_graph_without_kernels_writes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any, **__: Any) -> Any:
        raise autosched.AutoschedError("none")

    monkeypatch.setattr(graph_compiler, "replay", none)
    called, reports = compiled(added)
    check(added, called, [torch.randn(4, 8), torch.randn(4, 8)])
    assert not reports[0].kernels


def test_a_returned_value_is_not_the_memory_of_the_input_that_it_is_written_to() -> None:
    called, _ = compiled(also_returned)
    x, y = torch.zeros(4, 8), torch.ones(4, 8)
    first = called(x, y)
    called(x, y)
    assert (first == 1).all()
    assert (x == 2).all()


def test_one_tensor_may_be_passed_twice() -> None:
    called, _ = compiled(added)
    ours, eagers = torch.randn(4, 8), torch.randn(4, 8)
    check(added, called, [ours, eagers])
    ours, eagers = ours.clone(), ours.clone()
    torch.testing.assert_close(called(ours, ours), added(eagers, eagers))
    torch.testing.assert_close(ours, eagers)


class Counting(nn.Module):
    """A running average, and a count of calls."""

    average: Tensor
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(8))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)
        self.calls.add_(1)
        made: Tensor = x - self.average
        return made


def check_state(ours: nn.Module, eagers: nn.Module) -> None:
    torch.testing.assert_close(ours.state_dict(), eagers.state_dict())


def test_buffers_are_updated_also_after_they_were_exchanged() -> None:
    ours = Counting()
    eagers, x = copy.deepcopy(ours), torch.randn(4, 8)
    called, _ = compiled(ours)
    for exchange in (False, True, False):
        if exchange:
            for model in (ours, eagers):
                model.average.data = torch.ones(8)
        for _ in range(2):
            torch.testing.assert_close(called(x), eagers(x))
            check_state(ours, eagers)


def test_statistics_of_training_are_used_by_kernels_of_inference() -> None:
    ours = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())
    eagers, x = copy.deepcopy(ours), torch.randn(4, 8)
    called, _ = compiled(ours)
    for _ in range(3):
        for training in (True, False):
            ours.train(training)
            eagers.train(training)
            with torch.set_grad_enabled(training):
                torch.testing.assert_close(called(x), eagers(x))
                if training:
                    called(x).sum().backward()
                    eagers(x).sum().backward()
        check_state(ours, eagers)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_steps_of_optimizers_change_parameters(kind: Any) -> None:
    torch.manual_seed(0)
    ours = nn.Linear(8, 8)
    eagers = copy.deepcopy(ours)
    optimizers = [kind(model.parameters(), lr=0.1, foreach=False) for model in (ours, eagers)]
    called, _ = compiled(optimizers[0].step)
    x = torch.randn(4, 8)
    for _ in range(3):
        for model, step in ((ours, called), (eagers, optimizers[1].step)):
            with torch.enable_grad():
                model(x).square().sum().backward()
            step()
            model.zero_grad()
        check_state(ours, eagers)


def test_without_dynamo_buffers_are_updated_too() -> None:
    ours = Counting()
    eagers, x = copy.deepcopy(ours), torch.randn(4, 8)
    called = autosched.compile(ours, x)
    eagers.load_state_dict(ours.state_dict())
    for _ in range(3):
        torch.testing.assert_close(called(x), eagers(x))
        check_state(ours, eagers)


def test_a_size_that_changes_is_written_too() -> None:
    called, _ = compiled(added)
    for rows in (4, 5, 6, 5, 5):
        check(added, called, [torch.randn(rows, 8), torch.randn(rows, 8)], calls=2)


def test_threads_write_to_inputs_of_their_own() -> None:
    called, _ = compiled(added)
    check(added, called, [torch.randn(48, 64), torch.randn(48, 64)])

    def many(seed: int) -> None:
        with torch.no_grad():
            generator = torch.Generator().manual_seed(seed)
            check(added, called, [torch.randn(48, 64, generator=generator) for _ in range(2)], calls=20)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(many, range(2)))


def overwritten(x: Tensor, y: Tensor) -> Tensor:
    x.copy_(y * 2)
    return y.sum(0)


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of values that each call copies to inputs."""
    counts: list[int] = []

    def counted(targets: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        counts.append(len(targets))
        write_back(targets, values)

    monkeypatch.setattr(composition, "write_back", counted)
    return counts


def test_a_kernel_that_does_not_read_the_input_stores_to_it(copied: list[int]) -> None:
    called, _ = compiled(overwritten)
    check(overwritten, called, [torch.randn(48, 64), torch.randn(48, 64)])
    assert not copied


def test_inputs_that_overlap_are_written_after_all_is_read(copied: list[int]) -> None:
    called = autosched.compile(overwritten, torch.randn(48, 64), torch.randn(48, 64))
    for first in (0, 64, 64 * 48):
        ours = torch.arange(64.0 * 48 * 3)
        eagers = ours.clone()
        for memory, function in ((ours, called), (eagers, overwritten)):
            x, y = (memory[at : at + 64 * 48].view(48, 64) for at in (first, 0))
            function(x, y)
        assert len(copied) == (1 if first == 0 else 2)
        torch.testing.assert_close(ours, eagers)


@pytest.mark.parametrize("function", [added, read_shifted, normalised, old_and_new, also_returned])
def test_what_kernels_read_elsewhere_or_return_is_copied(function: Callable[..., Any], copied: list[int]) -> None:
    called, _ = compiled(function)
    check(function, called, [torch.randn(48, 64), torch.randn(48, 64)])
    assert copied


def accumulated(x: Tensor, y: Tensor) -> Tensor:
    x.add_(y * x)
    return y * 2


def only_entered(cache: Tensor, entry: Tensor, position: Tensor) -> Tensor:
    cache.index_copy_(0, position, entry)
    return entry * 2


def entered_by_halves(cache: Tensor, entry: Tensor, position: Tensor) -> Tensor:
    """Keys and values in one buffer, as caches of models have them, which attention reads."""
    keys, values = cache.unflatten(0, (2, 32))
    keys.index_copy_(0, position, entry * 2)
    values.index_copy_(0, position, entry)
    return keys.sum(0) + values.sum(0)


@pytest.mark.parametrize("function", [accumulated, only_entered, entered_by_halves])
def test_elements_that_are_read_where_they_are_stored_need_no_copy(
    function: Callable[..., Any], copied: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By kernels whose elements are computed once at these sizes, as Triton's are at any."""
    monkeypatch.setattr(in_place, "_MAY_ALIAS", ("llvm",))
    called, _ = compiled(function)
    x = torch.randn(64, 64)
    check(function, called, [x, x + 1] if function is accumulated else [x, x[:1], torch.tensor([5])])
    assert not copied


class InPlace:
    """A loaded tile program that NumPy interprets in the memory that it is called with."""

    def __init__(self, program: TileProgram) -> None:
        self._program = program
        self.calls = 0

    def launch(self, addresses: Sequence[int], prepared: Sequence[int] = ()) -> None:
        self.calls += 1
        memory = {b.name: array(b, a) for b, a in zip(self._program.given, addresses, strict=True)}
        for kernel in self._program.kernels:
            run_kernel(kernel, self._program, memory)


def array(buffer: Buffer, address: int) -> np.ndarray:
    size = (ctypes.c_char * buffer.bytes).from_address(address)
    return np.frombuffer(memoryview(size), buffer.dtype).reshape(buffer.shape)


@pytest.fixture
def storing_changes(monkeypatch: pytest.MonkeyPatch) -> list[InPlace]:
    """The interpreted programs of kernels that store only what changes."""
    made: list[InPlace] = []

    def build(program: TileProgram, title: str, target: Target, backend: Any) -> Artefact:
        return Artefact("interpreter", to_text(program), (), CompileFacts(seconds=0.0), "{}")

    def load(backend: Any, artefact: Artefact, program: TileProgram) -> InPlace:
        made.append(InPlace(program))
        return made[-1]

    monkeypatch.setattr(in_place, "_MAY_ALIAS", ("llvm",))
    monkeypatch.setattr(in_place, "build", build)
    monkeypatch.setattr(in_place, "load", load)
    return made


def entered_with_duplicates(cache: Tensor, entry: Tensor, position: Tensor) -> Tensor:
    """The last of several entries at a position stays, as PyTorch does on a CPU."""
    cache[position] = torch.cat([entry, entry * 2])
    return cache.sum(0)


def entered_as_exponentials(cache: Tensor, entry: Tensor, position: Tensor) -> Tensor:
    cache.index_copy_(0, position, entry.exp())
    return entry * 2


def entered_twice(cache: Tensor, entry: Tensor, position: Tensor) -> Tensor:
    cache.index_copy_(0, position, entry)
    cache.index_copy_(0, position + 1, entry * 2)
    return entry * 2


def entered_into_rows(cache: Tensor, entry: Tensor, position: Tensor) -> Tensor:
    cache[3:5] = entry
    return entry * 2


def grown_where_negative(cache: Tensor, entry: Tensor, position: Tensor) -> Tensor:
    cache.copy_(torch.where(cache < 0, cache + entry, cache))
    return entry * 2


@pytest.mark.parametrize(
    "function", [only_entered, entered_by_halves, entered_twice, entered_into_rows, grown_where_negative]
)
@pytest.mark.parametrize("aliases", [("llvm",), ()], ids=["may alias", "may not"])
def test_only_what_changes_is_stored(
    function: Callable[..., Any],
    aliases: tuple[str, ...],
    copied: list[int],
    storing_changes: list[InPlace],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_place, "_MAY_ALIAS", aliases)
    called, _ = compiled(function)
    for at in (5, 0, 30):
        x = torch.randn(64, 64)
        check(function, called, [x, x[:1], torch.tensor([at])])
    if function is grown_where_negative and not aliases:
        # It reads what it stores to.
        assert copied
        assert not storing_changes
        return
    (kernel,) = storing_changes
    # The first is compared with the kernel of all elements.
    assert kernel.calls == 1 + 9
    assert not copied


@pytest.mark.parametrize("positions", [[3, 3], [-1, 63], [0, 7]])
def test_of_entries_at_one_position_the_last_is_stored(positions: list[int], storing_changes: list[InPlace]) -> None:
    called, _ = compiled(entered_with_duplicates)
    check(entered_with_duplicates, called, [torch.randn(64, 64), torch.randn(1, 64), torch.tensor(positions)])


@pytest.mark.parametrize("position", [-1, -64, 63])
def test_positions_from_the_end_are_entered(position: int, storing_changes: list[InPlace]) -> None:
    def placed(cache: Tensor, entry: Tensor, position: Tensor) -> Tensor:
        cache[position] = entry
        return entry * 2

    called, _ = compiled(placed)
    check(placed, called, [torch.randn(64, 64), torch.randn(1, 64), torch.tensor([position])])
    assert storing_changes


def test_entries_of_a_cache_are_read_before_it_is_written(copied: list[int], storing_changes: list[InPlace]) -> None:
    """Where an entry is a part of the cache, the whole is copied."""
    called = autosched.compile(only_entered, torch.randn(64, 64), torch.randn(1, 64), torch.tensor([5]))
    cache = torch.randn(64, 64)
    expected = cache.clone()
    expected[7] = cache[5]
    called(cache, cache[5:6], torch.tensor([7]))
    torch.testing.assert_close(cache, expected)
    assert copied == [1]


def test_a_kernel_that_stores_other_values_than_its_whole_is_not_used(
    storing_changes: list[InPlace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even with one that stores nothing, and is right for positions of no element."""
    monkeypatch.setattr(InPlace, "launch", lambda *_: None)
    called, _ = compiled(only_entered)
    check(only_entered, called, [torch.randn(64, 64), torch.randn(1, 64), torch.tensor([5])])
    assert storing_changes


@pytest.mark.parametrize(("rounds", "copies"), [(True, False), (False, True)], ids=["in a last bit", "by far"])
def test_elements_that_change_may_be_rounded_otherwise(
    rounds: bool, copies: bool, copied: list[int], storing_changes: list[InPlace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a compiler that contracts a formula in one kernel and not in the other."""
    usual = InPlace.launch

    def otherwise(kernel: InPlace, addresses: Sequence[int], prepared: Sequence[int] = ()) -> None:
        output = next(a for b, a in zip(kernel._program.given, addresses, strict=True) if b.role == "output")
        memory = array(next(b for b in kernel._program.given if b.role == "output"), output)
        before = memory.copy()
        usual(kernel, addresses, prepared)
        changed = memory != before
        memory[changed] = np.nextafter(memory[changed], np.float32(9.0)) if rounds else memory[changed] * 1.01

    monkeypatch.setattr(InPlace, "launch", otherwise)
    monkeypatch.setattr(in_place, "_MAY_ALIAS", ())
    called, _ = compiled(entered_as_exponentials)
    check(entered_as_exponentials, called, [torch.randn(64, 64), torch.randn(1, 64), torch.tensor([5])])
    assert storing_changes
    assert bool(copied) == copies


def test_threads_enter_into_caches_of_their_own(storing_changes: list[InPlace]) -> None:
    called, _ = compiled(only_entered)

    def many(seed: int) -> None:
        given = [torch.full((64, 64), float(seed)), torch.full((1, 64), -1.0), torch.tensor([seed])]
        check(only_entered, called, given, calls=5)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(many, range(2)))


@pytest.mark.parametrize("function", [added, entered])
def test_elements_that_are_read_for_another_result_too_are_copied(
    function: Callable[..., Any], copied: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_place, "_MAY_ALIAS", ("llvm",))
    called, _ = compiled(function)
    x = torch.randn(64, 64)
    check(function, called, [x, x[:1], torch.tensor([5])] if function is entered else [x, x + 1])
    assert copied
