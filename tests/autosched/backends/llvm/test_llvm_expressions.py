"""What the CPU backend computes of expressions that compare, choose, look up and count, against PyTorch in float64."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

import search_spaces
from autosched.backends import spaces
from autosched.backends.llvm.backend import LlvmBackend
from autosched.checking.random_inputs import empty
from autosched.machine import devices
from autosched.machine.element_types import torch_dtype
from schedule_checks import faults
from scheduled_tensors import launched_on
from search_spaces import Axis, Reduction, Stage, Target, Tensor, Workload, ops
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Gather, Literal, Position, call

HERE = devices.cpu_target()
BACKEND = LlvmBackend()
# Half a unit in the last place of float32, relative.
HALF_UNIT = 2.0**-24


def at(tensor: str, *axes: str) -> Access:
    return Access(tensor, tuple(map(axis_index, axes)))


def position(axis: str) -> Position:
    return Position(axis_index(axis))


def run(
    schedule: search_spaces.Schedule, workload: Workload, inputs: list[torch.Tensor], target: Target = HERE
) -> torch.Tensor:
    program = schedule.program
    launcher = BACKEND.load(
        BACKEND.compile(BACKEND.render(program, str(schedule.one_line), target), program, target), program
    )
    out = empty(workload.outputs[0], "cpu")
    out.fill_(out.dtype == torch.bool or 77)
    launcher(launched_on(workload, inputs, out))
    launcher.unload()
    return out


def computed(workload: Workload, *inputs: torch.Tensor, schedules: int = 4) -> list[torch.Tensor]:
    """The output by some schedules of the workload's space, which must agree about NaN."""
    space, rng = spaces.build(workload, HERE), np.random.default_rng(3)
    found = dict.fromkeys(space.sample(rng) for _ in range(schedules))
    return [run(s, workload, list(inputs)) for s in found]


def tensor(name: str, value: torch.Tensor) -> Tensor:
    strides = None if value.is_contiguous() else value.stride()
    return Tensor(name, tuple(value.shape), str(value.dtype).removeprefix("torch."), strides)


def axes_of(shape: tuple[int, ...]) -> tuple[Axis, ...]:
    return tuple(Axis(n, e) for n, e in zip("ijkl", shape, strict=False))


def pointwise(expression: Expression, shape: tuple[int, ...], dtype: str, **inputs: torch.Tensor) -> Workload:
    stage = Stage("out", axes_of(shape), expression, dtype=dtype)
    return Workload("pointwise", tuple(tensor(n, v) for n, v in inputs.items()), (stage,))


def mapped(
    expression: Expression, shape: tuple[int, ...], dtype: str = "float32", **inputs: torch.Tensor
) -> list[torch.Tensor]:
    """The expression at every point of the shape, by some schedules."""
    return computed(pointwise(expression, shape, dtype, **inputs), *inputs.values())


# Both zeros, denormals, what is next to 1, halves, huge numbers, infinities and NaN.
EXTREMES = [
    *(0.0, -0.0, 1e-45, -1e-45, 1e-40, 1.1754944e-38, 0.5, -0.5, 1.0, -1.0, 0.99999994, 1.0000001, 2.5, -2.5),
    *(8388607.5, -8388607.5, 16777216.0, 1e10, -1e10, 3.4e38, -3.4e38, torch.inf, -torch.inf, torch.nan),
]


def ordinary() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.cat([torch.randn(1001, generator=generator) * s for s in (1e-3, 1.0, 100.0)])


def pairs() -> tuple[torch.Tensor, torch.Tensor]:
    """Every two of the extremes, then pairs of ordinary numbers, some of them equal."""
    extremes = torch.tensor(EXTREMES)
    x, y = (v.flatten() for v in torch.meshgrid(extremes, extremes, indexing="ij"))
    more = ordinary()
    return torch.cat([x, more, more]), torch.cat([y, more.roll(1), more])


EXACT: dict[str, Callable[..., torch.Tensor]] = {
    "lt": torch.lt,
    "le": torch.le,
    "eq": torch.eq,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
}


@pytest.mark.parametrize("operator", EXACT)
def test_operators_of_two_arguments_are_rounded_once(operator: str) -> None:
    x, y = pairs()
    expected = EXACT[operator](x.double(), y.double()).float()
    for got in mapped(call(operator, at("x", "i"), at("y", "i")), tuple(x.shape), x=x, y=y):
        torch.testing.assert_close(got, expected, rtol=0.0, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("operator", ["floor", "abs", "neg"])
def test_operators_of_one_argument_that_need_no_rounding_are_exact(operator: str) -> None:
    x = torch.cat([torch.tensor(EXTREMES), ordinary()])
    expected = getattr(torch, operator)(x)
    for got in mapped(call(operator, at("x", "i")), tuple(x.shape), x=x):
        torch.testing.assert_close(got, expected, rtol=0.0, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("operator", ["sin", "cos"])
def test_sine_and_cosine_are_within_two_units_up_to_two_to_the_51(operator: str) -> None:
    generator = torch.Generator().manual_seed(0)
    scales = [1e-30, 1e-3, 1.0, 30.0, 1e4, 1e7, 1e12]
    multiples = (torch.arange(1, 50_001).double() * math.pi / 2).float()
    near = torch.tensor([0.0, 1e-45, 1e-40, 5419351.0, 1.5e15, 2.0**50, -(2.0**50)])
    x = torch.cat([torch.randn(100_000, generator=generator) * s for s in scales] + [multiples, -multiples, near])
    exact = getattr(torch, operator)(x.double())
    units = torch.from_numpy(np.spacing(np.abs(exact.float().numpy())))
    for got in mapped(call(operator, at("x", "i")), tuple(x.shape), x=x):
        assert float(((got.double() - exact).abs() / units).max()) <= 1.6


@pytest.mark.parametrize("operator", ["sin", "cos"])
def test_sine_and_cosine_of_infinities_are_nan_beside_numbers_of_any_size(operator: str) -> None:
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 2.0**51, 1.0, 1e30, -3.4e38] * 5)
    exact = getattr(torch, operator)(x.double()).float()
    for got in mapped(call(operator, at("x", "i")), tuple(x.shape), x=x):
        torch.testing.assert_close(got, exact, rtol=2.0**-22, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("shape", [(3005,), (7, 45)])
def test_where_takes_the_second_argument_where_the_first_is_not_zero(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(4)
    x, y = torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)
    c = torch.tensor([0.0, -0.0, 1.0, -2.0, 1e-45, torch.nan, torch.inf])
    chosen = c[torch.randint(len(c), shape, generator=generator)]
    names = "ij"[: len(shape)]
    by_value = call("where", at("c", *names), at("x", *names), at("y", *names))
    for got in mapped(by_value, shape, c=chosen, x=x, y=y):
        assert torch.equal(got, torch.where(chosen != 0, x, y))
    by_comparison = call("where", call("lt", at("x", *names), at("y", *names)), Literal(-math.inf), at("x", *names))
    for got in mapped(by_comparison, shape, x=x, y=y):
        assert torch.equal(got, torch.where(x < y, -torch.inf, x))


def test_a_value_rounded_on_the_way_is_rounded_where_it_is_used() -> None:
    x = torch.cat([torch.tensor(EXTREMES), ordinary()])
    for name, dtype in (("round_float16", torch.float16), ("round_bfloat16", torch.bfloat16)):
        expression = call("sub", call(name, call("add", at("x", "i"), Literal(0.1))), at("x", "i"))
        expected = (x + 0.1).to(dtype).float() - x
        for got in mapped(expression, tuple(x.shape), x=x):
            torch.testing.assert_close(got, expected, rtol=0.0, atol=0.0, equal_nan=True)


INTEGERS = ["int64", "int32", "int8", "bool"]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("elements", [16, 1003])
def test_integers_and_booleans_go_in_and_out(dtype: str, elements: int) -> None:
    of = torch_dtype(dtype)
    largest = {"int64": 2**24, "int32": 2**24, "int8": 127, "bool": 1}[dtype]
    generator = torch.Generator().manual_seed(2)
    x = torch.randint(-largest if dtype != "bool" else 0, largest + 1, (elements,), generator=generator).to(of)
    for got in mapped(at("x", "i"), tuple(x.shape), dtype, x=x):
        assert torch.equal(got, x)
    for got in mapped(call("maximum", at("x", "i"), Literal(0.5)), tuple(x.shape), "float32", x=x):
        assert torch.equal(got, x.float().clamp(min=0.5))


def test_floats_become_integers_towards_zero_and_booleans_where_they_are_not_zero() -> None:
    x = torch.tensor([0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1e-45, 99.0, -128.0, 127.0] * 3)
    for dtype in INTEGERS:
        for got in mapped(at("x", "i"), tuple(x.shape), dtype, x=x):
            assert torch.equal(got, x.to(torch_dtype(dtype)))
    odd = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e-40, 0.0] * 7)
    for got in mapped(at("x", "i"), tuple(odd.shape), "bool", x=odd):
        assert torch.equal(got, odd.bool())


@pytest.mark.parametrize("shape", [(5, 3, 37), (4, 64), (2, 3, 4, 33)])
def test_positions_are_those_of_the_axes(shape: tuple[int, ...]) -> None:
    names = "ijkl"[: len(shape)]
    grids = torch.meshgrid(*(torch.arange(e).float() for e in shape), indexing="ij")
    zero = torch.zeros(shape[0])
    for name, grid in zip(names, grids, strict=True):
        for got in mapped(
            call("add", position(name), call("mul", at("zero", names[0]), Literal(1.0))), shape, zero=zero
        ):
            assert torch.equal(got, grid)
    total: Expression = call("add", at("zero", "i"), Literal(3.0))
    for place, name in enumerate(names):
        total = call("add", total, call("mul", position(name), Literal(10.0**place)))
    expected = torch.stack([g * 10.0**p for p, g in enumerate(grids)]).sum(0) + 3.0
    for got in mapped(total, shape, "int64", zero=zero):
        assert torch.equal(got, expected.long())


def test_a_causal_mask_is_made_of_positions() -> None:
    x = torch.randn(9, 50, generator=torch.Generator().manual_seed(0))
    expression = call("where", call("le", position("j"), position("i")), at("x", "i", "j"), Literal(-math.inf))
    expected = torch.where(torch.arange(50) <= torch.arange(9)[:, None], x, -torch.inf)
    for got in mapped(expression, (9, 50), x=x):
        assert torch.equal(got, expected)


def test_what_lacks_an_axis_of_the_output_is_repeated_along_it() -> None:
    x = torch.randn(6, generator=torch.Generator().manual_seed(0))
    for got in mapped(at("x", "i"), (6, 40), x=x):
        assert torch.equal(got, x[:, None].expand(6, 40))
    for got in mapped(at("x", "j"), (40, 6), x=x):
        assert torch.equal(got, x.expand(40, 6))
    for got in mapped(position("j"), (7, 30), x=x):
        assert torch.equal(got, torch.arange(30.0).expand(7, 30))
    for got in mapped(Literal(2.5), (7, 30), x=x):
        assert torch.equal(got, torch.full((7, 30), 2.5))


@pytest.mark.parametrize("columns", [5, 100])
def test_pointwise_work_of_three_axes_is_vectorised_along_the_last(columns: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x, m = torch.randn(3, 7, columns, generator=generator), torch.randn(7, generator=generator)
    expression = call("mul", call("sub", at("x", "i", "j", "k"), at("m", "j")), Literal(2.0))
    workload = pointwise(expression, tuple(x.shape), "float32", x=x, m=m)
    for got in computed(workload, x, m):
        assert torch.equal(got, (x - m[:, None]) * 2.0)
    program = spaces.build(workload, HERE).sample(np.random.default_rng(0)).program
    assert f"fsub <{HERE.lanes} x float>" in BACKEND.render(program, "", HERE)


STRIDED = (
    lambda x: x[:, ::3],
    lambda x: x.t(),
    lambda x: x[:, :1].expand(-1, 31),
    lambda x: x[:1, :].expand(31, -1),
)


@pytest.mark.parametrize("view", STRIDED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_elements_may_be_any_distance_apart(view: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype) -> None:
    x = view((torch.randn(31, 93, generator=torch.Generator().manual_seed(0)) * 9).to(dtype))
    expression = call("add", at("x", "i", "j"), Literal(1.0))
    expected = x.float() + 1.0
    for got in mapped(expression, tuple(x.shape), x=x):
        assert torch.equal(got, expected)


def test_a_transposed_access_and_a_strided_output_are_computed() -> None:
    x = torch.randn(20, 35, generator=torch.Generator().manual_seed(0))
    workload = pointwise(call("neg", at("x", "j", "i")), (35, 20), "float32", x=x)
    for got in computed(workload, x):
        assert torch.equal(got, -x.t())
    strided = dataclasses.replace(workload, output_strides=((1, 35),))
    for got in computed(strided, x):
        assert got.stride() == (1, 35)
        assert torch.equal(got, -x.t())


# -- gathers


def table_and_tokens(rows: int, columns: int, tokens: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(6)
    table = (torch.randn(rows, columns, generator=generator) * 20).to(dtype)
    return table, torch.randint(rows, (tokens,), generator=generator)


@pytest.mark.parametrize("columns", [7, 64, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool])
def test_rows_of_a_table_are_looked_up(columns: int, dtype: torch.dtype) -> None:
    table, token = table_and_tokens(50, columns, 33, dtype)
    expression = Gather("table", (at("token", "i"), axis_index("j")))
    of = str(dtype).removeprefix("torch.")
    for got in mapped(expression, (33, columns), of, token=token, table=table):
        assert torch.equal(got, table[token])


def test_what_is_no_index_gives_nan_and_touches_nothing() -> None:
    table, token = table_and_tokens(10, 40, 8, torch.float32)
    token = token.float()
    wrong = torch.tensor([-1.0, 10.0, torch.nan, torch.inf, -torch.inf, 3e38, 2.5, -1e9])
    given = torch.cat([token, wrong])
    expected = torch.cat([table[token.long()], torch.full((8, 40), torch.nan)])
    expression = Gather("table", (at("token", "i"), axis_index("j")))
    for got in mapped(expression, (16, 40), token=given, table=table):
        torch.testing.assert_close(got, expected, rtol=0.0, atol=0.0, equal_nan=True)
    lanes = Gather("row", (at("token", "i"),))
    row = torch.randn(10, generator=torch.Generator().manual_seed(0))
    expected_row = torch.cat([row[token.long()], torch.full((8,), torch.nan)])
    for got in mapped(lanes, (16,), token=given, row=row):
        torch.testing.assert_close(got, expected_row, rtol=0.0, atol=0.0, equal_nan=True)


def test_what_is_no_index_of_integers_gives_zero() -> None:
    table, token = torch.arange(1, 11), torch.tensor([-1, 0, 9, 10, 2**23] * 5)
    expected = torch.where((token >= 0) & (token < 10), table[token.clamp(0, 9)], 0)
    expression = Gather("table", (at("token", "i"),))
    for got in mapped(expression, (25,), "int64", token=token, table=table):
        assert torch.equal(got, expected)


def test_an_index_is_checked_against_its_own_dimension_only() -> None:
    # Column 4 of row 1 would be column 0 of row 2, were the two not checked one by one.
    x, column = torch.arange(12.0).view(3, 4), torch.tensor([[4, 0, -1] * 7] * 3)
    expression = Gather("x", (axis_index("i"), at("t", "i", "j")))
    inside = (column >= 0) & (column < 4)
    expected = torch.where(inside, x.gather(1, column.clamp(0, 3)), torch.nan)
    for got in mapped(expression, (3, 21), x=x, t=column):
        torch.testing.assert_close(got, expected, rtol=0.0, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
def test_elements_are_looked_up_lane_by_lane(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(8)
    x = (torch.randn(13, 90, generator=generator) * 20).to(dtype)
    t = torch.randint(90, (13, 77), generator=generator)
    expression = Gather("x", (axis_index("i"), at("t", "i", "j")))
    for got in mapped(expression, (13, 77), "float32", x=x, t=t):
        assert torch.equal(got, x.gather(1, t).float())
    both = Gather("x", (call("floor", call("mul", at("t", "i", "j"), Literal(1 / 7.5))), position("i")))
    for got in mapped(both, (13, 77), "float32", x=x, t=t):
        row = (t.float() * (1 / 7.5)).long()
        assert torch.equal(got, x[row, torch.arange(13)[:, None]].float())


def test_one_element_of_every_row_is_looked_up_beside_a_reduction() -> None:
    """Cross entropy: log of a row's sum of exponentials, less the logit of the target."""
    generator = torch.Generator().manual_seed(8)
    x, t = torch.randn(21, 130, generator=generator), torch.randint(130, (21,), generator=generator)
    r, c = Axis("r", 21), Axis("c", 130)
    total = Stage("total", (r,), call("exp", at("x", "r", "c")), Reduction("sum", (c,)))
    picked = Gather("x", (axis_index("r"), at("t", "r")))
    out = Stage("out", (r,), call("sub", call("log", at("total", "r")), picked))
    workload = Workload("cross_entropy", (tensor("x", x), tensor("t", t)), (total, out))
    expected = torch.nn.functional.cross_entropy(x.double(), t, reduction="none")
    for got in computed(workload, x, t):
        # exp, log and the difference within 2 units each, the sum of 130 positive terms within 130.
        torch.testing.assert_close(got.double(), expected, rtol=0.0, atol=140 * HALF_UNIT * 8)


# -- reductions


def reduced(operator: str, x: torch.Tensor, expression: Expression, dtype: str = "float32") -> Workload:
    r, c = Axis("i", x.shape[0]), Axis("j", x.shape[1])
    folded = Stage("folded", (r,), expression, Reduction(operator, (c,)))  # type: ignore[arg-type]  # a parameter
    out = Stage("out", (r,), at("folded", "i"), dtype=dtype)
    return Workload(operator, (tensor("x", x),), (folded, out))


@pytest.mark.parametrize("columns", [5, 64, 1000])
def test_products_of_rows(columns: int) -> None:
    x = 1.0 + 0.1 * torch.randn(9, columns, generator=torch.Generator().manual_seed(0))
    for got in computed(reduced("prod", x, at("x", "i", "j")), x):
        torch.testing.assert_close(got.double(), x.double().prod(1), rtol=columns * HALF_UNIT, atol=0.0)


@pytest.mark.parametrize("operator", ["max", "min"])
@pytest.mark.parametrize("columns", [5, 64, 1000])
def test_nan_and_infinities_come_through_reductions(operator: str, columns: int) -> None:
    x = torch.randn(9, columns, generator=torch.Generator().manual_seed(0))
    x[1], x[2], x[3, 2], x[4, 3], x[5, -1] = torch.inf, -torch.inf, torch.nan, torch.inf, torch.nan
    expected = x.amax(1) if operator == "max" else x.amin(1)
    for got in computed(reduced(operator, x, at("x", "i", "j")), x, schedules=8):
        torch.testing.assert_close(got, expected, rtol=0.0, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("columns", [5, 64, 3000])
def test_any_of_a_row_is_a_boolean(columns: int) -> None:
    x = torch.zeros(9, columns)
    x[2, -1], x[5, 0] = 3.0, -1e-40
    nonzero = call("where", at("x", "i", "j"), Literal(1.0), Literal(0.0))
    for got in computed(reduced("max", x, nonzero, "bool"), x):
        assert torch.equal(got, x.bool().any(1))


@pytest.mark.parametrize("columns", [5, 64, 3000])
def test_argmax_is_the_first_position_of_the_maximum(columns: int) -> None:
    x = torch.randn(9, columns, generator=torch.Generator().manual_seed(0)).round()
    r, c = Axis("r", 9), Axis("c", columns)
    top = Stage("top", (r,), at("x", "r", "c"), Reduction("max", (c,)))
    is_top = call("eq", at("x", "r", "c"), at("top", "r"))
    first = Stage("first", (r,), call("where", is_top, position("c"), Literal(float(columns))), Reduction("min", (c,)))
    workload = Workload("argmax", (tensor("x", x),), (top, first, Stage("out", (r,), at("first", "r"), dtype="int64")))
    expected = torch.from_numpy(x.numpy().argmax(1))
    for got in computed(workload, x, schedules=8):
        assert torch.equal(got, expected)


def test_softmax_of_a_masked_row_leaves_out_what_is_masked() -> None:
    generator = torch.Generator().manual_seed(0)
    x, keep = torch.randn(20, 333, generator=generator), torch.rand(20, 333, generator=generator) < 0.7
    r, c = Axis("r", 20), Axis("c", 333)
    masked = Stage("masked", (r, c), call("where", at("keep", "r", "c"), at("x", "r", "c"), Literal(-math.inf)))
    top = Stage("top", (r,), at("masked", "r", "c"), Reduction("max", (c,)))
    shifted = Stage("shifted", (r, c), call("exp", call("sub", at("masked", "r", "c"), at("top", "r"))))
    total = Stage("total", (r,), at("shifted", "r", "c"), Reduction("sum", (c,)))
    out = Stage("out", (r, c), call("div", at("shifted", "r", "c"), at("total", "r")))
    workload = Workload("masked_softmax", (tensor("x", x), tensor("keep", keep)), (masked, top, shifted, total, out))
    expected = torch.where(keep, x.double(), -torch.inf).softmax(1)
    for got in computed(workload, x, keep, schedules=8):
        # The sum of 333 terms, the exponential of a rounded difference below 8, and the quotient.
        torch.testing.assert_close(got.double(), expected, rtol=(333 + 16 + 4) * HALF_UNIT, atol=0.0)


def test_a_row_that_is_looked_up_is_normalised() -> None:
    """An embedding and a norm in one kernel: the gather is inside a reduction and after it."""
    table, token = table_and_tokens(30, 200, 17, torch.float32)
    r, c = Axis("r", 17), Axis("c", 200)
    found = Stage("found", (r, c), Gather("table", (at("token", "r"), axis_index("c"))))
    square = call("mul", at("found", "r", "c"), at("found", "r", "c"))
    total = Stage("total", (r,), square, Reduction("sum", (c,)))
    out = Stage("out", (r, c), call("mul", at("found", "r", "c"), call("rsqrt", at("total", "r"))))
    workload = Workload("embedded_norm", (tensor("token", token), tensor("table", table)), (found, total, out))
    rows = table.double()[token]
    for got in computed(workload, token, table, schedules=8):
        torch.testing.assert_close(got.double(), rows / rows.norm(dim=1, keepdim=True), rtol=210 * HALF_UNIT, atol=1e-9)


def test_no_symbol_outside_the_code_is_needed() -> None:
    x = torch.randn(100, 50)
    expression: Expression = at("x", "i", "j")
    for operator in ("sin", "cos", "floor", "exp", "log", "tanh", "erf"):
        expression = call(operator, expression)
    workload = reduced("prod", x, expression)
    program = spaces.build(workload, HERE).sample(np.random.default_rng(0)).program
    text = BACKEND.render(program, "", HERE)
    declared = [line.split("@")[1].split("(")[0] for line in text.splitlines() if line.startswith("declare")]
    assert all(name.startswith("llvm.") for name in declared)
    binary = BACKEND.compile(text, program, HERE).binaries[0]
    assert not [name for name in (b"sinf", b"cosf", b"floorf", b"fmaf", b"expf", b"logf") if name in binary]


def test_a_contraction_may_have_a_mask_of_booleans_and_positions_in_its_epilogue() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(37, 20, generator=generator), torch.randn(20, 45, generator=generator)
    keep = torch.rand(37, 45, generator=generator) < 0.5
    m, n, k = Axis("m", 37), Axis("n", 45), Axis("k", 20)
    acc = Stage("acc", (m, n), call("mul", at("a", "m", "k"), at("b", "k", "n")), Reduction("sum", (k,)))
    causal = call("where", call("le", position("n"), position("m")), at("acc", "m", "n"), Literal(-math.inf))
    out = Stage("out", (m, n), call("where", at("keep", "m", "n"), causal, Literal(7.0)))
    workload = Workload("scores", (tensor("a", a), tensor("b", b), tensor("keep", keep)), (acc, out))
    product = a.double() @ b.double()
    masked = torch.where(torch.arange(45) <= torch.arange(37)[:, None], product, -torch.inf)
    expected = torch.where(keep, masked, 7.0)
    for got in computed(workload, a, b, keep, schedules=8):
        bound = 21 * HALF_UNIT * float((a.abs() @ b.abs()).max())
        torch.testing.assert_close(got.double(), expected, rtol=0.0, atol=bound)


def test_a_lookup_beside_a_contraction_is_done_with_its_register_tiles() -> None:
    m, n, k = Axis("m", 8), Axis("n", 17), Axis("k", 4)
    acc = Stage("acc", (m, n), call("mul", at("a", "m", "k"), at("b", "k", "n")), Reduction("sum", (k,)))
    shapes = {"a": (8, 4), "b": (4, 17), "table": (5, 17)}
    inputs = tuple(Tensor(name, shape, "float32") for name, shape in shapes.items())
    indices = (Tensor("row", (8,), "int64"), Tensor("column", (17,), "int64"))
    for index in ((at("row", "m"), axis_index("n")), (at("row", "m"), at("column", "n"))):
        out = Stage("out", (m, n), call("add", at("acc", "m", "n"), Gather("table", index)))
        assert not faults(Workload("looked_up_bias", (*inputs, *indices), (acc, out)), samples=6)


def test_an_epilogue_may_depend_on_which_product_of_a_batch_it_is() -> None:
    b, m, n, k = Axis("b", 3), Axis("m", 8), Axis("n", 17), Axis("k", 4)
    product = call("mul", at("x", "b", "m", "k"), at("y", "b", "k", "n"))
    acc = Stage("acc", (b, m, n), product, Reduction("sum", (k,)))
    found = Gather("table", (axis_index("b"), at("row", "m"), axis_index("n")))
    biased = call("add", call("add", at("acc", "b", "m", "n"), found), position("b"))
    shapes = {"x": (3, 8, 4), "y": (3, 4, 17), "table": (3, 5, 17)}
    inputs = tuple(Tensor(name, shape, "float32") for name, shape in shapes.items())
    out = Stage("out", (b, m, n), biased)
    assert not faults(Workload("biased", (*inputs, Tensor("row", (8,), "int64")), (acc, out)), samples=2)


def test_integers_that_are_the_same_in_every_column_are_summed_as_numbers() -> None:
    found = Gather("table", (at("row", "r"),))
    total = Stage("total", (Axis("r", 5),), found, Reduction("sum", (Axis("c", 3),)))
    inputs = (Tensor("table", (7,), "int64"), Tensor("row", (5,), "int64"))
    assert not faults(Workload("looked_up_sum", inputs, (total,)), samples=4)


@pytest.mark.parametrize("epilogue", ["", "bias_relu"])
def test_products_of_integers_are_summed_as_integers(epilogue: str) -> None:
    others = {"epilogue": epilogue, "out_dtype": "float16"} if epilogue else {}
    assert not faults(ops.matmul(5, 17, 300, dtype="int8", layout="nt", **others), samples=4)
