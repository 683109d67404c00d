"""Calls of kernels with several outputs: what is returned, what is written to, and as operators of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import autosched
from autosched.checking.random_inputs import empty, random_inputs
from autosched.kernels.kernel import Kernel
from search_spaces import InputError
from several_output_kernels import assert_right, kernel_of
from several_outputs import COLUMNS, ROWS, STRIDED, added, compared


@pytest.fixture
def kernel() -> Kernel:
    return kernel_of(added())


@pytest.fixture
def operands(kernel: Kernel) -> list[torch.Tensor]:
    return random_inputs(kernel.workload, 3)


def test_a_call_returns_a_tuple(kernel: Kernel, operands: list[torch.Tensor]) -> None:
    made = kernel(*operands)
    assert isinstance(made, tuple)
    assert [list(t.shape) for t in made] == [[ROWS, COLUMNS], [ROWS]]
    assert_right(kernel.workload, operands, made)


def test_results_have_the_strides_of_the_workload() -> None:
    workload = compared(STRIDED)
    inputs = random_inputs(workload, 0)
    made = kernel_of(workload)(*inputs)
    assert [t.stride() for t in made] == [(50, 1), (1, ROWS), (COLUMNS, 1)]
    assert_right(workload, inputs, made)


def outs_of(kernel: Kernel) -> tuple[torch.Tensor, ...]:
    return tuple(empty(t, "cpu").zero_() for t in kernel.workload.outputs)


def test_a_tuple_given_as_out_is_written_and_returned(kernel: Kernel, operands: list[torch.Tensor]) -> None:
    outs = outs_of(kernel)
    made = kernel(*operands, out=outs)
    assert all(m is o for m, o in zip(made, outs, strict=True))
    assert_right(kernel.workload, operands, outs)


def test_one_of_out_that_lies_elsewhere_is_written_by_way_of_a_temporary(
    kernel: Kernel, operands: list[torch.Tensor]
) -> None:
    total, largest = torch.zeros(COLUMNS, ROWS, dtype=torch.bfloat16).mT, torch.zeros(ROWS + 1)[1:]
    made = kernel(*operands, out=(total, largest))
    assert made[0] is total
    assert made[1] is largest
    assert_right(kernel.workload, operands, made)


@pytest.mark.parametrize(
    "out",
    [
        torch.empty(ROWS, COLUMNS, dtype=torch.bfloat16),
        (torch.empty(ROWS, COLUMNS, dtype=torch.bfloat16),),
        [torch.empty(ROWS, COLUMNS, dtype=torch.bfloat16), torch.empty(ROWS)],
    ],
    ids=["a tensor", "one of two", "a list"],
)
def test_out_has_a_tensor_for_every_output(kernel: Kernel, operands: list[torch.Tensor], out: object) -> None:
    with pytest.raises(InputError, match=r"expected a tuple of 2 .*total.*largest"):
        kernel(*operands, out=out)


def test_a_tensor_too_many_is_no_output(kernel: Kernel, operands: list[torch.Tensor]) -> None:
    total, largest = outs_of(kernel)
    with pytest.raises(InputError, match=r"added takes 2 tensors .* got 3"):
        kernel(*operands, total, out=(largest,))


def test_each_of_out_must_be_of_its_kind(kernel: Kernel, operands: list[torch.Tensor]) -> None:
    total, largest = outs_of(kernel)
    with pytest.raises(InputError, match=r"largest: dtype torch\.float64"):
        kernel(*operands, out=(total, largest.double()))
    with pytest.raises(InputError, match="total: shape"):
        kernel(*operands, out=(largest, total))
    with pytest.raises(InputError, match=r"largest: expected a torch\.Tensor"):
        kernel(*operands, out=(total, None))


def test_outputs_that_overlap_inputs_are_refused(kernel: Kernel, operands: list[torch.Tensor]) -> None:
    total, _ = outs_of(kernel)
    with pytest.raises(InputError, match="total overlaps y"):
        kernel(*operands, out=(operands[1], outs_of(kernel)[1]))
    inside = operands[0].view(torch.float32).view(-1)[:ROWS]
    with pytest.raises(InputError, match="largest overlaps x"):
        kernel(*operands, out=(total, inside))


def test_outputs_that_overlap_each_other_are_refused(kernel: Kernel, operands: list[torch.Tensor]) -> None:
    total, _ = outs_of(kernel)
    with pytest.raises(InputError, match="largest overlaps total"):
        kernel(*operands, out=(total, total.view(torch.float32).view(-1)[:ROWS]))


@pytest.mark.parametrize("step", [1, 2], ids=["halves", "in turns"])
def test_outputs_may_be_parts_of_the_same_rows(step: int) -> None:
    """They share no element, whatever lies between them: a concatenation is written so."""
    apart = (2 * COLUMNS, step)
    power = compared().stages[0]
    workload = replace(
        compared(),
        stages=(power, replace(power, name="again")),
        output_names=("power", "again"),
        output_strides=(apart, apart),
    )
    rows = torch.full((ROWS, 2 * COLUMNS), torch.nan)
    outs = (rows[:, ::2], rows[:, 1::2]) if step == 2 else (rows[:, :COLUMNS], rows[:, COLUMNS:])
    inputs = random_inputs(workload, 0)
    kernel = kernel_of(workload)
    assert all(m is o for m, o in zip(kernel(*inputs, out=outs), outs, strict=True))
    assert_right(workload, inputs, outs)
    with pytest.raises(InputError, match="again overlaps power"):
        kernel(*inputs, out=(outs[0], outs[0]))


def test_a_kernel_called_as_another_workload_of_its_key_writes_outputs_in_order() -> None:
    workload = added("float32")
    x, y = workload.inputs
    swapped = replace(workload, inputs=(y, x))
    assert swapped.key == workload.key
    inputs = random_inputs(swapped, 0)
    assert_right(swapped, inputs, kernel_of(workload).called_as(swapped)(*inputs))


# Operators


@pytest.fixture(autouse=True)
def without_compiled_functions() -> Iterator[None]:
    yield
    torch.compiler.reset()


def test_an_operator_returns_several_tensors(kernel: Kernel, operands: list[torch.Tensor]) -> None:
    op = autosched.register(kernel)
    assert_right(kernel.workload, operands, op(*operands))


def test_an_operator_writes_to_several_tensors(kernel: Kernel, operands: list[torch.Tensor]) -> None:
    outs = outs_of(kernel)
    assert autosched.register(kernel).out(*operands, out0=outs[0], out1=outs[1]) is None
    assert_right(kernel.workload, operands, outs)


def test_pytorch_finds_the_operator_of_several_outputs_right(kernel: Kernel, operands: list[torch.Tensor]) -> None:
    op = autosched.register(kernel)
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(op.default, operands, test_utils=checks)
    outs = dict(zip(("out0", "out1"), outs_of(kernel), strict=True))
    torch.library.opcheck(op.out, operands, outs, test_utils=checks)


@pytest.mark.parametrize("given", [False, True], ids=["new", "out"])
def test_a_compiled_function_calls_a_kernel_of_several_outputs(
    kernel: Kernel, operands: list[torch.Tensor], given: bool
) -> None:
    outs = outs_of(kernel)

    def caller(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total, largest = kernel(x * 2, y, out=outs) if given else kernel(x * 2, y)
        return total.float() + largest[:, None]

    made = torch.compile(caller, backend="aot_eager", fullgraph=True)(*operands)
    total, largest = kernel(operands[0] * 2, operands[1])
    assert torch.equal(made, total.float() + largest[:, None])


def test_tensors_without_data_give_results_without_data() -> None:
    kernel = kernel_of(compared(STRIDED))
    with FakeTensorMode() as mode:
        made = kernel(mode.from_tensor(torch.empty(ROWS, COLUMNS)))
    assert [(list(t.shape), t.stride(), t.dtype) for t in made] == [
        ([ROWS, COLUMNS], (50, 1), torch.float32),
        ([ROWS, COLUMNS], (1, ROWS), torch.bool),
        ([ROWS, COLUMNS], (COLUMNS, 1), torch.float16),
    ]
