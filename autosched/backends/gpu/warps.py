"""The threads that kernels are printed for: warps of NVIDIA's GPUs, and the warp groups of Hopper that issue wgmma.

Search spaces ask their target. Printers support only these devices, which is defined here once.
"""

from __future__ import annotations

from search_spaces.devices.target import GPUS, Target
from search_spaces.devices.wave_groups import WaveGroups


def _of_hopper() -> WaveGroups:
    found = GPUS["h100"].wave_groups
    assert found is not None
    return found


WGMMA = _of_hopper()
WARP, WARP_GROUP, GROUP_ROWS = WGMMA.wave, WGMMA.waves, WGMMA.rows


def why_other_waves(target: Target) -> str | None:
    """Reason that no kernel is printed for a GPU with waves of another size, or None."""
    if target.wave == WARP:
        return None
    return f"{target.name} has waves of {target.wave} threads; kernels are printed for waves of {WARP}"


def has_wgmma(target: Target) -> bool:
    groups = target.wave_groups
    return groups is not None and (groups.wave, groups.instructions) == (WGMMA.wave, WGMMA.instructions)


def why_no_groups(target: Target, producer_warps: int) -> str | None:
    """Reason that a GPU has no kernel with producer warps, or None."""
    if has_wgmma(target):
        return None
    return f"producer_warps={producer_warps} on {target.name}; expected a GPU with Hopper's dots of warp groups"
