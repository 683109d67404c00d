"""Drift: what differs from a kernel's certificate is told by its class, and a speed by the library's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import autosched
from autosched import ops
from autosched.kernels import drift_measurement
from autosched.kernels.calibrating import calibration_call
from autosched.kernels.drift import Drift, Latency
from autosched.kernels.drift_measurement import DRIFT_S, drift_of
from autosched.kernels.kernel import Kernel
from tuning_logs import DeviceState
from tuning_logs.certificate import Certificate, Ratio

OP = ops.matmul(40, 40, 40)
STATE = DeviceState(1980, 2600, 40, 300.0)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("drift") / "tuning.jsonl"
    autosched.tune(OP, "cpu", 2, strategy="random", log=path)
    return path


@pytest.fixture(scope="module")
def kernel(log: Path) -> Kernel:
    return autosched.replay(OP, "cpu", log=log, drift=True)


def certificate(kernel: Kernel) -> Certificate:
    found = kernel.record.measurement.certificate
    assert found is not None
    return found


def drifted(kernel: Kernel, seconds: float = DRIFT_S, source: str | None = None, **changed: Any) -> Drift:
    """The drift from another certificate; `source`: that of the record."""
    measurement = kernel.record.measurement
    assert measurement.facts is not None
    facts = replace(measurement.facts, source=source or measurement.source)
    measurement = replace(measurement, facts=facts, certificate=replace(certificate(kernel), **changed))
    return drift_of(kernel.noted(replace(kernel.record, measurement=measurement)), seconds)


def with_speedup(kernel: Kernel, value: float) -> Drift:
    """The drift from a certificate with another speed-up over the library, and no calibration."""
    library = certificate(kernel).library
    assert library is not None
    ratio = Ratio(value, 0.99 * value, 1.01 * value)
    return drifted(kernel, library=replace(library, ratio=ratio), itself=None, calibration=None)


def test_replay_notes_the_drift_where_it_is_asked_to(log: Path, kernel: Kernel) -> None:
    assert autosched.replay(OP, "cpu", log=log).drift is None
    assert kernel.drift is not None
    assert kernel.drift.kernel is not None
    assert kernel.drift.library is not None
    assert set(kernel.drift.causes) <= {"device", "noise"}
    assert str(kernel.drift).startswith(f"drift: {kernel.drift.verdict}, ")


@pytest.fixture
def as_if_timed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: rounds of this process count like those of the worker that made the record."""
    monkeypatch.setattr(drift_measurement, "_in_this_process", lambda _, *verdict: verdict)


def test_on_a_cpu_another_speed_in_this_process_decides_nothing(kernel: Kernel) -> None:
    found = with_speedup(kernel, 1000.0)
    assert found.verdict == "ambiguous"
    assert "autosched verify" in found.reason


@pytest.mark.usefixtures("as_if_timed_alike")
def test_a_far_other_speed_up_is_told_and_only_noise_is_left_to_cause_it(kernel: Kernel) -> None:
    slower, faster = with_speedup(kernel, 1000.0), with_speedup(kernel, 0.001)
    assert (slower.verdict, slower.causes) == ("slower", ("noise",))
    assert (faster.verdict, faster.causes) == ("faster", ("noise",))
    assert "recorded 1000.00x" in slower.reason


@pytest.mark.usefixtures("as_if_timed_alike")
def test_what_differed_then_without_a_cause_decides_nothing_now(kernel: Kernel) -> None:
    library = certificate(kernel).library
    assert library is not None
    ratio = Ratio(1000.0, 990.0, 1010.0)
    far = replace(library, ratio=ratio)
    itself = replace(library, other="itself", ratio=Ratio(1.0, 0.99, 1.01))
    apart = replace(itself, winner_s=min(0.5, 1e5 * library.winner_s))
    assert drifted(kernel, library=far, runner_up=None, itself=itself).verdict == "slower"
    assert drifted(kernel, library=far, runner_up=None, itself=apart).verdict == "ambiguous"


def test_another_source_is_of_the_code(kernel: Kernel) -> None:
    found = drifted(kernel, source="0" * 16)
    assert found.causes == ("code",)
    assert "another source" in found.code
    assert not found.toolchain


def test_another_binary_and_other_versions_are_of_the_toolchain(kernel: Kernel) -> None:
    versions = tuple((n, "0.1" if n == "llvmlite" else v) for n, v in certificate(kernel).versions)
    found = drifted(kernel, binary="0" * 64, versions=versions)
    assert found.causes == ("toolchain",)
    assert found.toolchain.startswith("another binary of the same source, llvmlite 0.1 -> ")


def test_another_processor_or_driver_is_of_the_device(kernel: Kernel) -> None:
    there = replace(certificate(kernel).device, processor="other")
    versions = (*certificate(kernel).versions, ("driver", "570.1"))
    found = drifted(kernel, device=there, versions=versions)
    assert found.causes == ("device",)
    assert found.device == "a processor with other instructions, driver 570.1 -> unknown"


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (STATE, ""),
        (replace(STATE, sm_clock_mhz=1920), ""),
        (replace(STATE, sm_clock_mhz=1500), "clock 1980–1980 -> 1500 MHz"),
        (replace(STATE, throttle=("sw_power_cap",)), "throttled by sw_power_cap"),
    ],
)
def test_clocks_and_throttling_are_of_the_device(
    state: DeviceState, told: str, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Monitor:
        def state(self) -> DeviceState:
            return state

    @contextlib.contextmanager
    def monitor(_: object) -> Iterator[Monitor]:
        yield Monitor()

    monkeypatch.setattr(drift_measurement, "monitor_for", monitor)
    assert drifted(kernel, device=replace(certificate(kernel).device, states=(STATE,))).device == told


def test_the_calibration_kernel_of_the_certificate_is_timed_again(kernel: Kernel) -> None:
    then, now = certificate(kernel).calibration, calibration_call(kernel.target, kernel.device)
    assert then is not None
    assert now is not None
    assert then.other == now[0]
    assert kernel.drift is not None
    assert kernel.drift.calibration is not None
    assert kernel.drift.calibration.then_s == then.other_s
    # Far apart only if another kernel, or nothing, was timed.
    assert 0.1 < kernel.drift.calibration.change < 10
    assert drifted(kernel, calibration=replace(then, other="0" * 16)).calibration is None
    assert drifted(kernel, calibration=None).calibration is None


@pytest.mark.parametrize(
    ("kernel_s", "calibration_s", "differing", "moved_by", "alike"),
    [
        (1.0, 1.5, {"code": "x"}, (), ("noise",)),
        (1.5, 1.5, {"code": "x"}, ("device",), ("device",)),
        (1.5, 1.5, {"toolchain": "x"}, ("device", "toolchain"), ("device",)),
        (1.5, 1.0, {"code": "x", "device": "x"}, ("code",), ("noise",)),
        (0.5, 1.0, {"toolchain": "x"}, ("toolchain",), ("noise",)),
        (1.5, 1.0, {"device": "x"}, ("noise",), ("noise",)),
        (1.5, 1.2, {"code": "x"}, ("device", "code"), ("device", "noise")),
    ],
)
def test_the_calibration_kernel_tells_the_device_from_the_kernel(
    kernel_s: float, calibration_s: float, differing: dict[str, str], moved_by: tuple[str, ...], alike: tuple[str, ...]
) -> None:
    found = Drift(**differing, verdict="slower", kernel=Latency(1.0, kernel_s), calibration=Latency(1.0, calibration_s))
    assert found.moved_by == moved_by
    assert ("moved: " in str(found)) is bool(moved_by)
    assert found.causes == tuple(differing)
    assert Drift(verdict="slower", kernel=found.kernel, calibration=found.calibration).causes == alike
    assert replace(found, calibration=None).moved_by == ()


def test_without_a_library_latencies_are_compared(kernel: Kernel) -> None:
    found = drifted(kernel, library=None)
    assert found.library is None
    assert found.kernel is not None
    assert found.kernel.then_s == kernel.record.measurement.latency_s
    assert found.verdict != "unfit"


def test_nothing_is_timed_without_a_certificate_or_time(kernel: Kernel) -> None:
    short = drifted(kernel, seconds=1e-9)
    assert (short.verdict, short.kernel) == ("unfit", None)
    assert "not timed: 6 rounds take more" in short.reason
    bare = replace(kernel.record, measurement=replace(kernel.record.measurement, certificate=None))
    assert drift_of(kernel.noted(bare), DRIFT_S) == Drift(reason="the record has no certificate to compare with")


def test_kernels_of_a_function_share_the_time(log: Path) -> None:
    a, b = torch.randn(40, 40), torch.randn(40, 40)
    function = autosched.replay(autosched.trace(torch.mm, a, b), "cpu", log=log, drift=True)
    assert isinstance(function, autosched.TracedKernel)
    assert [k.drift is not None for k in function.kernels] == [True]
