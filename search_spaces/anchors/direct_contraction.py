"""Direct contractions on a CPU: one operand read in place at every tap, the other one packed in panels beforehand.

See `contractions/direct/direct_program.py` for the program. A convolution of any rank, stride, dilation, padding and
grouping is one, with what is computed before and after it.
"""

from __future__ import annotations

from search_spaces.anchors.contractions.direct.direct_program import direct_program
from search_spaces.anchors.contractions.direct.direct_tiles import direct_decisions, direct_starts
from search_spaces.decisions.decision import Anchor, derived
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.sketch import Sketch
from search_spaces.structure.direct_form import direct_form
from search_spaces.workloads.workload import Workload


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """One sketch for a sum of products, of which one operand is shifted, padded or computed."""
    if target.kind != "cpu":
        raise UnmatchedError("on a GPU all operands go through shared memory")
    form = direct_form(workload)
    applied = direct_decisions(form, target)
    anchor = Anchor(
        "direct_contraction",
        lambda values: direct_program(form.workload, form, target, values),
        starts=direct_starts(form, target, applied),
    )
    return (derived(anchor, applied),)
