"""Expressions of integers: exact in every backend, whatever their size, and wrapping around as PyTorch has it."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch

from autosched.backends.llvm.backend import LlvmBackend
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.correctness import error_ratio, expect, why_wrong
from autosched.checking.guarded_memory import PATTERNS
from autosched.checking.random_inputs import empty
from autosched.machine import devices
from autosched.machine.element_types import torch_dtype
from best_spaces import build
from schedule_checks import faults
from scheduled_tensors import interpreted, launched_on
from search_spaces import Axis, InputError, Reduction, Stage, Tensor, TileProgram, Workload, target_named
from search_spaces.workloads.dtypes import DTYPES
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Gather, Integer, Literal, Position, call
from search_spaces.workloads.expressions.kinds import is_integral

HERE, H100 = devices.cpu_target(), target_named("h100")
ROWS, COLUMNS = 3, 70
R, C = Axis("r", ROWS), Axis("c", COLUMNS)
BOTH = (axis_index("r"), axis_index("c"))
LARGE = 2**63


def whole(name: str) -> Expression:
    return call("to_integer", Access(name, BOTH))


def drawn(dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Small ones and those of all bits, with the extremes among them."""
    random = np.random.default_rng(seed)
    bits = random.integers(-LARGE, LARGE - 1, (ROWS, COLUMNS), endpoint=True)
    values = bits >> random.integers(0, 63, (ROWS, COLUMNS))
    values[0, :6] = [-LARGE, LARGE - 1, 0, -1, 2**53 + 1, 2**24 + 1]
    return torch.from_numpy(values).to(dtype)


X, Y, Z = whole("x"), whole("y"), drawn(torch.int64, 1)
SMALL = call("bitwise_and", Y, Integer(127))
PAIRS: dict[str, tuple[Expression, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "add": (call("add", X, Y), torch.add),
    "sub": (call("sub", X, Y), torch.sub),
    "mul": (call("mul", X, call("neg", Y)), lambda x, y: x * -y),
    "extremes": (
        call("maximum", call("minimum", X, Y), Integer(2**53 + 1)),
        lambda x, y: x.minimum(y).clamp(2**53 + 1),
    ),
    "abs": (call("abs", call("sub", X, Integer(-(2**31)))), lambda x, y: (x + 2**31).abs()),
    "bits": (
        call("bitwise_xor", call("bitwise_or", X, Integer(6)), call("bitwise_and", Y, Integer(-8))),
        lambda x, y: (x | 6) ^ (y & -8),
    ),
    "shifts": (
        call("sub", call("shift_left", X, SMALL), call("shift_right", X, SMALL)),
        lambda x, y: (x << (y & 127)) - (x >> (y & 127)),
    ),
    "quotient": (
        call("quotient", X, call("bitwise_or", Y, Integer(1))),
        lambda x, y: torch.where((y | 1) == -1, -x, torch.div(x, (y | 1), rounding_mode="trunc")),
    ),
    "quotient_of_a_constant": (
        call("quotient", X, Integer(-3)),
        lambda x, y: torch.div(x, -3, rounding_mode="trunc"),
    ),
    "chosen": (
        call("where", call("lt", X, Y), X, call("where", call("eq", X, Y), Integer(0), Y)),
        lambda x, y: torch.where(x < y, x, torch.where(x == y, 0, y)),
    ),
    "counted": (
        call("add", X, call("to_integer", Position(Affine.of(("r", 2**40), ("c", -3), offset=7)))),
        lambda x, y: x + torch.arange(ROWS)[:, None] * 2**40 - 3 * torch.arange(COLUMNS) + 7,
    ),
}
FOLDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x.sum(1),
    "max": lambda x: x.amax(1),
    "min": lambda x: x.amin(1),
    "prod": lambda x: x.prod(1),
}


def pointwise(expression: Expression, dtype: str = "int64", *of: str) -> Workload:
    inputs = tuple(Tensor(n, (ROWS, COLUMNS), t) for n, t in zip("xy", of or ("int64", "int64"), strict=False))
    return Workload("integers", inputs, (Stage("out", (R, C), expression, dtype=dtype),))


def folded(operator: str) -> Workload:
    body = call("add", X, Integer(1))
    fold = Stage("fold", (R,), body, Reduction(operator, (C,)), "int64")
    out = Stage("out", (R,), call("to_integer", Access("fold", BOTH[:1])), dtype="int64")
    return Workload("folded", (Tensor("x", (ROWS, COLUMNS), "int64"),), (fold, out))


def output_of(workload: Workload, values: np.ndarray) -> torch.Tensor:
    """What a program wrote, of the type of the workload's output."""
    return torch.from_numpy(values).to(torch_dtype(workload.outputs[0].dtype))


def by_interpreter(program: TileProgram, workload: Workload, inputs: list[torch.Tensor]) -> torch.Tensor:
    return output_of(workload, interpreted(workload, program, inputs)[0])


def by_llvm(program: TileProgram, workload: Workload, inputs: list[torch.Tensor]) -> torch.Tensor:
    backend = LlvmBackend()
    launcher = backend.load(backend.compile(backend.render(program, "", HERE), program, HERE), program)
    out = empty(workload.outputs[0], "cpu").fill_(77)
    launcher(launched_on(workload, inputs, out))
    launcher.unload()
    return out


def check(workload: Workload, inputs: list[torch.Tensor], expected: torch.Tensor, schedules: int = 3) -> None:
    """The interpreter (of schedules for both devices) and the CPU backend compute what PyTorch does, bit by bit."""
    (expectation,) = expect(workload, inputs)
    assert error_ratio(expected, expectation) == 0.0
    for target, runs in ((HERE, (by_interpreter, by_llvm)), (H100, (by_interpreter,))):
        space, random = build(workload, target), np.random.default_rng(0)
        for program in [space.sample(random).program for _ in range(schedules)]:
            for run in runs:
                got = run(program, workload, inputs)
                assert torch.equal(got, expected), (run.__name__, why_wrong(got, expectation))


@pytest.mark.parametrize("case", PAIRS.values(), ids=PAIRS)
def test_arithmetic_on_integers_is_that_of_64_bits(
    case: tuple[Expression, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]],
) -> None:
    expression, eager = case
    x, y = drawn(torch.int64), drawn(torch.int64, 1)
    check(pointwise(expression), [x, y], eager(x, y))


@pytest.mark.parametrize("name", ["int32", "int16", "int8", "uint8"])
def test_narrower_integers_wrap_around(name: str) -> None:
    dtype = torch_dtype(name)
    x, y = drawn(dtype), drawn(dtype, 1)
    product = call(f"wrap_{name}", call("mul", X, Y))
    halved = call("quotient", call(f"wrap_{name}", call("add", product, X)), Integer(2))
    check(pointwise(halved, name, name, name), [x, y], torch.div(x * y + x, 2, rounding_mode="trunc"))


@pytest.mark.parametrize("operator", FOLDS)
def test_folds_of_integers_are_exact(operator: str) -> None:
    x = drawn(torch.int64)
    check(folded(operator), [x], FOLDS[operator](x + 1), schedules=4)


@pytest.mark.parametrize("operator", FOLDS)
def test_small_integers_are_folded_in_float32_where_a_workload_says_so(operator: str) -> None:
    stage = Stage("out", (R,), Access("x", BOTH), Reduction(operator, (C,)), "float32")
    x = drawn(torch.uint8) % 2
    check(Workload("small", (Tensor("x", (ROWS, COLUMNS), "uint8"),), (stage,)), [x], FOLDS[operator](x).float())


def test_a_fold_without_the_column_counts_once_per_column() -> None:
    body = call("to_integer", Access("x", BOTH[:1]))
    stage = Stage("out", (R,), body, Reduction("sum", (C,)), "int64")
    x = drawn(torch.int64)[:, 1].contiguous()
    check(Workload("repeated", (Tensor("x", (ROWS,), "int64"),), (stage,)), [x], x * COLUMNS)


def test_a_value_of_the_row_is_kept_exactly_from_pass_to_pass() -> None:
    """quotient is dear, so that a later pass takes it from scratch memory."""
    dear = call("quotient", X, Integer(3))
    top = Stage("top", (R,), dear, Reduction("max", (C,)), "int64")
    left = call("sub", call("to_integer", Access("top", BOTH[:1])), dear)
    workload = Workload(
        "kept", (Tensor("x", (ROWS, COLUMNS), "int64"),), (top, Stage("out", (R, C), left, dtype="int64"))
    )
    x = drawn(torch.int64)
    third = torch.div(x, 3, rounding_mode="trunc")
    check(workload, [x], third.amax(1, keepdim=True) - third)


def test_look_ups_take_computed_integers_and_yield_them() -> None:
    at = call("sub", call("to_integer", Access("t", BOTH[:1])), Integer(2**40))
    element = call("mul", call("to_integer", Gather("w", (at, BOTH[1]))), Integer(2))
    inputs = (Tensor("w", (5, COLUMNS), "int64"), Tensor("t", (ROWS,), "int64"))
    workload = Workload("looked_up", inputs, (Stage("out", (R, C), element, dtype="int64"),))
    w, t = drawn(torch.int64).repeat(2, 1)[:5], torch.tensor([2**40 + 4, 2**40, 2**41])
    check(workload, [w, t], torch.stack([w[4] * 2, w[0] * 2, torch.zeros_like(w[0])]))


@pytest.mark.parametrize("name", ["float32", "int8", "uint8", "bool"])
def test_integers_are_converted_as_pytorch_does(name: str) -> None:
    dtype = torch_dtype(name)
    x = drawn(torch.int64)
    back = {"float32": call("to_float", X), "bool": call("eq", call("eq", X, Integer(0)), Literal(0.0))}
    expression = back.get(name) or call(f"wrap_{name}", X)
    check(pointwise(expression, name, "int64"), [x], x.to(dtype))


def test_floats_become_the_integer_towards_0() -> None:
    x = torch.linspace(-300.0, 300.0, ROWS * COLUMNS).reshape(ROWS, COLUMNS)
    x[0, :4] = torch.tensor([2.0**62, -(2.0**62), 2.0**40, -0.0])
    check(pointwise(X, "int64", "float32"), [x], x.long())


def test_integers_of_a_mixed_kernel_stay_exact() -> None:
    """float32 is scaled by what comes of integers beyond 2^53."""
    last = call("to_float", call("bitwise_and", call("add", Y, Integer(2**60)), Integer(7)))
    x, y = torch.randn(ROWS, COLUMNS), drawn(torch.int64, 1)
    expected = x * ((y + 2**60) & 7).float()
    check(pointwise(call("mul", Access("x", BOTH), last), "float32", "float32", "int64"), [x, y], expected)


@pytest.mark.parametrize(
    "mixed",
    [call("add", X, Literal(1.0)), call("exp", X), call("quotient", X, Access("y", BOTH)), call("where", X, Y, Y)],
    ids=["add", "exp", "quotient", "where"],
)
def test_kinds_do_not_mix(mixed: Expression) -> None:
    with pytest.raises(InputError, match=r"expected (float32|integers)"):
        pointwise(mixed)


def test_a_stage_of_integers_says_so() -> None:
    with pytest.raises(InputError, match="int64 for an expression of integers"):
        pointwise(X, "float32")


def test_integers_survive_json() -> None:
    workload = pointwise(call("wrap_int32", call("add", X, Integer(-(2**63)))))
    again = Workload.from_json(json.loads(json.dumps(workload.to_json())))
    assert again == workload
    assert again.stages == workload.stages
    assert is_integral(again.stages[0].expression)


@pytest.mark.parametrize("name", DTYPES)
def test_tensors_of_every_element_type_are_guarded(name: str) -> None:
    assert torch_dtype(name) in PATTERNS


TRITON = {
    "pointwise": pointwise(call("quotient", call("shift_left", call("abs", X), SMALL), Y)),
    "extremes": pointwise(PAIRS["extremes"][0]),
    "chosen": pointwise(PAIRS["chosen"][0]),
    "counted": pointwise(call("wrap_uint8", PAIRS["counted"][0]), "uint8", "uint8", "int16"),
    "shifted": pointwise(call("shift_right", call("shift_left", X, Integer(3)), Integer(70))),
    "divided": pointwise(PAIRS["quotient_of_a_constant"][0]),
    "sum": folded("sum"),
    "max": folded("max"),
    "prod": folded("prod"),
}


@pytest.mark.parametrize("workload", TRITON.values(), ids=TRITON)
def test_triton_computes_integers_exactly(triton_interpreter, workload: Workload) -> None:
    inputs = [drawn(torch_dtype(t.dtype), seed) for seed, t in enumerate(workload.inputs)]
    (exact,) = expect(workload, inputs)
    space, random = build(workload, H100), np.random.default_rng(1)
    for program in [space.sample(random).program for _ in range(2)]:
        got = triton_interpreter.computed(TritonBackend().render(program, "", H100), workload, program, inputs)[0]
        assert why_wrong(output_of(workload, got), exact) is None


@pytest.mark.parametrize("workload", TRITON.values(), ids=TRITON)
def test_triton_compiles_integers_without_a_gpu(workload: Workload) -> None:
    backend, space, random = TritonBackend(), build(workload, H100), np.random.default_rng(2)
    for program in [space.sample(random).program for _ in range(2)]:
        assert backend.compile(backend.render(program, "", H100), program, H100)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "bool"])
def test_sums_of_integers_are_stored_as_floats_and_booleans_too(dtype: str) -> None:
    total = Stage("total", (R,), call("to_integer", Access("x", BOTH)), Reduction("sum", (C,)), "int64")
    out = Stage("out", (R,), Access("total", (axis_index("r"),)), None, dtype)
    workload = Workload("sums", (Tensor("x", (ROWS, COLUMNS), "int64"),), (total, out))
    assert faults(workload, samples=4) == []


def test_an_integer_that_is_the_same_in_all_columns_is_folded_as_a_number() -> None:
    least = Stage("out", (R,), Access("x", (axis_index("r"),)), Reduction("min", (C,)))
    assert not faults(Workload("repeated", (Tensor("x", (ROWS,), "int64"),), (least,)), samples=2)
