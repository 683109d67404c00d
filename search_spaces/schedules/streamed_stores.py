"""Stores past the caches of a CPU, which are for what no cache would hold until it is read.

By itself a kernel is a little faster with them (3 % for a softmax of 1 MB, 2 MB of cache); the one that reads what it
made, as the next of a function does, then waits for memory (scores, softmax and product of an attention: a quarter
slower).
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.devices.target import Target
from search_spaces.schedules.knobs import Values
from search_spaces.schedules.rules import Rule
from search_spaces.schedules.space import Sketch
from search_spaces.workloads.workload import Workload

_STREAMING = "streaming"


def kept_in_caches(sketch: Sketch, workload: Workload, target: Target) -> Sketch:
    """The sketch without stores past the caches where these hold all that it stores."""
    stored, held = sum(t.bytes for t in workload.outputs), target.threads * target.l2_bytes
    if target.kind != "cpu" or stored > held or all(k.name != _STREAMING for k in sketch.knobs):
        return sketch

    def why_streamed(values: Values) -> str | None:
        if not values.flag(_STREAMING):
            return None
        return f"{_STREAMING} is for more than caches hold; {stored} bytes stay in {held}"

    rule = Rule((_STREAMING,), why_streamed)
    return replace(sketch, rules=(*sketch.rules, rule), legality_knobs=(*sketch.legality_knobs, _STREAMING))
