"""What is said of a machine that was disturbed while it measured."""

from __future__ import annotations

import dataclasses

from autosched.machine.noise import slowed_text, why_disturbed
from tuning_logs import DeviceState, Measurement

QUIET = Measurement("ok", (1e-3,))
COOL = DeviceState(1980, 3201, 61, 640.0, ("sw_power_cap",))
HOT = DeviceState(1200, 3201, 91, 640.0, ("sw_power_cap", "sw_thermal_slowdown"))


def slowed(times: float) -> Measurement:
    return dataclasses.replace(QUIET, slowdown=times)


def test_a_quiet_search_is_not_commented() -> None:
    assert why_disturbed([QUIET] * 100) is None
    assert why_disturbed([]) is None
    assert slowed_text([1.0, 1.0], "rounds") is None


def test_a_core_that_was_slowed_in_every_twentieth_trial_is_reported() -> None:
    assert why_disturbed([*[QUIET] * 96, *[slowed(1.5)] * 4]) is None
    found = why_disturbed([*[QUIET] * 95, *[slowed(1.5)] * 4, slowed(1.84)])
    assert found == "other work slowed this core in 5 of 100 trials, up to 1.8 times"


def test_what_failed_or_was_never_timed_does_not_count() -> None:
    failed = Measurement("run_timeout", detail="too slow", slowdown=3.0)
    shared = dataclasses.replace(slowed(3.0), timing="shared")
    assert why_disturbed([QUIET, failed, shared]) is None


def test_heat_is_reported_and_a_power_cap_is_not() -> None:
    def at(state: DeviceState) -> Measurement:
        return dataclasses.replace(QUIET, device=state)

    assert why_disturbed([at(COOL)] * 20) is None
    assert why_disturbed([at(COOL)] * 18 + [at(HOT)] * 2) == "heat held the GPU back in 2 of 20 trials (up to 91 °C)"
