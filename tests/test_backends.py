"""Backends by name and by target, and the search spaces that they make together."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

from autosched import backends
from autosched.backends import spaces
from autosched.backends.reproduction import why_not_reproduced
from autosched.kernels.kernel import load_kernel
from autosched.machine.devices import cpu_target
from search_spaces import InputError, Target, ops, target_named
from tuning_logs import TuningRecord

sys.path.append(str(Path(__file__).parent))
from untuned import untuned_record

CPU, H200 = cpu_target(), target_named("h200")


@pytest.fixture
def foreign() -> TuningRecord:
    """A record of a backend that is not here."""
    workload = ops.gelu_scale(64)
    record = untuned_record(spaces.build(workload, CPU).sample(np.random.default_rng(0)), workload, CPU)
    return dataclasses.replace(record, schedule=dataclasses.replace(record.schedule, backend="cuda"))


@pytest.mark.parametrize(("target", "name"), [(CPU, "llvm"), (H200, "triton")], ids=["cpu", "gpu"])
def test_a_target_is_served_by_the_backends_for_its_kind(target: Target, name: str) -> None:
    assert [backend.name for backend in backends.for_target(target)] == [name]
    assert spaces.build(ops.gelu_scale(64), target).sample(np.random.default_rng(0)).backend == name


def test_a_backend_that_is_not_installed_is_named_with_those_that_are() -> None:
    with pytest.raises(InputError, match=r"backend 'cuda' is not installed; expected one of llvm, triton"):
        backends.named("cuda")


def test_a_kernel_of_a_backend_that_is_not_installed_is_not_built_by_another(foreign: TuningRecord) -> None:
    with pytest.raises(InputError, match="backend 'cuda' is not installed"):
        load_kernel(foreign)
    assert "backend 'cuda' is not installed" in str(why_not_reproduced(foreign))
