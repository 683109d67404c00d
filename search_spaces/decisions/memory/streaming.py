"""Streaming stores: outputs go past the caches (CPU), or are the first to leave them (GPU).

Before:  store out[…] = y                        After (streaming=True):  store out[…] = y, streaming

Also called non-temporal stores (x86), evict-first (PTX `.cs`). By itself a kernel on a CPU is a little faster with them
(3 % for a softmax of 1 MB, 2 MB of cache); the next kernel of a function, which reads its output, then waits
for memory (scores, softmax and product of an attention: a quarter slower). So they are for outputs beyond the caches.
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.decisions.decision import Decision, each_body
from search_spaces.devices.target import Target
from search_spaces.programs.statements import Statement, Store
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import Choice, Values
from search_spaces.schedules.rules import Rule
from search_spaces.workloads.workload import Workload

NAMES = ("streaming",)
WHERE_NOT = "Where results are stored through dots or by descriptors."


def streaming(workload: Workload, target: Target) -> Decision:
    """Streaming of the outputs: on a CPU only of those that no cache keeps until they are read."""
    knob = Choice("streaming", (False, True))
    stored, held = sum(t.bytes for t in workload.outputs), target.threads * target.l2_bytes

    def streamed(program: TileProgram, values: Values) -> TileProgram:
        if not values.flag("streaming"):
            return program
        return each_body(program, stream)

    def stream(s: Statement) -> Statement:
        return replace(s, streaming=True) if isinstance(s, Store) and s.buffer in workload.output_names else s

    if target.kind != "cpu" or stored > held:
        return Decision(knob, streamed, bears_on="nothing")

    def why_streamed(values: Values) -> str | None:
        if not values.flag("streaming"):
            return None
        return f"streaming is for more than caches hold; {stored} bytes stay in {held}"

    return Decision(knob, streamed, (Rule(("streaming",), why_streamed),), "legality")
