"""The calibration kernel of a device: one small product, whose speed tells what the device itself does today.

It depends on the target and on the code that prints it, and on nothing that is tuned: of equal source it is the same
kernel in every certificate.
"""

from __future__ import annotations

from autosched import backends
from autosched.backends import spaces
from search_spaces import Schedule, Target, Workload, ops

# Some 10 µs of a GPU, and 0.3 ms of a CPU's core: long beside a launch, and short beside the rounds of a certificate.
CALIBRATION: Workload = ops.matmul(256, 256, 256)


def calibration_schedule(target: Target) -> Schedule | None:
    """The first start of its space that a backend here can compile; None without one."""
    usable = {backend.name for backend in backends.for_target(target) if backend.why_unavailable(target) is None}
    starts = spaces.build(CALIBRATION, target).seeds()
    return next((schedule for schedule in starts if schedule.backend in usable), None)
