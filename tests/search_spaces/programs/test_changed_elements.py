"""Programs that store only the elements of an output that differ from what lies in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import best_spaces
from autosched import backends
from autosched.backends import CompileError
from autosched.machine.devices import cpu_target
from cuda_on_cpu import EmulatedProgram
from search_spaces import Axis, Stage, Target, Tensor, TileProgram, Workload, target_named
from search_spaces.programs.changed_elements import storing_changes
from search_spaces.programs.interpreting.interpreter import interpret
from search_spaces.programs.statements import Load, Store, statements
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Literal, Position

H100 = target_named("h100")
H, P, D = map(axis_index, "hpd")
OLD, NEW = Access("old", (H, P, D)), Access("new", (H, D))
# Rows at one position are new.
HERE = ex.call("eq", Position(P), Access("at", ()))


def chosen(condition: Expression, new: Expression, old: Expression) -> Expression:
    return ex.call("where", condition, new, old)


def workload(expression: Expression, dtype: str = "float32") -> Workload:
    old, new = Tensor("old", (2, 12, 20), dtype), Tensor("new", (2, 20), "float32")
    axes = (Axis("h", 2), Axis("p", 12), Axis("d", 20))
    return Workload("test", (old, new, Tensor("at", (), "float32")), (Stage("out", axes, expression, dtype=dtype),))


def programs(op: Workload, target: Target = H100, count: int = 4) -> Iterator[tuple[TileProgram, TileProgram | None]]:
    """Programs of some schedules, each with the one that stores only changes."""
    space, rng = best_spaces.build(op, target), np.random.default_rng(0)
    for _ in range(count):
        program = space.sample(rng).program
        yield (
            program,
            storing_changes(program, program.given[-1].name, [program.given[op.canonical.inputs.index(0)].name]),
        )


def inputs_of(op: Workload, at: float) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    drawn = {"old": rng.standard_normal((2, 12, 20)), "new": rng.standard_normal((2, 20)), "at": np.array(at)}
    return [drawn[op.inputs[n].name].astype(np.float32) for n in op.canonical.inputs]


CHOICES = {
    "a row": chosen(HERE, NEW, OLD),
    "a row of one half": chosen(ex.call("eq", Position(H), Literal(1.0)), chosen(HERE, NEW, OLD), OLD),
    "all but a row": chosen(HERE, OLD, ex.call("exp", NEW)),
    "two rows": chosen(HERE, NEW, chosen(ex.call("lt", Position(P), Literal(1.0)), Literal(2.0), OLD)),
    "where old elements are negative": chosen(ex.call("lt", OLD, Literal(0.0)), NEW, OLD),
    "old elements that grow": chosen(HERE, ex.add(OLD, NEW), OLD),
}


@pytest.mark.parametrize("at", [0, 11, 12, -1])
@pytest.mark.parametrize("choice", CHOICES)
def test_all_but_unchanged_elements_are_stored(choice: str, at: float) -> None:
    op = workload(CHOICES[choice])
    given = inputs_of(op, at)
    old = given[op.canonical.inputs.index(0)].reshape(2, 12, 20)
    for program, changing in programs(op):
        assert changing is not None
        (expected,), (found,) = interpret(program, given), interpret(changing, given)
        unwritten = np.isnan(found)
        np.testing.assert_array_equal(np.where(unwritten, old.reshape(found.shape), found), expected)
        # Nothing new equals what was there before.
        np.testing.assert_array_equal(unwritten, expected == old.reshape(found.shape))


def test_what_is_only_kept_is_not_read() -> None:
    for program, changing in programs(workload(CHOICES["a row"])):
        assert changing is not None
        (old,) = {s.buffer for s in _loads(program)} - {s.buffer for s in _loads(changing)}
        assert program.buffer(old).elements == 2 * 12 * 20


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(ex.add(OLD, NEW), id="a sum"),
        pytest.param(ex.call("exp", chosen(HERE, NEW, OLD)), id="a function of the choice"),
        pytest.param(chosen(HERE, NEW, ex.call("neg", OLD)), id="a choice of another value"),
        pytest.param(ex.mul(HERE, OLD), id="a product"),
    ],
)
def test_programs_without_such_elements_stay(expression: Expression) -> None:
    assert all(changing is None for _, changing in programs(workload(expression)))


def test_integers_and_other_memory_stay() -> None:
    op = workload(CHOICES["a row"])
    (program, _), *_ = programs(op, count=1)
    assert storing_changes(program, program.given[-1].name, []) is None
    whole = workload(CHOICES["a row"], "int32")
    assert all(changing is None for _, changing in programs(whole))


def test_triton_stores_them(triton_interpreter: Any) -> None:
    op = workload(CHOICES["a row of one half"])
    given = inputs_of(op, 3)
    for _, changing in programs(op, count=2):
        assert changing is not None
        named = dict(zip((b.name for b in changing.given), given, strict=False))
        (expected,) = interpret(changing, given)
        source = backends.named("triton").render(changing, "", H100)
        got = triton_interpreter.run(source, changing, named)
        np.testing.assert_array_equal(got, expected)


def test_each_output_of_several_stores_its_own(triton_interpreter: Any) -> None:
    keys, values = (Tensor(name, (2, 12, 20), "float32") for name in ("keys", "values"))
    new, at = Tensor("new", (2, 20), "float32"), Tensor("at", (), "float32")
    axes = (Axis("h", 2), Axis("p", 12), Axis("d", 20))
    entered = [
        Stage("k", axes, chosen(HERE, NEW, Access("keys", (H, P, D)))),
        Stage("v", axes, chosen(HERE, ex.call("exp", NEW), Access("values", (H, P, D)))),
        Stage("sums", axes, ex.call("exp", Access("new", (H, D)))),
    ]
    op = Workload("test", (keys, values, new, at), tuple(entered), output_names=("k", "v", "sums"))
    rng = np.random.default_rng(1)
    drawn = [rng.standard_normal(t.shape).astype(np.float32) if t is not at else np.float32(7) for t in op.inputs]
    given = [np.asarray(drawn[n]) for n in op.canonical.inputs]
    program = best_spaces.build(op, H100).sample(rng).program
    names = [b.name for b in program.given]
    changing = program
    for number, old in enumerate((0, 1)):
        made = storing_changes(changing, names[4 + number], [names[op.canonical.inputs.index(old)]])
        assert made is not None
        changing = made
    whole, found = interpret(program, given), interpret(changing, given)
    for number, (a, b) in enumerate(zip(whole, found, strict=True)):
        rows = [7] if number < 2 else [*range(12)]
        shaped = [x.reshape(2, 12, 20) for x in (a, b)]
        np.testing.assert_array_equal(shaped[1][:, rows], shaped[0][:, rows])
        assert np.isnan(b).sum() == 2 * (12 - len(rows)) * 20
    source = backends.named("triton").render(changing, "", H100)
    got = triton_interpreter.run_all(source, changing, dict(zip(names, given, strict=False)))
    for a, b in zip(got, found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("choice", ["a row of one half", "where old elements are negative"])
def test_cuda_stores_them(choice: str, tmp_path: Path) -> None:
    op = workload(CHOICES[choice])
    given = inputs_of(op, 3)
    for number, (_, changing) in enumerate(programs(op)):
        assert changing is not None
        (expected,) = interpret(changing, given)
        memory = torch.full(expected.shape, math.nan)
        (directory := tmp_path / str(number)).mkdir()
        EmulatedProgram(changing, H100, directory)([*map(torch.from_numpy, given), memory])
        np.testing.assert_array_equal(memory.numpy(), expected)


def test_the_other_backend_refuses_them() -> None:
    for _, changing in programs(workload(CHOICES["a row"]), cpu_target(), count=1):
        assert changing is not None
        with pytest.raises(CompileError, match="stored"):
            backends.named("llvm").render(changing, "", cpu_target())


def test_text_has_the_condition() -> None:
    ((_, changing),) = programs(workload(CHOICES["a row"]), count=1)
    assert changing is not None
    (store,) = (s for s in statements(changing.kernels[0].body) if isinstance(s, Store))
    assert store.where


def _loads(program: TileProgram) -> Iterator[Load]:
    return (s for kernel in program.kernels for s in statements(kernel.body) if isinstance(s, Load))
