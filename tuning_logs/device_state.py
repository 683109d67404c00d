"""The state of a GPU while it measures."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from search_spaces.parsed_json import array, members, number, text, whole


@dataclass(frozen=True)
class DeviceState:
    """A GPU's state during trials, from NVML: clocks in MHz, °C, watts, and reasons of throttling, if any.

    `throttle` has the reasons in NVML's words ("sw_power_cap", "hw_thermal_slowdown" …); "gpu_idle" is left out.
    """

    sm_clock_mhz: int
    memory_clock_mhz: int
    temperature_c: int
    power_w: float
    throttle: tuple[str, ...] = ()

    @property
    def thermal(self) -> bool:
        """True if heat throttled it: timings are then below what the device can do."""
        return any("thermal" in reason for reason in self.throttle)

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "throttle": list(self.throttle)}

    @staticmethod
    def from_json(data: Any) -> DeviceState:
        """Raises DataError."""
        given = members(data, "device", _DEVICE_STATE, ())
        return DeviceState(
            sm_clock_mhz=whole(given["sm_clock_mhz"], "device: sm_clock_mhz"),
            memory_clock_mhz=whole(given["memory_clock_mhz"], "device: memory_clock_mhz"),
            # NVML reports it as a signed number of 32 bits.
            temperature_c=whole(given["temperature_c"], "device: temperature_c", -(2**31), 2**31),
            power_w=number(given["power_w"], "device: power_w"),
            throttle=tuple(text(t, "device: throttle") for t in array(given["throttle"], "device: throttle")),
        )


_DEVICE_STATE = tuple(field.name for field in dataclasses.fields(DeviceState))
