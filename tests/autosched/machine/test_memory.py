"""What does not fit in memory is refused before the system has to kill something."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from autosched import ops
from autosched.checking.random_inputs import random_inputs
from autosched.checking.rounding.analysis import rounding_error
from autosched.machine.memory import free_bytes, memory_for
from search_spaces import OutOfMemoryError

CPU = torch.device("cpu")


@contextmanager
def limited_to(extra_bytes: int) -> Iterator[None]:
    """An address space of so much more than now."""
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        present = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (present + extra_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


def test_what_a_process_may_still_have_is_within_its_limit() -> None:
    with limited_to(2**30):
        free = free_bytes(CPU)
        assert free is not None
        assert 2**29 < free <= 2**30


def test_more_than_there_is_is_refused_before_anything_is_allocated() -> None:
    with (
        limited_to(2**30),
        pytest.raises(
            OutOfMemoryError, match=r"out of memory: two rows need 4\.0 GB; 1\.\d GB are free on this machine"
        ),
        memory_for("two rows", 4 * 10**9, CPU),
    ):
        raise AssertionError("entered")


def test_an_allocation_that_is_refused_all_the_same_names_what_was_asked_for() -> None:
    with limited_to(2**30), pytest.raises(OutOfMemoryError, match="two rows need 0"), memory_for("two rows", 8, CPU):
        torch.empty(2**31, dtype=torch.uint8)


def test_another_error_passes() -> None:
    with pytest.raises(RuntimeError, match="made up"), memory_for("two rows", 8, CPU):
        raise RuntimeError("made up")


def test_inputs_and_their_reference_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    op = ops.matmul(64, 32, 16)
    inputs = random_inputs(op, 0)
    monkeypatch.setattr("autosched.machine.memory.free_bytes", lambda device: 6000)
    with pytest.raises(OutOfMemoryError, match="the inputs of matmul m=64"):
        random_inputs(op, 0)
    with pytest.raises(OutOfMemoryError, match="the float64 values to check matmul m=64"):
        rounding_error(op, inputs)
