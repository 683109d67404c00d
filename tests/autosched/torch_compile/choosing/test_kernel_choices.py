"""Other kernels of the log, and other cuts, in the places of those that are faster by themselves."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import autosched
import best_spaces
from autosched.kernels.kernel import Kernel
from autosched.machine import devices
from autosched.machine.deadline import Deadline
from autosched.replaying import rivals
from autosched.replaying.rivals import in_models, rivals_of
from autosched.torch_compile import kernel_cache
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.choosing import alternatives
from autosched.torch_compile.choosing.alternatives import Chosen, chosen, with_chosen
from autosched.torch_compile.choosing.place import Place
from autosched.torch_compile.fallback import Call
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from autosched.tracing import TracedFunction, TracedKernel
from autosched.tracing import loaded as loaded_of
from autosched.tracing.translation.translate import DefectWarning
from search_spaces import Workload
from slow_kernels import slow
from tuning_logs import TuningLog, TuningRecord
from tuning_logs.alternative import Alternative
from untuned import untuned_kernel, untuned_record

TARGET = devices.cpu_target(torch.get_num_threads())
FASTER = Alternative("", 1.1, 1.05, 1.2, taken=True)


def softmax() -> TracedFunction:
    return autosched.trace(lambda x: F.softmax(x, -1), torch.empty(16, 24)).for_target(TARGET)


def different(workload: Workload, count: int) -> list[TuningRecord]:
    """Records of so many kernels of a workload; the first one is the fastest, each other one takes 5 % more."""
    space, rng, found = best_spaces.build(workload, TARGET), np.random.default_rng(0), dict[str | None, TuningRecord]()
    while len(found) < count:
        record = untuned_record(space.sample(rng), workload, TARGET)
        measured = replace(record.measurement, latencies_s=(1e-3 * (1 + 0.05 * len(found)),))
        found.setdefault(record.measurement.source, replace(record, measurement=measured))
    return list(found.values())


def kernel_of(record: TuningRecord, workload: Workload) -> Kernel:
    return untuned_kernel(record.schedule, workload, TARGET).noted(record)


def launched(kernel: TracedKernel) -> Call:
    return lambda *inputs: [kernel.computed(*inputs)]


def no_rivals(_: Kernel) -> list[Kernel]:
    return []


def of_two(slower: int) -> tuple[TracedKernel, Kernel, Chosen]:
    """A function by the first of two kernels, the second one, and the choice; one of them is slow in its place."""
    traced = softmax()
    (workload,) = traced.workloads
    first, second = (kernel_of(r, workload) for r in different(workload, 2))
    first, second = (slow(first), second) if slower == 0 else (first, slow(second))
    function = TracedKernel(traced, {workload.key: first})
    return function, second, chosen(function, Place(launched), lambda _: [second])


def test_a_rival_that_is_faster_in_place_is_launched_and_both_records_say_so() -> None:
    function, second, found = of_two(slower=0)
    (key,) = function.by_key
    rival = found.kernels[key].record.measurement.rival
    assert found.kernel.by_key[key].schedule == second.schedule
    assert rival is not None
    assert rival.taken
    assert rival.ratio > 2
    assert rival.name == second.record.measurement.source
    (replaced,) = found.replaced
    assert replaced.schedule == function.by_key[key].schedule
    assert replaced.measurement.rival == rival
    x = torch.randn(16, 24)
    torch.testing.assert_close(found.kernel(x), F.softmax(x, -1))


def test_a_rival_that_is_slower_in_place_is_noted_and_never_timed_again() -> None:
    function, _, found = of_two(slower=1)
    (key,) = function.by_key
    rival = found.kernels[key].record.measurement.rival
    assert found.kernel.by_key[key].schedule == function.by_key[key].schedule
    assert rival is not None
    assert not rival.taken
    assert not found.replaced
    again = chosen(found.kernel, Place(launched), lambda _: pytest.fail("a rival is loaded again"))
    assert not again.kernels


def test_after_the_deadline_no_rival_is_loaded() -> None:
    traced = softmax()
    (workload,) = traced.workloads
    function = TracedKernel(traced, {workload.key: kernel_of(*different(workload, 1), workload)})
    over = Place(launched, Deadline(0.0, lambda: 1.0))
    assert not chosen(function, over, lambda _: pytest.fail("a rival is loaded")).kernels


def test_rivals_are_the_next_kernels_of_the_same_finals_within_a_margin(tmp_path: Path) -> None:
    (workload,) = softmax().workloads
    best, *others = different(workload, 6)
    log = TuningLog(tmp_path / "log.jsonl")
    finals = [replace(r, provenance=replace(r.provenance, finals=7)) for r in (best, *others)]
    trial = replace(others[0], provenance=replace(best.provenance, finals=0))
    log.append(*finals[:3], *finals[4:], trial)
    # The last record of a schedule counts, which is no finalist; the others take 10, 20 and 25 % more.
    found = [k.record.schedule for k in rivals_of(kernel_of(finals[0], workload), [log.path])]
    assert found == [others[1].schedule]


def test_models_launch_the_rival_of_a_log_and_others_the_best_kernel(tmp_path: Path) -> None:
    traced = softmax()
    (workload,) = traced.workloads
    best, rival = different(workload, 2)
    choice = replace(FASTER, name=str(rival.measurement.source))
    best, rival = (replace(r, measurement=replace(r.measurement, rival=choice)) for r in (best, rival))
    path = tmp_path / "log.jsonl"
    TuningLog(path).append(best, rival)
    models, others = (f(traced, TARGET, log=path) for f in (kernel_cache.replay, autosched.replay))
    assert [f.by_key[workload.key].record.schedule for f in (models, others)] == [rival.schedule, best.schedule]
    kernel = others.by_key[workload.key]
    assert in_models(kernel, [tmp_path / "of_the_best_alone.jsonl"]) is kernel


def perceptron(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return F.gelu(x @ w) @ v


@pytest.fixture(scope="module")
def in_one() -> TracedKernel:
    """A function of two cuts, one kernel or two, which take 5 % more."""
    inputs = torch.empty(64, 16), torch.empty(16, 64), torch.empty(64, 16)
    # For a target there are only the cuts that are worth measuring.
    cut = autosched.trace(perceptron, *inputs)
    kernels = {}
    for workload in (w for each in cut.cuts for w in each.workloads):
        (record,) = different(workload, 1)
        seconds = 1e-3 if workload in cut.cuts[0].workloads else 0.525e-3
        # No library's call is timed.
        measured = replace(record.measurement, latencies_s=(seconds,), library=replace(FASTER, taken=False))
        kernels[workload.key] = kernel_of(replace(record, measurement=measured), workload)
    made = loaded_of(cut, kernels)
    assert isinstance(made, TracedKernel)
    assert len(made.kernels) == 1
    return made


@pytest.mark.parametrize("slower", [1, 2])
def test_the_faster_one_of_two_cuts_in_place_is_launched_from_then_on(in_one: TracedKernel, slower: int) -> None:
    def late(kernel: TracedKernel) -> Call:
        def call(*inputs: Tensor) -> list[Tensor]:
            time.sleep(2e-3 * (len(kernel.kernels) == slower))
            return [kernel.computed(*inputs)]

        return call

    found = chosen(in_one, Place(late), no_rivals)
    assert len(found.kernel.kernels) == 3 - slower
    again = with_chosen(in_one.with_kernels(found.kernels))
    assert again.traced is found.kernel.traced
    assert not chosen(again, Place(late), no_rivals).kernels
    inputs = torch.randn(64, 16), torch.randn(16, 64), torch.randn(64, 16)
    torch.testing.assert_close(again(*inputs), perceptron(*inputs), rtol=1e-4, atol=1e-4)


def test_cuts_of_functions_that_begin_alike_are_noted_beside_each_other(in_one: TracedKernel) -> None:
    """Neither is timed again when the other one was."""

    def late(kernel: TracedKernel) -> Call:
        def call(*inputs: Tensor) -> list[Tensor]:
            time.sleep(2e-3 * (len(kernel.kernels) == 1))
            return [kernel.computed(*inputs)]

        return call

    def flipped(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return x, perceptron(x, w, v)

    inputs = torch.empty(64, 16), torch.empty(16, 64), torch.empty(64, 16)
    found = chosen(in_one, Place(late), no_rivals)
    other = loaded_of(autosched.trace(flipped, *inputs), {**in_one.by_key, **found.kernels})
    assert isinstance(other, TracedKernel)
    assert other.by_key.keys() == in_one.by_key.keys()
    again = chosen(other, Place(late), no_rivals)
    assert again.kernels, "the other function's note is none of this one"
    for function, cut in ((in_one, found.kernel.traced), (other, again.kernel.traced)):
        known = function.with_kernels(again.kernels)
        assert with_chosen(known).traced is cut
        assert not chosen(known, Place(lambda _: pytest.fail("a cut is timed again")), no_rivals).kernels


def test_a_cut_that_takes_much_longer_by_its_sum_is_not_timed(in_one: TracedKernel) -> None:
    longer = {
        key: k.noted(replace(k.record, measurement=replace(k.record.measurement, latencies_s=(1e-3,))))
        for key, k in in_one.by_key.items()
    }
    place = Place(lambda _: pytest.fail("a cut is timed"))
    assert not chosen(in_one.with_kernels(longer), place, no_rivals).kernels


def test_max_autotune_notes_rivals_and_default_launches_them_without_timing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def always(self: Place, name: str, kernel: TracedKernel, other: TracedKernel) -> Alternative:
        return replace(FASTER, name=name, taken=True)

    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(kernel_cache, "user_log_path", lambda: tmp_path / "user" / "tuning.jsonl")
    monkeypatch.setattr(Place, "timed", always)
    # Whatever a search of few trials finds.
    monkeypatch.setattr(rivals, "MARGIN", 1e3)
    model, x, log = nn.Softmax(-1).eval(), torch.randn(16, 24), tmp_path / "log.jsonl"
    texts, reports = [], list[GraphReport]()
    for mode in ("max-autotune-no-cudagraphs", "max-autotune-no-cudagraphs", "default"):
        torch.compiler.reset()
        options = Options(mode=mode, trials=3, log=str(log))
        with torch.no_grad():
            made: Callable[[Tensor], Tensor] = torch.compile(model, backend=backend_of(options, reports.append))
            torch.testing.assert_close(made(x), model(x), rtol=1e-4, atol=1e-4)
        texts.append(log.read_text())
        # The cache has the kernel by now.
        monkeypatch.setattr(kernel_cache, "from_logs", None)
    assert len(set(texts)) == 1
    assert "1 kernel, 1 chosen in place (1.10)" in str(reports[-1])
    best = autosched.replay(autosched.trace(model, x), TARGET, log=log)
    assert isinstance(best, TracedKernel)
    (kernel,) = best.kernels
    assert kernel.record.measurement.rival is not None
    assert kernel.record.measurement.rival.name != kernel.record.measurement.source


def test_a_mistake_among_alternatives_leaves_the_kernels_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("of a rival")

    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(alternatives, "chosen", fails)
    model, x, reports = nn.Softmax(-1).eval(), torch.randn(16, 24), list[GraphReport]()
    options = Options(mode="max-autotune-no-cudagraphs", trials=1, log=str(tmp_path / "log.jsonl"))
    torch.compiler.reset()
    made: Callable[[Tensor], Tensor] = torch.compile(model, backend=backend_of(options, reports.append))
    with torch.no_grad(), pytest.warns(DefectWarning, match="of a rival"):
        result = made(x)
    torch.testing.assert_close(result, model(x), rtol=1e-4, atol=1e-4)
    assert "autosched" in dict(reports[0].parts[0].seconds)
