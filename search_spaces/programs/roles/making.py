"""The pass from a kernel that asks for a producer to the roles of its warps.

Before:  acc = 0; for k.0: a = load …; b = load …; acc += dot(a, b)      [1 warp more to load]
After:   a ring; a producer that fills it; groups of consumers that multiply its tiles (`statements`)

`products` shows warp-specialised contractions, `chains` warp-specialised chained dots.
"""

from __future__ import annotations

from search_spaces.devices.wave_groups import WaveGroups
from search_spaces.programs.roles.chains import ChainRoles, follows_dots
from search_spaces.programs.roles.legality import check_chain, check_product
from search_spaces.programs.roles.products import ProductRoles
from search_spaces.programs.roles.requests import RoleLimits
from search_spaces.programs.tile_program import Kernel


def roles_of(
    kernel: Kernel, units: WaveGroups, limits: RoleLimits, kept_registers: int = 0
) -> ProductRoles | ChainRoles:
    """Its roles; `kept_registers`: of a thread of the producer of a contraction (0: the least).

    Raises:
        UnmatchedError: it has no legal roles.
    """
    if follows_dots(kernel):
        chain = ChainRoles.of(kernel, units)
        check_chain(chain)
        return chain
    product = ProductRoles.of(kernel, units, kept_registers)
    check_product(product, limits)
    return product
