"""Contractions whose rows are cut into segments by data, each with matrices of its own: grouped products.

Before:  for m, n: out[m, n] = epilogue(sum over k of f(x[m, k]) * w[segment(ends, m), k, n])
After:   grid m.0, n.0:                          a tile of rows of one segment each (`contractions.work_items`)
           the contraction of these rows with w of their segment, as of any two matrices

Decisions are those of a contraction on dot units, with tiles of one program each, and a producer only for items from
a list. Nothing is split or copied, and outputs are stored by pointers, since descriptors write whole tiles.

Grouped GEMM (CUTLASS), ragged dot (JAX), `torch._grouped_mm`; mixtures of experts (Shazeer et al., 2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from search_spaces.anchors.contractions.contraction_kernels import lower
from search_spaces.anchors.contractions.dot_knobs import decisions
from search_spaces.anchors.contractions.rules.dot_rules import DECIDED_FIRST, dot_rules
from search_spaces.anchors.contractions.starting.contraction_starts import starts
from search_spaces.anchors.contractions.work_items import with_work_items
from search_spaces.decisions.decision import Anchor, Decision, derived
from search_spaces.decisions.programs.persistence import ONE_TILE, PERSISTENT
from search_spaces.decisions.programs.specialization import COOPERATIVE, NONE
from search_spaces.decisions.programs.work_items import LIST, PROGRAM, work_items
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import KnobValue, Values
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.rules import Rule
from search_spaces.schedules.sketch import Sketch
from search_spaces.structure.segmented import Segmented, segmented
from search_spaces.workloads.workload import Workload

# Values of decisions that work items allow, by name.
_ALLOWED: Mapping[str, tuple[KnobValue, ...]] = {
    "split": (1,),
    "partials": ("workspace",),
    "grid": (ONE_TILE, PERSISTENT),
    "a_load": ("pointer", "descriptor"),
    "b_load": ("pointer", "descriptor"),
    "store": ("pointer",),
    "specialize": (NONE, COOPERATIVE),
    "ctas": (1,),
    "batch": (1,),
}


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """One sketch for products of rows that data cuts into segments, on a GPU."""
    if target.kind != "gpu":
        raise UnmatchedError("a CPU gathers the matrix of every row")
    found = segmented(workload)
    if found is None:
        raise UnmatchedError("no product has rows that are cut into segments by data, with a matrix for each")
    form, product = found.form, found.form.workload
    allowed = dict(_ALLOWED) if offers.places else {**_ALLOWED, "specialize": (NONE,)}
    made = (*decisions(product, form, target, offers), work_items())
    applied = tuple(_restricted(d, allowed.get(d.name)) for d in made)
    anchor = Anchor(
        "segmented_contraction",
        lambda values: lower(product, form, values),
        (
            *dot_rules(product, form, target, {d.name: d.knob for d in applied}, offers),
            Rule(("specialize", "items"), _why_not_listed),
        ),
        tuple(map(_listed, starts(form, target, applied, offers))),
        decided_first=DECIDED_FIRST,
    )
    sketch = derived(anchor, applied)
    return (replace(sketch, lower=_Lowering(found, sketch)),)


def _why_not_listed(values: Values) -> str | None:
    if values["specialize"] == NONE or values["items"] == LIST:
        return None
    return f"specialize={values['specialize']} reads the items of its tiles: expected items={LIST}"


def _listed(start: Values) -> Values:
    """The start with a list of items where roles need it."""
    return Values({**start, "items": PROGRAM if start["specialize"] == NONE else LIST})


def _restricted(decision: Decision, allowed: tuple[KnobValue, ...] | None) -> Decision:
    return replace(decision, knob=decision.knob.restricted(allowed)) if allowed else decision


class _Lowering:
    """The lowering of the product of one segment, for the items of all."""

    def __init__(self, of: Segmented, sketch: Sketch) -> None:
        self._of, self._sketch = of, sketch

    def __call__(self, values: Values) -> TileProgram:
        program = self._sketch.lower(values)
        size, listed = values.tile(self._of.cut), values["items"] == LIST
        return replace(with_work_items(program, self._of, size, listed), name=self._of.workload.name)
