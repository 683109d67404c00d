"""Parts that differ in constants as one expression: it is each of them at its number."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.tracing.values.stacks import Stack
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Integer, Position, call

DTYPES = {"bytes": "uint8", "signed": "int8", "wide": "int32"}
LEAVES = {name: call("to_integer", Access(name, ())) for name in DTYPES}
VALUES: Mapping[str, tuple[int, ...]] = {
    "bytes": (0, 1, 15, 16, 127, 128, 255),
    "signed": (-128, -1, 0, 7, 127),
    "wide": (-(2**31), -3, 0, 2**31 - 1),
}
OPERATORS: Mapping[str, Callable[..., int]] = {
    "bitwise_and": operator.and_,
    "shift_right": operator.rshift,
    "shift_left": operator.lshift,
    "add": operator.add,
    "mul": operator.mul,
    "wrap_int8": lambda x: (x + 128) % 256 - 128,
    "wrap_uint8": lambda x: x % 256,
}


def value(e: Expression, leaves: Mapping[str, int], part: int) -> int:
    match e:
        case Integer(number):
            return number
        case Apply("to_integer", (Position(index),)):
            return index.evaluate({"part": part})
        case Apply("to_integer", (Access(tensor),)):
            return leaves[tensor]
        case Apply(name, arguments):
            return OPERATORS[name](*(value(a, leaves, part) for a in arguments))
    raise AssertionError(e)


@st.composite
def stacks(draw: st.DrawFn) -> tuple[str, list[Expression]]:
    """Parts of one element that differ in constants, mostly, and in operations that are left out; and its name."""
    name = draw(st.sampled_from(sorted(LEAVES)))
    parts: list[Expression] = [LEAVES[name]] * draw(st.integers(2, 4))
    for kind in draw(st.lists(st.sampled_from(sorted(OPERATORS)), max_size=4)):
        start, step = draw(st.integers(0, 4)), draw(st.integers(-1, 2))
        mask = draw(st.sampled_from((3, 15, 255, 5)))
        for n, part in enumerate(parts):
            number = mask if kind == "bitwise_and" else max(start + step * n, 0)
            arguments = (part,) if kind.startswith("wrap") else (part, Integer(number))
            parts[n] = part if draw(st.integers(0, 3)) == 0 else call(kind, *arguments)
    return name, parts


@settings(max_examples=150, deadline=None)
@given(stacks())
def test_one_expression_is_every_part_at_its_number(stack: tuple[str, list[Expression]]) -> None:
    name, parts = stack
    together = Stack(axis_index("part"), DTYPES).together(parts)
    if together is None:
        return
    for number, part in enumerate(parts):
        for x in VALUES[name]:
            assert value(together, {name: x}, number) == value(part, {name: x}, number)


def test_fields_of_bits_are_one_shift_and_one_mask() -> None:
    x, y = LEAVES["bytes"], LEAVES["signed"]
    stack = Stack(axis_index("part"), DTYPES)

    def moved(by: int, e: Expression = x) -> Expression:
        return call("shift_right", e, Integer(by))

    pairs = [call("bitwise_and", x, Integer(3)), *(call("bitwise_and", moved(n), Integer(3)) for n in (2, 4)), moved(6)]
    shift = call("to_integer", Position(axis_index("part") * 2))
    assert stack.together(pairs) == call("bitwise_and", call("shift_right", x, shift), Integer(3))
    signs = [moved(4, call("wrap_int8", call("shift_left", y, Integer(4)))), moved(4, y)]
    assert stack.together(signs) is not None
    # Of a byte with a sign the upper bits are no field without one, and steps that differ are none.
    assert stack.together([call("bitwise_and", y, Integer(15)), moved(4, y)]) is None
    assert stack.together([moved(0), moved(2), moved(6)]) is None
    assert stack.together([x, y]) is None
