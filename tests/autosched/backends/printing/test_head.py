"""The comment at the top of generated code: which tensors a kernel takes."""

from __future__ import annotations

import pytest

import best_spaces
from autosched.backends.build import render
from autosched.backends.fingerprint import source_fingerprint
from autosched.backends.printing.head import head_comment
from autosched.machine.devices import cpu_target
from search_spaces import Target, ops, target_named

CPU, A100 = cpu_target(), target_named("a100")


@pytest.mark.parametrize(("target", "mark"), [(CPU, ";"), (A100, "#")])
def test_the_source_says_shape_and_type_of_every_tensor_of_a_call(target: Target, mark: str) -> None:
    op = ops.matmul(48, 40, 56, dtype="bfloat16", layout="nt", epilogue="bias")
    schedule = next(s for s in best_spaces.build(op, target).seeds() if mark != "#" or s.backend == "triton")
    lines = render(schedule, target).split("\n")
    told = [line.partition(": ")[2] for line in lines if line.startswith((f"{mark} in", f"{mark} out"))]
    assert sorted(told) == ["(40, 56) bfloat16", "(40,) bfloat16", "(48, 40) bfloat16", "(48, 56) bfloat16"]


def test_workspaces_are_said_and_change_no_fingerprint() -> None:
    op = ops.matmul(48, 40, 56, constant="b")
    program = next(s.program for s in best_spaces.build(op, CPU).seeds() if s.program.prepared)
    said = head_comment(program, "title", "#")
    assert ", workspace" in said
    assert source_fingerprint(f"{said}\ncode", program) == source_fingerprint("# another\ncode", program)
