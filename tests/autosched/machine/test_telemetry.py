"""The state of a GPU: read where NVML tells, None everywhere else, and never an error."""

from __future__ import annotations

import time

import pytest
import torch

from autosched.machine.devices import cpu_target, gpu_target
from autosched.machine.telemetry import DeviceMonitor, device_uuid, listed_gpus, monitor_for
from needed import needs_gpu
from tuning_logs import DeviceState

UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"


class FakeError(Exception):
    pass


class FakeNvml:
    """The driver of a machine with one GPU, held back by heat and power; `broken` functions raise."""

    NVMLError: type[Exception] = FakeError

    def __init__(self, *broken: str) -> None:
        self.broken = broken
        self.open = 0

    def _check(self, function: str) -> None:
        if function in self.broken:
            raise FakeError(function)

    def nvmlInit(self) -> None:
        self._check("init")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1
        self._check("shutdown")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> object:
        if uuid != UUID:
            raise FakeError("not found")
        return "the only one"

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:
        self._check("handle")
        return index

    def nvmlDeviceGetName(self, handle: object) -> str | bytes:
        return ["NVIDIA H200", b"NVIDIA L4"][int(str(handle))]

    def nvmlDeviceGetClockInfo(self, handle: object, type: int) -> int:
        assert handle == "the only one"
        return {1: 1755, 2: 3201}[type]

    def nvmlDeviceGetTemperature(self, handle: object, sensor: int) -> int:
        assert (handle, sensor) == ("the only one", 0)
        return 64

    def nvmlDeviceGetPowerUsage(self, handle: object) -> int:
        self._check("power")
        return 698_123

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: object) -> int:
        # Bit 40 is one that no version knows yet.
        return 0x1 | 0x4 | 0x20 | 1 << 40


def test_the_state_is_read_in_the_units_of_the_log() -> None:
    with DeviceMonitor(UUID, FakeNvml()) as monitor:
        state = monitor.state()
    assert state == DeviceState(1755, 3201, 64, 698.123, ("sw_power_cap", "sw_thermal_slowdown"))
    assert state.thermal


def test_nvml_is_opened_once_and_given_back_once() -> None:
    nvml = FakeNvml()
    monitor = DeviceMonitor(UUID, nvml)
    monitor.state()
    monitor.state()
    assert nvml.open == 1
    monitor.close()
    monitor.close()
    assert nvml.open == 0
    assert monitor.state() is None


@pytest.mark.parametrize("broken", ["init", "power"])
def test_what_nvml_cannot_tell_is_none(broken: str) -> None:
    nvml = FakeNvml(broken)
    with DeviceMonitor(UUID, nvml) as monitor:
        assert monitor.state() is None
    assert nvml.open == 0


def test_a_device_that_nvml_does_not_know_has_no_state_and_leaves_nvml_closed() -> None:
    nvml = FakeNvml()
    assert DeviceMonitor("GPU-another", nvml).state() is None
    assert nvml.open == 0


def test_a_driver_that_is_gone_at_the_end_is_no_error() -> None:
    nvml = FakeNvml("shutdown")
    DeviceMonitor(UUID, nvml).close()
    assert nvml.open == 0


@pytest.mark.parametrize(
    ("broken", "names"), [("", ["NVIDIA H200", "NVIDIA L4"]), ("handle", []), ("init", []), ("shutdown", 2)]
)
def test_all_gpus_of_a_machine_are_listed_and_none_where_nvml_fails(broken: str, names: list[str] | int) -> None:
    nvml = FakeNvml(broken)
    found = listed_gpus(nvml)
    assert found == names or len(found) == names
    assert nvml.open == 0


def test_no_device_means_no_nvml() -> None:
    nvml = FakeNvml()
    assert DeviceMonitor(None, nvml).state() is None
    assert nvml.open == 0


def test_a_cpu_has_no_state() -> None:
    with monitor_for(cpu_target()) as monitor:
        assert monitor.state() is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_driver_there_is_no_device_and_no_state() -> None:
    assert device_uuid() is None
    assert DeviceMonitor(UUID).state() is None


@pytest.mark.gpu
@needs_gpu
def test_the_state_of_a_real_gpu_is_plausible_and_quickly_read() -> None:
    with monitor_for(gpu_target()) as monitor:
        state = monitor.state()
        assert state is not None
        begin = time.perf_counter()
        for _ in range(100):
            monitor.state()
        seconds = (time.perf_counter() - begin) / 100
    assert 100 < state.sm_clock_mhz < 4000
    assert 100 < state.memory_clock_mhz < 20_000
    assert 10 < state.temperature_c < 110
    assert 5 < state.power_w < 1500
    assert seconds < 5e-3
