"""Software pipelining: the iterations of a loop that are in flight at once, their loads ahead of their use.

Before:  for k.0 in 8: a = load …; acc += dot(a, b)
After (stages=3):  for k.0 in 8, 3 stages: the same; a and b of iterations k.0 + 1 and k.0 + 2 are loaded meanwhile

Of nested loops, the innermost one with several iterations. Also called double or multi buffering, num_stages
(Triton), `software_pipeline_stage` (TVM).
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.decisions.decision import Decision, each_kernel, each_launch
from search_spaces.devices.target import Target
from search_spaces.programs.statements import For, Statement, mapped
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.schedules.knobs import Choice, Values

NAMES = ("stages",)
WHERE_NOT = "On a CPU; where whole rows are loaded at once, or nothing is copied asynchronously."


def pipelining(target: Target, counts: tuple[int, ...], dots: bool = False, marks_one: bool = True) -> Decision:
    """One of these depths; only 1 without asynchronous copies, except for `dots`, which can load to registers.

    Kernels of dots also set the depth of loops that a compiler makes. `marks_one`: a loop of depth 1 is marked so;
    otherwise its depth is left to the compiler.
    """

    def pipelined(program: TileProgram, values: Values) -> TileProgram:
        count = values.integer("stages")
        marked = count if count > 1 or marks_one else 0
        piped = each_kernel(program, lambda kernel: _kernel(kernel, marked))
        return each_launch(piped, lambda launch: replace(launch, num_stages=count)) if dots else piped

    return Decision(Choice("stages", counts if dots or target.features.copy_bytes else (1,)), pipelined)


def _kernel(kernel: Kernel, count: int) -> Kernel:
    def pipeline(s: Statement) -> Statement:
        if not isinstance(s, For):
            return s
        outer = any(isinstance(inner, For) and inner.extent > 1 for inner in s.body)
        return replace(s, pipeline_stages=0 if outer else count)

    return replace(kernel, body=mapped(kernel.body, pipeline))
