"""Early launches of a segment's kernels: timed where the device has them, noted, and launched so from then on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autosched
from autosched.machine.devices import cpu_target
from autosched.torch_compile.choosing import early_launches
from autosched.torch_compile.choosing.early_launches import with_early_launches
from autosched.torch_compile.choosing.place import Place
from autosched.tracing import TracedKernel
from tuning_logs.alternative import Alternative
from untuned import untuned_kernels


class Timed:
    """A place in which early launches are so many times as fast."""

    def __init__(self, ratio: float) -> None:
        self.ratio, self.early = ratio, list[list[bool]]()
        self.deadline = Place(lambda kernel: kernel.computed).deadline

    def timed(self, name: str, kernel: TracedKernel, other: TracedKernel) -> Alternative:
        self.early += [[k.early for k in each.kernels] for each in (kernel, other)]
        return Alternative(name, self.ratio, self.ratio, self.ratio, taken=self.ratio > 1)


def two_kernels() -> TracedKernel:
    traced = autosched.trace(lambda x: torch.softmax(torch.cumsum(x, 0), -1), torch.empty(8, 16))
    assert len(traced.launched) == 2
    return TracedKernel(traced, untuned_kernels(traced.workloads, cpu_target()))


@pytest.fixture
def _launches_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_launches, "launches_early", lambda _: True)


@pytest.mark.usefixtures("_launches_early")
@pytest.mark.parametrize("ratio", [1.1, 0.9])
def test_early_launches_are_taken_where_they_are_faster_and_timed_once(ratio: float) -> None:
    place: Any = Timed(ratio)
    found = with_early_launches(two_kernels(), place)
    assert place.early == [[False, False], [True, True]]
    assert [k.early for k in found.kernels] == [ratio > 1] * 2
    assert with_early_launches(found, place) is found
    assert len(place.early) == 2


@pytest.mark.usefixtures("_launches_early")
def test_a_kernel_alone_has_none_before_it() -> None:
    traced = autosched.trace(lambda x: torch.softmax(x, -1), torch.empty(8, 16))
    kernel = TracedKernel(traced, untuned_kernels(traced.workloads, cpu_target()))
    assert with_early_launches(kernel, Place(lambda _: pytest.fail("it is timed"))) is kernel


def test_other_devices_launch_one_after_the_other() -> None:
    kernel = two_kernels()
    assert with_early_launches(kernel, Place(lambda _: pytest.fail("it is timed"))) is kernel
