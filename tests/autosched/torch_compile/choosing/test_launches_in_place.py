"""Ways to launch a segment's kernels: timed where the device has them, noted, and used from then on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import autosched
from autosched.machine.devices import cpu_target
from autosched.torch_compile.choosing import launches_in_place
from autosched.torch_compile.choosing.launches_in_place import with_launches_in_place
from autosched.torch_compile.choosing.place import Place
from autosched.tracing import TracedKernel
from tuning_logs.alternative import Alternative
from untuned import untuned_kernels


class Timed:
    """A place in which other ways to launch are so many times as fast. `launched`: early, and with weights ahead."""

    def __init__(self, ratio: float) -> None:
        self.ratio, self.launched = ratio, list[list[tuple[bool, bool]]]()
        self.deadline = Place(lambda kernel: kernel.computed).deadline

    def timed(self, name: str, kernel: TracedKernel, other: TracedKernel) -> Alternative:
        self.launched += [[(k.early, k.ahead) for k in each.kernels] for each in (kernel, other)]
        return Alternative(name, self.ratio, self.ratio, self.ratio, taken=self.ratio > 1)


def two_kernels() -> TracedKernel:
    traced = autosched.trace(lambda x: torch.softmax(torch.cumsum(x, 0), -1), torch.empty(8, 16))
    assert len(traced.launched) == 2
    return TracedKernel(traced, untuned_kernels(traced.workloads, cpu_target()))


@pytest.fixture
def _all_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = [replace(way, on=lambda _: True, pays=lambda _: True) for way in launches_in_place._WAYS]
    monkeypatch.setattr(launches_in_place, "_WAYS", ways)


@pytest.mark.usefixtures("_all_ways")
@pytest.mark.parametrize("ratio", [1.1, 0.9])
def test_ways_are_taken_where_they_are_faster_and_timed_once(ratio: float) -> None:
    place: Any = Timed(ratio)
    found = with_launches_in_place(two_kernels(), place)
    taken = ratio > 1
    ways = [(False, False), (True, False), (taken, False), (taken, True)]
    assert place.launched == [[way, way] for way in ways]
    assert [(k.early, k.ahead) for k in found.kernels] == [(taken, taken)] * 2
    assert with_launches_in_place(found, place) is found
    assert len(place.launched) == 4


def test_small_inputs_are_read_without_asking_before(monkeypatch: pytest.MonkeyPatch) -> None:
    early, ahead = launches_in_place._WAYS
    monkeypatch.setattr(launches_in_place, "_WAYS", [early, replace(ahead, on=lambda _: True)])
    kernel = two_kernels()
    assert with_launches_in_place(kernel, Place(lambda _: pytest.fail("it is timed"))) is kernel


@pytest.mark.usefixtures("_all_ways")
def test_a_kernel_alone_has_none_before_it() -> None:
    traced = autosched.trace(lambda x: torch.softmax(x, -1), torch.empty(8, 16))
    kernel = TracedKernel(traced, untuned_kernels(traced.workloads, cpu_target()))
    assert with_launches_in_place(kernel, Place(lambda _: pytest.fail("it is timed"))) is kernel


def test_other_devices_launch_one_after_the_other() -> None:
    kernel = two_kernels()
    assert with_launches_in_place(kernel, Place(lambda _: pytest.fail("it is timed"))) is kernel
