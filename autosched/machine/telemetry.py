"""Telemetry of a GPU while it measures: clocks, temperature, power, and reasons of clock throttling, from NVML.

NVML is the library of the driver that nvidia-smi reads; it needs no CUDA context and disturbs no kernel.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol, Self

import torch

from search_spaces import Target
from tuning_logs import DeviceState

# From nvml.h: enum values, and the bits of "clocks event reasons". Bit 0, an idle GPU, is no throttling.
_CLOCK_SM = 1
_CLOCK_MEMORY = 2
_TEMPERATURE_GPU = 0
_THROTTLE_REASONS = {
    1 << 1: "applications_clocks_setting",
    1 << 2: "sw_power_cap",
    1 << 3: "hw_slowdown",
    1 << 4: "sync_boost",
    1 << 5: "sw_thermal_slowdown",
    1 << 6: "hw_thermal_slowdown",
    1 << 7: "hw_power_brake_slowdown",
    1 << 8: "display_clock_setting",
}


class Nvml(Protocol):
    """The part of NVML in use, under the names of its Python bindings (`pynvml`). Its functions raise `NVMLError`.

    The names of readings work with every driver to date; their successors need one of 2023 or later.
    """

    NVMLError: type[Exception]

    def nvmlInit(self) -> object: ...

    def nvmlShutdown(self) -> object: ...

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> object: ...

    def nvmlDeviceGetCount(self) -> int: ...

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object: ...

    def nvmlDeviceGetName(self, handle: object) -> str | bytes: ...

    def nvmlDeviceGetClockInfo(self, handle: object, type: int) -> int: ...

    def nvmlDeviceGetTemperature(self, handle: object, sensor: int) -> int: ...

    def nvmlDeviceGetPowerUsage(self, handle: object) -> int: ...

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: object) -> int: ...


class DeviceMonitor:
    """Reads the state of one GPU, identified by its UUID: CUDA numbers only visible devices, NVML all of them.

    Raises nothing where NVML is missing, does not know the device, or cannot read a sensor: the state is None then. It
    works in any process, even one that never touches CUDA. Use it in a `with` statement, or `close` it.
    """

    def __init__(self, uuid: str | None, nvml: Nvml | None = None) -> None:
        """Open NVML. `uuid` is "GPU-…"; None for no device. `nvml` replaces the driver's library."""
        self._nvml: Nvml | None = None
        self._handle: object = None
        library = (nvml or _pynvml()) if uuid is not None else None
        if uuid is not None and library is not None:
            self._open(library, uuid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def state(self) -> DeviceState | None:
        """The present state; None if it cannot be read. Power is the mean of the last second on recent devices."""
        if self._nvml is None:
            return None
        try:
            return _read(self._nvml, self._handle)
        except self._nvml.NVMLError:
            return None

    def close(self) -> None:
        """Close NVML; the state is None from now on."""
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            _shut_down(nvml)

    def _open(self, nvml: Nvml, uuid: str) -> None:
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:
            return
        try:
            self._handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        except nvml.NVMLError:
            _shut_down(nvml)
            return
        self._nvml = nvml


def monitor_for(target: Target) -> DeviceMonitor:
    """The monitor of the GPU that PyTorch uses in this process; without any state if the target is a CPU."""
    return DeviceMonitor(device_uuid() if target.kind == "gpu" else None)


def device_uuid() -> str | None:
    """The UUID of the GPU that PyTorch uses in this process, as NVML writes it; None if there is none.

    An instance of a partitioned GPU (MIG) has a UUID of its own, for which NVML has no clocks and power.
    """
    if not torch.cuda.is_available():
        return None
    uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"


def listed_gpus(nvml: Nvml | None = None) -> list[str]:
    """The names of all GPUs of this machine, also of those that this process may not use; none without a driver."""
    library = nvml or _pynvml()
    if library is None:
        return []
    try:
        library.nvmlInit()
    except library.NVMLError:
        return []
    try:
        handles = map(library.nvmlDeviceGetHandleByIndex, range(library.nvmlDeviceGetCount()))
        # Older bindings give bytes.
        return [name if isinstance(name, str) else name.decode() for name in map(library.nvmlDeviceGetName, handles)]
    except library.NVMLError:
        return []
    finally:
        _shut_down(library)


def _pynvml() -> Nvml | None:
    try:
        import pynvml
    except ImportError:
        return None
    bindings: Any = pynvml
    found: Nvml = bindings
    return found


def _read(nvml: Nvml, handle: object) -> DeviceState:
    reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return DeviceState(
        sm_clock_mhz=nvml.nvmlDeviceGetClockInfo(handle, _CLOCK_SM),
        memory_clock_mhz=nvml.nvmlDeviceGetClockInfo(handle, _CLOCK_MEMORY),
        temperature_c=nvml.nvmlDeviceGetTemperature(handle, _TEMPERATURE_GPU),
        power_w=nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
        throttle=tuple(name for bit, name in _THROTTLE_REASONS.items() if reasons & bit),
    )


def _shut_down(nvml: Nvml) -> None:
    try:
        nvml.nvmlShutdown()
    except nvml.NVMLError:
        # The driver is gone: nothing to shut down.
        return
