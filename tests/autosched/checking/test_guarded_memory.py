"""Memory that shows what a kernel did to it, and the verdict on what it shows."""

from __future__ import annotations

import math

import pytest
import torch

from autosched.checking.guarded_memory import PATTERNS, GuardedInputs, GuardedOutput, GuardedTensor, same_bits
from autosched.checking.random_inputs import random_inputs
from autosched.checking.reference import evaluate
from autosched.checking.trial_data import Failed, TrialData
from search_spaces import Axis, Stage, Tensor, Workload, ops
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Apply

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]


def spec(shape: tuple[int, ...], dtype: torch.dtype, strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor("x", shape, str(dtype).removeprefix("torch."), strides)


def beside(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    return tensor.as_strided((1,), (1,), tensor.storage_offset() + offset)


def bits(tensor: torch.Tensor) -> list[int]:
    return tensor.view(PATTERNS[tensor.dtype].integer).tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("which", ["poison", "band"])
def test_arithmetic_on_a_pattern_yields_another_nan(dtype: torch.dtype, which: str) -> None:
    patterns = PATTERNS[dtype]
    pattern = getattr(patterns, which)
    poisoned = torch.full((32,), pattern, dtype=patterns.integer).view(dtype)
    ordinary = torch.ones(32, dtype=dtype)
    for result in (poisoned + ordinary, ordinary * poisoned, poisoned - poisoned, poisoned.sqrt(), -poisoned.exp()):
        assert result.isnan().all()
        assert pattern not in bits(result)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_nan_of_a_calculation_is_neither_pattern(dtype: torch.dtype) -> None:
    zero = torch.zeros(1, dtype=dtype)
    made = [*bits(zero / zero), *bits(torch.tensor([math.nan], dtype=dtype)), *bits(torch.log(zero - 1))]
    assert not {PATTERNS[dtype].poison, PATTERNS[dtype].band} & set(made)
    assert PATTERNS[dtype].poison != PATTERNS[dtype].band


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_the_nan_of_a_conversion_is_neither_pattern(dtype: torch.dtype) -> None:
    patterns = PATTERNS[dtype]
    assert bits(torch.tensor([math.nan]).to(dtype)) == [0x7F]
    for pattern in (patterns.poison, patterns.band):
        assert pattern != 0x7F
        assert torch.tensor([pattern], dtype=torch.int8).view(dtype).float().isnan().all()
    # The other type has one other NaN.
    assert (patterns.poison != patterns.band) == (dtype == torch.float8_e5m2)


def test_no_sum_of_products_is_the_pattern_of_an_integer() -> None:
    for k in (1, 1000, 2**17, 2**20):
        a, b = random_inputs(ops.matmul(1, 1, k, dtype="int8"), 0)
        largest = int(torch.maximum(a.abs().max(), b.abs().max()))
        assert largest < -PATTERNS[torch.int8].poison
        assert k * largest**2 < -PATTERNS[torch.int32].poison


@pytest.mark.parametrize("dtype", DTYPES + FLOAT8, ids=str)
def test_what_was_not_written_is_told_from_a_nan_that_was(dtype: torch.dtype) -> None:
    output = GuardedOutput(spec((2, 3), dtype), "cpu")
    output.poison()
    output.tensor[0] = 1.0
    output.tensor[1, 0] = math.nan
    assert output.unwritten().tolist() == [[False] * 3, [False, True, True]]


@pytest.mark.parametrize(("offset", "where"), [(-1, "before"), (1000, "after")])
@pytest.mark.parametrize("dtype", DTYPES + FLOAT8 + INTEGERS, ids=str)
def test_a_write_beside_a_tensor_shows(offset: int, where: str, dtype: torch.dtype) -> None:
    guarded = GuardedTensor(spec((10, 100), dtype), "cpu")
    guarded.tensor.zero_()
    assert guarded.why_damaged() is None
    beside(guarded.tensor, offset).fill_(0.0)
    assert guarded.why_damaged() == f"{where} it (1 elements of the guard band differ)"
    guarded.surround()
    assert guarded.why_damaged() is None


@pytest.mark.parametrize(
    ("shape", "strides", "padding"),
    [
        ((3, 5), (8, 1), [5, 6, 7, 13, 14, 15]),
        ((2, 2, 3), (10, 4, 1), [3, 7, 8, 9, 13]),
        ((2, 2, 3), (4, 8, 1), [3, 7, 11]),
        ((4, 2, 3), (0, 5, 1), [3, 4]),
        ((5, 3), (1, 8), [5, 6, 7, 13, 14, 15]),
    ],
)
def test_a_write_between_the_rows_of_a_strided_tensor_shows(
    shape: tuple[int, ...], strides: tuple[int, ...], padding: list[int]
) -> None:
    guarded = GuardedTensor(spec(shape, torch.float32, strides), "cpu")
    assert guarded.tensor.shape == shape
    assert guarded.tensor.stride() == strides
    end = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    for offset in range(end):
        guarded.surround()
        beside(guarded.tensor, offset).fill_(0.0)
        hit = guarded.why_damaged() == "between its rows (1 elements of the guard band differ)"
        assert hit == (offset in padding)


def test_an_operand_shared_by_a_batch_is_copied_and_restored() -> None:
    workload = ops.matmul(4, 5, 3, batch=2, stride_b=0, lda=7)
    originals = random_inputs(workload, 0)
    inputs = GuardedInputs(workload, originals)
    assert torch.equal(inputs.tensors[1], originals[1])
    inputs.tensors[1][0, 1, 1] += 1
    assert inputs.changed() == ("b",)
    assert all(map(torch.equal, inputs.tensors, originals))


def test_one_element_that_is_all_of_an_operand_is_restored() -> None:
    stage = Stage("y", (Axis("i", 9),), Apply("neg", (Access("x", (axis_index("i"),)),)))
    workload = Workload("neg", (Tensor("x", (9,), "float32", (0,)),), (stage,))
    inputs = GuardedInputs(workload, random_inputs(workload, 0))
    inputs.tensors[0][:1] += 1
    assert inputs.changed() == ("x",)
    assert inputs.changed() == ()


@pytest.mark.parametrize("offset", [-1, -1000, 1000, 2000])
def test_what_is_read_beside_an_input_is_not_a_number(offset: int) -> None:
    workload = ops.gelu_scale(1000)
    inputs = GuardedInputs(workload, random_inputs(workload, 0))
    assert beside(inputs.tensors[0], offset).isnan().all()
    inputs.surround(zeros=True)
    assert beside(inputs.tensors[0], offset).item() == 0.0


@pytest.mark.parametrize("shape", [(1,), (3, 5), (1, 1, 7)])
@pytest.mark.parametrize("shift", [0, 64, 4032])
def test_a_guarded_tensor_is_dense_and_begins_where_it_should_whatever_its_shape(
    shape: tuple[int, ...], shift: int
) -> None:
    guarded = GuardedTensor(spec(shape, torch.bfloat16), "cpu", shift)
    assert guarded.tensor.shape == shape
    assert guarded.tensor.is_contiguous()
    assert guarded.tensor.data_ptr() % 4096 == shift


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_that_were_not_written_are_found(dtype: torch.dtype) -> None:
    output = GuardedOutput(spec((40,), dtype), "cpu")
    output.poison()
    assert output.unwritten().all()
    output.tensor[3:].fill_(0)
    assert output.unwritten().nonzero().flatten().tolist() == [0, 1, 2]


@pytest.mark.parametrize("element", [0, 4, 14])
def test_a_change_of_any_input_element_is_seen(element: int) -> None:
    workload = ops.matmul(3, 3, 5, dtype="bfloat16")
    inputs = GuardedInputs(workload, random_inputs(workload, 0))
    inputs.tensors[0].view(-1)[element] += 1
    assert inputs.changed() == (workload.inputs[0].name,)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 1, 0)])
def test_bits_are_compared_in_any_order_of_memory(order: tuple[int, int, int]) -> None:
    a = torch.arange(30.0).view(2, 3, 5).permute(order)
    b = a.clone(memory_format=torch.contiguous_format)
    assert same_bits(a, a.clone())
    assert same_bits(a, b)
    b[-1, -1, 0] = -1.0
    assert not same_bits(a, b)
    assert not same_bits(b, a)


def test_changed_inputs_are_named_and_restored() -> None:
    workload = ops.matmul(4, 4, 4)
    originals = random_inputs(workload, 0)
    inputs = GuardedInputs(workload, originals)
    inputs.tensors[1][2, 2] = 7.0
    assert inputs.changed() == (workload.inputs[1].name,)
    assert torch.equal(inputs.tensors[1], originals[1])
    assert inputs.changed() == ()


WORKLOAD = ops.gelu_scale(100)


@pytest.fixture
def data() -> TrialData:
    """The data of a trial, with the output that a correct kernel writes."""
    data = TrialData.drawn(WORKLOAD, 0, torch.device("cpu"))
    data.poison()
    data.outputs[0].tensor.copy_(*evaluate(WORKLOAD, data.inputs.tensors, torch.float32))
    return data


def test_a_correct_output_passes(data: TrialData) -> None:
    assert data.judge() <= 1
    data.judge_surroundings()
    assert data.intact


def test_of_several_faults_the_one_that_explains_the_others_is_the_status(data: TrialData) -> None:
    x, y = data.operands
    found = []
    for fault in (
        lambda: y[3].fill_(100.0),
        lambda: y[4].fill_(math.inf),
        lambda: data.outputs[0].tensor.view(torch.int32)[5].fill_(PATTERNS[torch.float32].poison),
        lambda: x[6].fill_(1.0),
        lambda: beside(y, 100).fill_(1.0),
    ):
        fault()
        if not x.equal(data.inputs.originals[0]):
            before = x.clone()
        with pytest.raises(Failed) as failed:
            data.judge()
        found.append(failed.value.status)
        # There is no other output that it could be.
        assert not str(failed.value).startswith("output ")
        if found[-1] == "changed_input":
            # Restored by the verdict; the last fault comes on top of this one.
            x.copy_(before)
    assert found == ["wrong_result", "not_finite", "unwritten_output", "changed_input", "out_of_bounds_write"]


def test_poison_is_found_even_where_the_reference_is_not_a_number() -> None:
    stage = Stage("y", (Axis("i", 64),), Apply("log", (Access("x", (axis_index("i"),)),)), dtype="float32")
    workload = Workload("log", (Tensor("x", (64,), "float32"),), (stage,))
    data = TrialData.drawn(workload, 0, torch.device("cpu"))
    data.poison()
    right = torch.log(data.inputs.tensors[0])
    assert right.isnan().any()
    data.outputs[0].tensor.copy_(right)
    assert data.judge() <= 1
    negative = int(right.isnan().nonzero()[0])
    data.outputs[0].tensor.view(torch.int32)[negative] = PATTERNS[torch.float32].poison
    with pytest.raises(Failed, match=rf"1 of 64 elements were not written; the first is \[{negative}\]"):
        data.judge()


def test_the_same_data_elsewhere_expects_the_same(data: TrialData) -> None:
    moved = data.moved(seed=7)
    assert torch.equal(moved.inputs.tensors[0], data.inputs.tensors[0])
    assert moved.inputs.tensors[0].data_ptr() % 4096 != data.inputs.tensors[0].data_ptr() % 4096
    moved.outputs[0].tensor.copy_(data.outputs[0].tensor)
    assert moved.judge() == data.judge()


@pytest.mark.parametrize("element", [0, 57, 99])
def test_a_change_of_the_reference_is_seen(data: TrialData, element: int) -> None:
    data._expectations[0].allowed[element] *= 2
    assert not data.intact
