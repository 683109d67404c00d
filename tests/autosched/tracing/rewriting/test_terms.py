"""Sources of values: constants, numbers, or arguments."""

import sys

from autosched.tracing.rewriting.examples import leaf, pointwise
from autosched.tracing.rewriting.terms import is_constant
from autosched.tracing.values.fallbacks import Fallback, FallbackOperation
from autosched.tracing.values.values import Pointwise
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Literal

WEIGHT, ARGUMENT = leaf("w", (4,), constant=True), leaf("x", (4,))
NUMBER = Pointwise(name="two", shape=(4,), dtype="float32", arguments=(), expression=Literal(2.0))


def test_values_of_constants_and_numbers_are_constant() -> None:
    assert is_constant(WEIGHT)
    assert is_constant(pointwise(ex.add, WEIGHT, NUMBER))


def test_numbers_alone_are_in_no_memory_and_not_constant() -> None:
    assert not is_constant(NUMBER)
    assert not is_constant(pointwise(ex.add, NUMBER, NUMBER))


def test_what_reads_an_argument_is_not_constant() -> None:
    assert not is_constant(ARGUMENT)
    assert not is_constant(pointwise(ex.add, pointwise(ex.mul, WEIGHT, ARGUMENT), WEIGHT))


def test_calls_of_pytorch_are_not_constant_even_of_constants() -> None:
    call = FallbackOperation(print, (WEIGHT,), (), "a test")
    assert not is_constant(Fallback(name="called", shape=(4,), dtype="float32", operation=call))


def test_values_of_constants_may_be_deeper_than_the_stack() -> None:
    value = WEIGHT
    for _ in range(2 * sys.getrecursionlimit()):
        value = pointwise(ex.add, value, NUMBER)
    assert is_constant(value)
