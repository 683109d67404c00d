"""Every pointwise operator is as accurate as `checking.accuracy` says, on a CPU and, interpreted, in Triton."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy as np
import pytest
import torch

import best_spaces
import search_spaces
from autosched.backends.formulas import FORMULAS
from autosched.backends.llvm.backend import LlvmBackend
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.accuracy import ACCURACY
from autosched.machine import devices
from function_accuracy import arguments, measured, units_off, workload_of
from scheduled_tensors import interpreted, launched_on
from search_spaces import Axis, Stage, Tensor, Workload, ops, target_named
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import KnobValue, cover
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Literal, add, call
from search_spaces.workloads.expressions.operators import COMPARISONS, OF_INTEGERS, OPERATORS, ROUNDINGS

HERE = devices.cpu_target()
H100 = target_named("h100")
LLVM, TRITON = LlvmBackend(), TritonBackend()
# Those that compare, choose and convert are exact, and tested where they decide something.
CHOOSING = {*COMPARISONS, "where", *ROUNDINGS, "to_integer", "to_float"}
MEASURED = [name for name in OPERATORS if name not in CHOOSING | OF_INTEGERS]


def program_of(operator: str, elements: int, target: search_spaces.Target) -> TileProgram:
    return best_spaces.build(workload_of(operator, elements), target).sample(np.random.default_rng(0)).program


def on_the_cpu(operator: str, given: list[torch.Tensor]) -> torch.Tensor:
    program = program_of(operator, len(given[0]), HERE)
    launcher = LLVM.load(LLVM.compile(LLVM.render(program, "", HERE), program, HERE), program)
    out = torch.full((len(given[0]),), 77.0)
    launcher(launched_on(workload_of(operator, len(given[0])), given, out))
    launcher.unload()
    return out


def test_every_operator_has_a_stated_accuracy() -> None:
    assert set(ACCURACY) == set(MEASURED)
    assert set(FORMULAS) <= set(ACCURACY)


@pytest.mark.parametrize("operator", MEASURED)
def test_a_cpu_is_within_the_stated_accuracy(operator: str) -> None:
    given = arguments(operator, 40_000)
    worst, where = measured(operator, lambda *x: on_the_cpu(operator, list(x)), given)
    assert worst <= ACCURACY[operator].cpu, where


@pytest.mark.parametrize(
    "operator", ["sin", "tanh", "erf", "sinh", "asinh", "atanh", "asin", "atan", "tan", "expm1", "log1p"]
)
def test_an_odd_function_of_zero_has_the_sign_of_zero_on_a_cpu(operator: str) -> None:
    zeros = torch.tensor([-0.0, 0.0] * 20)
    assert torch.equal(on_the_cpu(operator, [zeros]).signbit(), zeros.signbit())


def test_a_hyperbolic_tangent_of_zero_has_the_sign_of_zero_in_triton(triton_interpreter) -> None:
    zeros = np.array([-0.0, 0.0] * 8, dtype=np.float32)
    program = program_of("tanh", len(zeros), H100)
    got = triton_interpreter.run(TRITON.render(program, "", H100), program, {"in0": zeros})
    assert np.array_equal(np.signbit(got), np.signbit(zeros))


def test_zero_negated_in_triton_is_minus_zero(triton_interpreter) -> None:
    zeros = np.array([-0.0, 0.0] * 8, dtype=np.float32)
    program = program_of("neg", len(zeros), H100)
    # The interpreter negates rightly whatever is printed; Triton 3.6 does not.
    assert "-x" not in TRITON.render(program, "", H100).replace(" ", "")
    got = triton_interpreter.run(TRITON.render(program, "", H100), program, {"in0": zeros})
    assert np.array_equal(np.signbit(got), ~np.signbit(zeros))


# Interpreted, Triton's own functions are NumPy's, within 3 units: what is tested is what is printed around them.
@pytest.mark.parametrize("operator", sorted({*FORMULAS, "erf_relative", "tanh", "log", "sqrt", "rsqrt"}))
def test_printed_functions_are_within_the_stated_accuracy(triton_interpreter, operator: str) -> None:
    given = arguments(operator, 1500, seed=1)
    program = program_of(operator, len(given[0]), H100)
    workload = workload_of(operator, len(given[0]))
    (got,) = triton_interpreter.computed(TRITON.render(program, "", H100), workload, program, given)
    worst, where = measured(operator, lambda *_: torch.from_numpy(got), given)
    assert worst <= max(ACCURACY[operator].gpu, 0 if operator in FORMULAS and "exp2" not in operator else 3), where


@pytest.mark.parametrize("operator", FORMULAS)
def test_the_interpreter_of_tile_programs_rounds_functions_once(operator: str) -> None:
    given = arguments(operator, 500, seed=2)
    program = program_of(operator, len(given[0]), HERE)
    got = torch.from_numpy(interpreted(workload_of(operator, len(given[0])), program, given)[0])
    worst, where = measured(operator, lambda *_: got, given)
    assert worst <= 0.502, where


def sum_of(functions: Iterable[str], x: Expression) -> Expression:
    """The sum of functions of x; of those of two arguments, with a number."""
    terms = [call(name, *(x, Literal(2.5))[: OPERATORS[name][0]]) for name in functions]
    total = terms[0]
    for term in terms[1:]:
        total = add(total, term)
    return total


def test_triton_compiles_every_function_without_a_gpu() -> None:
    # One element for each thread of a block: ptxas takes minutes over several.
    axes = (Axis("i", 128),)
    functions = (*FORMULAS, "erf_relative", "rsqrt", "log")
    stage = Stage("out", axes, sum_of(functions, Access("x", (axis_index("i"),))))
    workload = Workload("all", (Tensor("x", (128,), "float32"),), (stage,))
    program = best_spaces.build(workload, H100).sample(np.random.default_rng(0)).program
    assert TRITON.compile(TRITON.render(program, "", H100), program, H100).binaries


def test_gluon_kernels_call_the_same_functions() -> None:
    product = ops.matmul(512, 512, 256, dtype="bfloat16")
    (stage,) = product.stages
    acc = dataclasses.replace(stage, name="acc", dtype="float32")
    here = Access("acc", tuple(axis_index(a.name) for a in stage.axes))
    out = Stage("out", stage.axes, sum_of(("pow",), here), dtype="bfloat16")
    space = best_spaces.build(dataclasses.replace(product, stages=(acc, out)), H100)
    # The smallest tile: ptxas takes the longer, the more elements a thread has.
    smallest: dict[str, list[KnobValue]] = {"m": [cover(512, (64,))], "n": [cover(512, (32,))], "warps": [4]}
    part = space.restricted("contraction", specialize=["cooperative"], swap=[False], **smallest)
    program = part.sample(np.random.default_rng(0)).program
    assert TRITON.compile(TRITON.render(program, "", H100), program, H100).binaries


def test_powers_logarithms_and_exponentials_of_whole_numbers_are_exact() -> None:
    whole = torch.arange(-20.0, 21.0)
    x, y = (v.flatten() for v in torch.meshgrid(whole, whole, indexing="ij"))
    expected = x.double().pow(y.double())
    held = expected.float().double() == expected
    assert torch.equal(on_the_cpu("pow", [x, y])[held], expected[held].float())
    exponents = torch.arange(-149.0, 128.0)
    assert torch.equal(on_the_cpu("log2", [2.0**exponents]), exponents)
    assert torch.equal(on_the_cpu("exp2", [exponents]), 2.0**exponents)


@pytest.mark.parametrize("operator", ["sin", "cos", "tan"])
def test_large_angles_are_reduced_by_all_places_of_pi(operator: str) -> None:
    """Against Python's functions, which are the C library's."""
    x = torch.tensor([2.0**51, 1e16, 1e22, 1.6e22, 2.0**100, 1e31, 2.0**127, 3.4028235e38, 7.0] * 5)
    exact = torch.tensor([getattr(math, operator)(v) for v in x.tolist()], dtype=torch.float64)
    assert float(units_off(on_the_cpu(operator, [x]), exact).max()) <= ACCURACY[operator].cpu
