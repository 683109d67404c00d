"""Small values for examples of rules: arguments, constants, products, pointwise functions and softmax in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.tracing.operators.product_rules import product
from autosched.tracing.operators.rules import Result
from autosched.tracing.values.values import Leaf, Value
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression
from search_spaces.workloads.strides import dense_strides


def leaf(name: str, shape: Sequence[int], constant: bool = False, dtype: str = "float32") -> Leaf:
    """A tensor in memory: an argument, or one whose elements stay."""
    return Leaf(
        name=name, shape=tuple(shape), dtype=dtype, strides=dense_strides(tuple(shape)), position=0, static=constant
    )


def matmul(a: Value, b: Value, name: str = "product") -> Value:
    """`a @ b` of matrices."""
    shape = (a.shape[0], b.shape[1])
    return product(Result(name, shape, "float32", ""), a, b, shape, (0, 2), (2, 1))


def pointwise(combine: Callable[..., Expression], *arguments: Value, name: str = "made") -> Value:
    """A pointwise function of values that are broadcast to the shape of the largest."""
    shape = max((a.shape for a in arguments), key=len)
    return Result(name, shape, arguments[0].dtype, "").pointwise(combine, *arguments)


def exponentials(scores: Value) -> Value:
    """Exponentials of scores less their maximum along the last dimension."""
    return pointwise(lambda e: ex.call("exp", e), pointwise(ex.sub, scores, folded("max", scores), name="lowered"))


def softmax(scores: Value) -> Value:
    """Softmax along the last dimension."""
    made = exponentials(scores)
    return pointwise(ex.div, made, folded("sum", made), name="softmax")


def folded(operator: str, value: Value) -> Value:
    """A reduction along the last dimension, which is kept with size 1."""
    dim = len(value.shape) - 1
    result = Result(f"{value.name}_{operator}", value.shape[:-1], "float32", "")
    return result.keeping(result.reduced(operator, value, [dim]), [dim], True)
