"""One measurer for many searches: what stays warm between them, what does not pass over, and who may not use it."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import autosched
import fake_backend
from autosched import Progress
from autosched.backends import for_target, spaces
from autosched.machine import devices
from autosched.measuring import LocalMeasurer, TrialLimits, UnfitWorkloadError, session
from autosched.measuring.local.fork_server import shared_server
from autosched.measuring.local.jobs import Prepare, Ready, Release, Setup, Task
from autosched.measuring.local.trial_server import TrialServer
from autosched.measuring.session import local_measurer
from fake_backend import schedule
from needed import needs_gpu
from search_spaces import (
    Axis,
    InputError,
    Schedule,
    Stage,
    Target,
    TargetUnavailableError,
    Tensor,
    Workload,
    ops,
    target_named,
)
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from tuning_logs import Measurement

CPU = devices.cpu_target()
DOUBLING = fake_backend.doubling()


def opened() -> LocalMeasurer:
    return LocalMeasurer(CPU, limits=TrialLimits(compile_workers=1), backend=fake_backend.LOCATION)


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with opened() as measurer:
        yield measurer


def in_another_thread(call: Callable[[], object]) -> BaseException | None:
    """What it raised there."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).exception()


def in_a_forked_child(call: Callable[[], str]) -> str:
    """The text that the call gives there."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, call().encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        text = said.read()
    os.waitpid(pid, 0)
    return text


def drawn(op: Workload, number: int = 2) -> list[Schedule]:
    space = spaces.build(op, CPU)
    return [space.sample(np.random.default_rng(seed)) for seed in range(number)]


def refusal(measurer: LocalMeasurer) -> str:
    try:
        measurer.submit(DOUBLING, [schedule("is fine")])
    except InputError as error:
        return str(error)
    return "nothing"


def test_the_workers_of_a_search_serve_the_next_one_of_another_workload(tmp_path: Path) -> None:
    seen: list[tuple[int, ...]] = []

    def look(progress: Progress) -> None:
        seen.append(local_measurer(CPU).pids)

    for op in (ops.softmax(16, 32), ops.gelu_scale(512)):
        result = autosched.tune(op, "cpu", 2, log=tmp_path / "log.jsonl", on_progress=look)
        assert result.best is not None
    assert len(set(seen)) == 1
    assert local_measurer(CPU).pids == seen[0]


def test_one_measurer_measures_workloads_in_turn_each_on_data_of_its_own() -> None:
    softmax, product = ops.softmax(16, 32), ops.matmul(16, 16, 16)
    with LocalMeasurer(CPU, limits=TrialLimits(compile_workers=1)) as measurer:
        pairs = [(op, measurer.submit(op, drawn(op), seed=seed)) for seed, op in enumerate((softmax, product, softmax))]
        found = [future.result() for _, futures in pairs for future in futures]
        library_s = measurer.library_s(softmax)
        assert measurer.library_s(ops.softmax(3, 5)) is None
    assert [m.status for m in found] == ["ok"] * 6
    assert library_s is not None


def test_what_was_measured_in_one_search_is_timed_again_in_the_next(measurer: LocalMeasurer) -> None:
    found = []
    for number in range(2):
        with measurer.reserved(CPU):
            found += measurer.measure(DOUBLING, [schedule("is fine", number)])
    assert [m.timing for m in found] == ["full", "full"]


def test_a_search_that_breaks_down_leaves_nothing_for_the_next_one_to_wait_for(measurer: LocalMeasurer) -> None:
    def search() -> None:
        with measurer.reserved(CPU):
            futures.extend(measurer.submit(DOUBLING, [schedule("runs forever"), schedule("is fine")]))
            raise KeyboardInterrupt

    futures: list[Future[Measurement]] = []
    with pytest.raises(KeyboardInterrupt):
        search()
    assert all(future.cancelled() for future in futures)
    with measurer.reserved(CPU):
        (found,) = measurer.measure(DOUBLING, [schedule("is fine")])
    assert found.ok
    assert found.timing == "full"


def test_a_traced_function_is_tuned_with_the_measurer_that_is_given(tmp_path: Path) -> None:
    traced = autosched.trace(lambda x: torch.softmax(x, 1) * 2.0, torch.randn(16, 32))
    with LocalMeasurer("cpu", limits=TrialLimits(compile_workers=1)) as measurer:
        result = autosched.tune(traced, "cpu", 2, log=tmp_path / "log.jsonl", measurer=measurer)
        assert measurer.library_s(traced.workloads[0]) is None
    x = torch.randn(16, 32)
    torch.testing.assert_close(result.kernel(x), torch.softmax(x, 1) * 2.0)


def huge() -> Workload:
    """One whose inputs no machine can hold."""
    size, names = 2**31 - 1, [f"x{number}" for number in range(100)]
    total = functools.reduce(ex.add, (ex.Access(name, (axis_index("i"),)) for name in names))
    tensors = tuple(Tensor(name, (size,), "float32") for name in names)
    return Workload("huge", tensors, (Stage("y", (Axis("i", size),), total),))


def test_inputs_that_cannot_be_set_up_are_no_obstacle_to_the_next_workload(measurer: LocalMeasurer) -> None:
    with pytest.raises(TargetUnavailableError, match="the inputs could not be set up"):
        measurer.measure(huge(), [schedule("is fine")])
    (found,) = measurer.measure(DOUBLING, [schedule("is fine")])
    assert found.ok


def test_inputs_that_cannot_be_set_up_take_no_other_workload_along(measurer: LocalMeasurer) -> None:
    before = measurer.submit(DOUBLING, [schedule("is fine", 1)])
    unfit = measurer.submit(huge(), [schedule("is fine", number) for number in (2, 3)])
    after = measurer.submit(DOUBLING, [schedule("is fine", 4)])
    assert [future.result().ok for future in (*before, *after)] == [True, True]
    assert all(isinstance(future.exception(), UnfitWorkloadError) for future in unfit)


def test_what_waits_of_the_workload_whose_inputs_are_set_up_comes_first(measurer: LocalMeasurer) -> None:
    ended: list[str] = []
    other = replace(DOUBLING, name="other")
    futures: list[Future[Measurement]] = []
    for number, workload in enumerate((DOUBLING, other, DOUBLING, other, DOUBLING)):
        (future,) = measurer.submit(workload, [schedule(f"compiles in ms:{100 + number}", number)])
        future.add_done_callback(lambda _, name=workload.name: ended.append(name))  # type: ignore[misc]
        futures.append(future)
    wait(futures)
    assert ended == ["doubling"] * 3 + ["other"] * 2


def server(target: Target = CPU) -> TrialServer:
    return TrialServer({backend.name: backend for backend in for_target(target)}, Setup("measure", "", target, 1.25))


def data_of(server: TrialServer) -> weakref.ref[torch.Tensor]:
    assert server._workbench is not None
    return weakref.ref(server._workbench._check.data.outputs[0].tensor)


def test_the_memory_of_a_workload_is_given_back_before_the_next_one_takes_any(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = server()
    worker.serve(Prepare(Task(ops.softmax(16, 32), "cold"), seed=0))
    before, alive = data_of(worker), []
    monkeypatch.setattr("autosched.measuring.local.trial_server.timer_for", lambda *_, **__: alive.append(before()))
    with pytest.raises(AttributeError):
        worker.serve(Prepare(Task(ops.softmax(16, 64), "cold"), seed=0))
    assert alive == [None]


def test_the_memory_of_the_last_workload_is_given_back_after_its_search() -> None:
    worker = server()
    worker.serve(Prepare(Task(ops.softmax(16, 32), "cold"), seed=0))
    before = data_of(worker)
    assert worker.serve(Release()) == Ready()
    assert before() is None


@pytest.mark.gpu
@needs_gpu
def test_the_memory_of_a_gpu_is_given_back_after_a_search() -> None:
    worker = server(devices.gpu_target())
    before = torch.cuda.memory_allocated()
    worker.serve(Prepare(Task(ops.softmax(4096, 1024), "cold"), seed=0))
    assert torch.cuda.memory_allocated() > before
    worker.serve(Release())
    assert torch.cuda.memory_allocated() == before


def test_a_closed_measurer_says_so_and_what_to_do() -> None:
    measurer = opened()
    measurer.close()
    assert "was closed; open another one: autosched.LocalMeasurer(target)" in refusal(measurer)


def test_in_a_forked_child_a_measurer_says_so_and_the_child_does_not_end_its_workers(measurer: LocalMeasurer) -> None:
    assert measurer.measure(DOUBLING, [schedule("is fine")])[0].ok

    def used_and_closed() -> str:
        text = refusal(measurer)
        measurer.close()
        shared_server()
        return text

    text = in_a_forked_child(used_and_closed)
    assert f"belongs to process {os.getpid()}, from which this one" in text
    assert "open another one" in text
    assert measurer.measure(DOUBLING, [schedule("is fine")])[0].ok


def test_a_second_search_at_the_same_time_is_told_to_wait(measurer: LocalMeasurer) -> None:
    def search() -> None:
        with measurer.reserved(CPU):
            pass

    with measurer.reserved(CPU):
        for call in (search, lambda: measurer.submit(DOUBLING, [schedule("is fine")])):
            raised = in_another_thread(call)
            assert isinstance(raised, InputError)
            assert "in use by a search of another thread; expected one search at a time" in str(raised)
        with pytest.raises(InputError, match="in use by a search of this thread"):
            search()
        assert measurer.measure(DOUBLING, [schedule("is fine")])[0].ok
    assert in_another_thread(search) is None


def test_a_measurer_of_another_target_is_refused(measurer: LocalMeasurer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the measurer is for .* x1; got a search for .* x2"):
        autosched.tune(ops.gelu_scale(64), replace(CPU, threads=2), 1, log=tmp_path / "log.jsonl", measurer=measurer)


def test_a_target_with_the_code_of_another_gpu_has_a_measurer_of_its_own(
    measurer: LocalMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers compile for the target that they were started for."""
    here = target_named("h200")
    older = replace(here, name="h200 as sm_70", capability=70)
    monkeypatch.setattr(session, "LocalMeasurer", lambda target: SimpleNamespace(usable=True, target=target))
    measurers = session.LocalMeasurers()
    assert measurers.of(here) is measurers.of(replace(here, name="mine"))
    assert measurers.of(older) is not measurers.of(here)
    with (
        pytest.raises(InputError, match="got a search for NVIDIA H200, sm_70: open another one"),
        measurer.reserved(older),
    ):
        pass


def test_closing_ends_the_workers_and_the_next_search_starts_others() -> None:
    first = local_measurer(CPU)
    assert local_measurer(CPU) is first
    autosched.close()
    assert not first.usable
    second = local_measurer(CPU)
    (found,) = second.measure(ops.softmax(16, 32), drawn(ops.softmax(16, 32), 1))
    assert found.ok


def test_the_server_of_workers_outlives_the_thread_that_asked_for_it_first() -> None:
    autosched.close()
    assert in_another_thread(shared_server) is None
    with opened() as measurer:
        assert measurer.measure(DOUBLING, [schedule("is fine")])[0].ok
