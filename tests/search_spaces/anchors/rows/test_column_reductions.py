"""Reductions over an axis whose neighbours are not neighbours in memory: sums of columns, softmax over the batch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import best_spaces
from autosched.backends.llvm.backend import LlvmBackend
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from autosched.machine import devices
from autosched.machine.element_types import torch_dtype
from row_kinds import kind_of, of_kind
from scheduled_tensors import interpreted, launched_on
from search_spaces import Axis, Reduction, Schedule, SearchSpace, Stage, Tensor, Workload
from search_spaces.devices.target import GPUS
from search_spaces.programs.statements import For, Load, Reduce, statements
from search_spaces.structure.axes import structure_of
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Literal

H200 = GPUS["h200"]
HERE = devices.cpu_target()


def at(*names: str) -> tuple[Affine, ...]:
    return tuple(axis_index(n) for n in names)


def column_fold(rows: int, columns: int, operator: str = "sum", dtype: str = "float32") -> Workload:
    """out[j] = fold over i of x[i, j]."""
    i, j = Axis("i", rows), Axis("j", columns)
    fold = Reduction(operator, (i,))  # type: ignore[arg-type]  # the parametrised tests pass names
    stage = Stage("out", (j,), Access("x", at("i", "j")), fold, dtype=dtype)
    return Workload(f"column_{operator}", (Tensor("x", (rows, columns), dtype),), (stage,))


def mean_and_variance(rows: int, columns: int) -> Workload:
    """out[j] = the variance of x[:, j], by way of its mean, times its scale; the scale is a vector."""
    i, j = Axis("i", rows), Axis("j", columns)
    share = Literal(1.0 / rows)
    centred = ex.sub(Access("x", at("i", "j")), Access("mean", at("j")))
    stages = (
        Stage("total", (j,), Access("x", at("i", "j")), Reduction("sum", (i,))),
        Stage("mean", (j,), ex.mul(Access("total", at("j")), share)),
        Stage("squares", (j,), ex.mul(centred, centred), Reduction("sum", (i,))),
        Stage("out", (j,), ex.mul(ex.mul(Access("squares", at("j")), share), Access("scale", at("j")))),
    )
    inputs = (Tensor("x", (rows, columns), "float32"), Tensor("scale", (columns,), "float32"))
    return Workload("variance", inputs, stages)


def softmax_over_rows(rows: int, columns: int) -> Workload:
    """out[i, j] = softmax over i of x[i, j] * weight[i]."""
    i, j = Axis("i", rows), Axis("j", columns)
    value: Expression = ex.mul(Access("x", at("i", "j")), Access("weight", at("i")))
    stages = (
        Stage("top", (j,), value, Reduction("max", (i,))),
        Stage("e", (i, j), ex.call("exp", ex.sub(value, Access("top", at("j"))))),
        Stage("total", (j,), Access("e", at("i", "j")), Reduction("sum", (i,))),
        Stage("out", (i, j), ex.div(Access("e", at("i", "j")), Access("total", at("j")))),
    )
    inputs = (Tensor("x", (rows, columns), "float32"), Tensor("weight", (rows,), "float32"))
    return Workload("softmax_over_rows", inputs, stages)


def middle_sum(outer: int, middle: int, inner: int, strides: tuple[int, ...] | None = None) -> Workload:
    """out[b, j] = sum over i of x[b, i, j]."""
    b, i, j = Axis("b", outer), Axis("i", middle), Axis("j", inner)
    stage = Stage("out", (b, j), Access("x", at("b", "i", "j")), Reduction("sum", (i,)))
    return Workload("middle_sum", (Tensor("x", (outer, middle, inner), "float32", strides),), (stage,))


def cosine(rows: int, columns: int, outer: bool) -> Workload:
    """The cosine of the angle between x and y along the rows, or across them: three sums that need nothing else."""
    i, j = Axis("i", rows), Axis("j", columns)
    kept, folded = (j, i) if outer else (i, j)
    x, y = (Access(n, at("i", "j")) for n in "xy")
    products = {"xy": ex.mul(x, y), "xx": ex.mul(x, x), "yy": ex.mul(y, y)}
    sums = [Stage(n, (kept,), e, Reduction("sum", (folded,))) for n, e in products.items()]
    dot, first, second = (Access(n, at(kept.name)) for n in products)
    out = Stage("out", (kept,), ex.mul(dot, ex.call("rsqrt", ex.mul(first, second))))
    return Workload("cosine", tuple(Tensor(n, (rows, columns), "float32") for n in "xy"), (*sums, out))


def transposed_softmax(rows: int, columns: int) -> Workload:
    """out[j, i] = softmax over i of x[i, j]: read along the rows, written along the reduced axis."""
    i, j = Axis("i", rows), Axis("j", columns)
    x = Access("x", at("i", "j"))
    stages = (
        Stage("top", (j,), x, Reduction("max", (i,))),
        Stage("total", (j,), ex.call("exp", ex.sub(x, Access("top", at("j")))), Reduction("sum", (i,))),
        Stage("out", (j, i), ex.div(ex.call("exp", ex.sub(x, Access("top", at("j")))), Access("total", at("j")))),
    )
    return Workload("transposed_softmax", (Tensor("x", (rows, columns), "float32"),), stages)


def lone_weights(rows: int, columns: int) -> Workload:
    """out[i, j] = sum over i of weight[i]: a body without the rows, and a result without the columns."""
    i, j = Axis("i", rows), Axis("j", columns)
    stages = (
        Stage("total", (j,), Access("weight", at("i")), Reduction("sum", (i,))),
        Stage("out", (i, j), ex.add(Access("total", at("j")), Access("shift", at("j")))),
    )
    inputs = (Tensor("weight", (rows,), "float32"), Tensor("shift", (columns,), "float32"))
    return Workload("lone_weights", inputs, stages)


ODD = tuple(
    make(*shape)
    for make, shapes in (
        (column_fold, ((1, 1021), (7, 3), (1000, 1), (1000, 261), (7, 1021))),
        (lambda r, c: column_fold(r, c, "max"), ((1000, 3), (7, 1021))),
        (mean_and_variance, ((7, 3), (1000, 70), (130, 261))),
        (softmax_over_rows, ((1, 3), (7, 1021), (1000, 70), (2100, 40))),
        (cosine, ((300, 70, True), (30, 700, False))),
        (middle_sum, ((3, 1000, 70), (5, 7, 33))),
    )
    for shape in shapes
)
UNEVEN = (transposed_softmax(70, 90), transposed_softmax(1000, 33), lone_weights(300, 40))
TURNED = middle_sum(3, 40, 50, strides=(2000, 1, 40))


def name_of(workload: Workload) -> str:
    return f"{workload.name}-{'x'.join(str(n) for n in workload.inputs[0].shape)}"


def schedules(space: SearchSpace, sketch: str, count: int, seed: int = 7) -> list[Schedule]:
    """Starting points and random points of one sketch."""
    only = dataclasses.replace(space, sketches=tuple(s for s in space.sketches if s.name == sketch))
    rng = np.random.default_rng(seed)
    return list(dict.fromkeys([*only.seeds()[:2], *(only.sample(rng) for _ in range(count))]))


def compute_on_the_cpu(schedule: Schedule, workload: Workload, inputs: list[torch.Tensor]) -> torch.Tensor:
    backend, program = LlvmBackend(), schedule.program
    launcher = backend.load(backend.compile(backend.render(program, "", HERE), program, HERE), program)
    out = torch.full(workload.outputs[0].shape, torch.nan, dtype=torch_dtype(workload.outputs[0].dtype))
    launcher(launched_on(workload, inputs, out))
    launcher.unload()
    return out


@pytest.mark.parametrize("workload", [*ODD, *UNEVEN, TURNED], ids=name_of)
def test_programs_for_a_gpu_compute_the_reference(workload: Workload) -> None:
    space = best_spaces.build(workload, H200)
    inputs = random_inputs(workload, seed=3)
    (expected,) = expect(workload, inputs)
    for sketch in space.sketches:
        for schedule in schedules(space, sketch.name, 3):
            got = interpreted(workload, schedule.program, [x.double() for x in inputs])[0]
            assert error_ratio(torch.from_numpy(got), expected) <= 1, str(schedule)


@pytest.mark.parametrize("workload", [*ODD, transposed_softmax(70, 90)], ids=name_of)
def test_programs_for_a_cpu_compute_the_reference_interpreted_and_compiled(workload: Workload) -> None:
    space = best_spaces.build(workload, HERE)
    inputs = random_inputs(workload, seed=3)
    (expected,) = expect(workload, inputs)
    for sketch in space.sketches:
        for schedule in schedules(space, sketch.name, 3):
            assert error_ratio(compute_on_the_cpu(schedule, workload, inputs), expected) <= 1, str(schedule)
        got = interpreted(workload, schedule.program, [x.double() for x in inputs])[0]
        assert error_ratio(torch.from_numpy(got), expected) <= 1, str(schedule)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_columns_are_summed_in_float32_on_a_cpu(dtype: str) -> None:
    workload = column_fold(1000, 300, dtype=dtype)
    space, rng = best_spaces.build(workload, HERE), np.random.default_rng(0)
    x = torch.randn(1000, 300).to(torch_dtype(dtype))
    for _ in range(4):
        got = compute_on_the_cpu(space.sample(rng), workload, [x])
        torch.testing.assert_close(got, x.float().sum(0).to(x.dtype), rtol=1e-2, atol=1e-2)


SMALL = (
    column_fold(300, 33),
    mean_and_variance(70, 40),
    cosine(70, 40, outer=True),
    softmax_over_rows(100, 33),
    middle_sum(2, 70, 33),
    transposed_softmax(70, 90),
    lone_weights(100, 33),
)


@pytest.mark.parametrize("workload", SMALL, ids=name_of)
def test_printed_kernels_agree_with_the_reference_under_tritons_interpreter(workload, triton_interpreter) -> None:  # type: ignore[no-untyped-def]
    # Without a type: the fixture is a class of conftest, which cannot be imported here.
    space = best_spaces.build(workload, H200)
    inputs = random_inputs(workload, seed=3)
    (expected,) = expect(workload, inputs)
    for sketch in space.sketches:
        for schedule in schedules(space, sketch.name, 1)[-2:]:
            source = TritonBackend().render(schedule.program, "", H200)
            got = triton_interpreter.computed(source, workload, schedule.program, inputs)[0]
            assert error_ratio(torch.from_numpy(got), expected) <= 1, str(schedule)


@pytest.mark.parametrize("workload", [softmax_over_rows(1000, 70), column_fold(5000, 1021)], ids=name_of)
def test_random_schedules_compile_for_hopper(workload: Workload) -> None:
    space, backend = best_spaces.build(workload, H200), TritonBackend()
    for sketch in space.sketches:
        for schedule in schedules(space, sketch.name, 1)[-2:]:
            assert backend.compile(backend.render(schedule.program, "", H200), schedule.program, H200)


def test_infinities_come_out_as_in_pytorch() -> None:
    workload = softmax_over_rows(600, 4)
    x, weight = torch.randn(600, 4), torch.ones(600)
    x[:400, 0] = -torch.inf
    x[5, 1] = 80.0
    x[:, 2] = -1e30
    space = best_spaces.build(workload, H200)
    for sketch in space.sketches:
        for schedule in schedules(space, sketch.name, 6):
            got = interpreted(workload, schedule.program, [x, weight])[0]
            np.testing.assert_allclose(got, torch.softmax(x, 0), atol=1e-6, err_msg=str(schedule))


def test_long_columns_are_shared_by_enough_programs_of_rows_that_are_neighbours_in_memory() -> None:
    workload = column_fold(65536, 1024, dtype="bfloat16")
    space = best_spaces.build(workload, H200)
    shared = [s for s in space.seeds() if kind_of(s) == "shared"]
    assert max(s.program.kernels[0].grid.programs for s in shared) >= 4 * H200.num_sms
    for schedule in shared:
        body = schedule.program.kernels[0].body
        load = next(s for s in statements(body) if isinstance(s, Load))
        assert load.slices[-1].extent is not None
        assert load.slices[-1].extent >= 32
        loop = next(s for s in body if isinstance(s, For))
        assert not any(isinstance(s, Reduce) for s in loop.body)


@pytest.mark.parametrize("outer", [True, False])
def test_reductions_that_do_not_need_each_other_share_a_walk(outer: bool) -> None:
    space = best_spaces.build(cosine(3000, 3000, outer), H200)
    for kind in ("streamed", "shared"):
        for schedule in schedules(of_kind(space, kind), "reduction", 3):
            bodies = [s.body for s in statements(schedule.program.kernels[0].body) if isinstance(s, For)]
            assert len(bodies) == 1
            assert sum(isinstance(s, Load) for s in bodies[0]) == 2


def test_strides_and_not_the_order_of_dimensions_say_what_is_contiguous() -> None:
    dense, turned = structure_of(middle_sum(3, 40, 50)), structure_of(TURNED)
    assert (dense.outer, turned.outer) == (True, False)
