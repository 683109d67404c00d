"""Inputs that are the same at every call: said by a workload, and left out where there are none."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from convolutions import convolution
from search_spaces import InputError, Tensor, Workload, ops

PLAIN = ops.matmul(24, 40, 56, layout="nt", epilogue="bias")
CONSTANT = ops.matmul(24, 40, 56, layout="nt", epilogue="bias", constant="b")


def with_constant(workload: Workload, name: str) -> Workload:
    """The workload with one constant input."""
    return replace(workload, inputs=tuple(replace(t, constant=t.name == name) for t in workload.inputs))


@pytest.mark.parametrize("strides", [None, (64, 1)], ids=["dense", "strided"])
def test_a_constant_is_the_same_after_json(strides: tuple[int, ...] | None) -> None:
    tensor = Tensor("b", (40, 56), "float32", strides, constant=True)
    given = replace(CONSTANT, inputs=(CONSTANT.inputs[0], tensor, CONSTANT.inputs[2]))
    assert Workload.from_json(json.loads(json.dumps(given.to_json()))) == given


def test_json_of_a_workload_without_constants_does_not_speak_of_them() -> None:
    assert "constant" not in json.dumps(PLAIN.to_json())


def test_a_constant_makes_another_key_of_the_same_family() -> None:
    assert CONSTANT.key != PLAIN.key
    assert CONSTANT.family == PLAIN.family
    assert CONSTANT.varying.key == PLAIN.key
    assert PLAIN.varying is PLAIN


@pytest.mark.parametrize("workload", [PLAIN, ops.matmul(16, 16, 16), convolution((8, 8), (3, 3))])
def test_a_constant_leaves_the_order_of_inputs_as_it_is(workload: Workload) -> None:
    orders = {with_constant(workload, t.name).canonical.inputs for t in workload.inputs}
    assert orders == {workload.canonical.inputs}


def test_the_workload_that_is_scheduled_has_the_constant_in_its_place() -> None:
    places = CONSTANT.canonical.inputs
    assert [CONSTANT.inputs[n].constant for n in places] == [t.constant for t in CONSTANT.scheduled.inputs]
    assert any(t.constant for t in CONSTANT.scheduled.inputs)


def test_a_workload_names_its_constants() -> None:
    assert "constant b[40, 56] float32" in str(CONSTANT)
    assert "constant=b" in CONSTANT.label


def test_an_operand_that_a_product_does_not_have_is_no_constant() -> None:
    with pytest.raises(InputError, match="unknown constant operand 'c'"):
        ops.matmul(16, 16, 16, constant="c")
