"""Compilation for other nodes, in processes that may crash; and the cards that get what was compiled."""

from __future__ import annotations

import pytest

import fake_backend
from autosched.backends.backend import Artefact
from autosched.machine import devices
from autosched.measuring import LocalMeasurer, TrialLimits
from autosched.measuring.fleet.compile_service import CompileService
from fake_backend import schedule
from search_spaces import TargetUnavailableError
from tuning_logs import Measurement

DOUBLING = fake_backend.doubling()
LIMITS = TrialLimits(compile_timeout_s=2.0, run_timeout_s=2.0, compile_workers=2)


def test_what_compiles_is_measured_elsewhere_without_compiling_again_and_what_does_not_fails_as_it_does_there() -> None:
    target = devices.cpu_target()
    service = CompileService(target, LIMITS, fake_backend.LOCATION)
    told = ["compiles once:a", "cannot be printed", "crashes the compiler", "compiles forever"]
    futures = [service.submit(DOUBLING, schedule(behaviour)) for behaviour in told]
    made, *failed = [future.result(60.0) for future in futures]
    assert isinstance(made, Artefact)
    assert [m.status for m in failed if isinstance(m, Measurement)] == [
        "compile_error",
        "compile_crash",
        "compile_timeout",
    ]
    with LocalMeasurer(target, limits=LIMITS, backend=fake_backend.LOCATION) as measurer:
        # One that cannot be compiled here: the artefact is all that counts.
        brought = measurer.submit(DOUBLING, [schedule("compiles forever")], artefact=made)
        (found,) = [future.result(30.0) for future in brought]
    assert found.ok
    assert found.facts == made.facts


def test_a_toolchain_that_is_missing_is_an_error_now_and_later() -> None:
    service = CompileService(devices.cpu_target(), LIMITS, "fake_backend:create_broken")
    with pytest.raises(TargetUnavailableError, match="the toolchain is not installed"):
        service.submit(DOUBLING, schedule("is fine")).result(60.0)
    with pytest.raises(TargetUnavailableError, match="the toolchain is not installed"):
        service.submit(DOUBLING, schedule("is fine"))
