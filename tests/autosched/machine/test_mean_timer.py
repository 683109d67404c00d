"""The mean over several settings of data, by made-up times."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from autosched.machine.mean_timer import MeanTimer
from autosched.machine.timing import Run, interleaved


class OfSetting:
    """Calls take what the present setting says of them, one after the other."""

    def __init__(self, seconds: dict[str, dict[Run, float]]) -> None:
        self._seconds = seconds
        self.setting = ""
        self.slowdown = 1.0

    def set_to(self, name: str) -> None:
        self.setting = name

    def sample(self, runs: Sequence[Run]) -> list[float]:
        self.slowdown = 2.0 if self.setting == "long" else 1.0
        return [self._seconds[self.setting][run] for run in runs]


def even() -> None:
    """A call that is as fast in both settings."""


def uneven() -> None:
    """A call that is faster in one, and much slower in the other."""


def test_every_setting_counts_alike_however_long_it_takes() -> None:
    plain = OfSetting({"short": {even: 1e-6, uneven: 0.5e-6}, "long": {even: 1e-3, uneven: 8e-3}})
    timer = MeanTimer(plain, {name: lambda name=name: plain.set_to(name) for name in ("short", "long")})
    taken = interleaved({"even": even, "uneven": uneven}, 3, timer)
    assert taken == {"even": pytest.approx([10**-4.5] * 3), "uneven": pytest.approx([2 * 10**-4.5] * 3)}
    assert timer.medians_s(uneven) == {"short": 0.5e-6, "long": 8e-3}
    assert timer.slowdown == pytest.approx(2**0.5)
