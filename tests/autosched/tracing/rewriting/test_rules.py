"""Every rule of rewriting, found by its folder: both sides of each match are equal, and its condition keeps it off."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from autosched.tracing.fusion.regions import below
from autosched.tracing.operators.product_rules import product
from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.operators.view_translation import permute, piece
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.evaluation import evaluated
from autosched.tracing.rewriting.examples import exponentials, leaf, matmul, pointwise, softmax
from autosched.tracing.rewriting.rule import Exactness, Match, Rule
from autosched.tracing.rewriting.rules import all_rules
from autosched.tracing.rewriting.terms import with_operands
from autosched.tracing.values.values import Joined, Leaf, Pointwise, Value, placeholder
from random_values import random_values
from rule_checks import matches, why_together_wrong, why_wrong
from search_spaces.workloads.expressions.expression import Expression, Literal, add, call, mul

RULES = pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)
# Sizes that tell dimensions from each other, and random ones, among which are equal ones and ones.
DIFFERENT = (2, 3, 4, 5), (4, 3, 2, 5), (3, 5, 4, 2)
SIZES = [*DIFFERENT, *(tuple(map(int, s)) for s in np.random.default_rng(0).integers(1, 5, (8, 4)))]


@RULES
def test_both_sides_of_every_pair_are_equal(rule: Rule) -> None:
    for seed, (sizes, example) in enumerate(itertools.product(SIZES, (rule.example, *rule.others, *rule.refused))):
        assert (reason := why_wrong(rule, example(sizes), seed)) is None, (reason, sizes)


@RULES
def test_a_rule_applies_to_its_examples(rule: Rule) -> None:
    for sizes, example in itertools.product(DIFFERENT, (rule.example, *rule.others)):
        assert matches(rule, example(sizes)), (sizes, example)


@RULES
def test_a_rule_does_not_apply_beyond_its_condition(rule: Rule) -> None:
    assert rule.refused or rule.exactness == "folded", "expected functions next to its condition"
    for sizes, example in itertools.product(SIZES, rule.refused):
        assert not matches(rule, example(sizes)), (sizes, example)


@pytest.mark.parametrize("rule", [r for r in all_rules() if r.exactness == "folded"], ids=lambda rule: rule.name)
def test_a_rule_that_combines_constants_leaves_arguments_apart(rule: Rule) -> None:
    for sizes, example in itertools.product(SIZES, (rule.example, *rule.others)):
        assert not matches(rule, of_arguments(example(sizes))), (sizes, example)


def of_arguments(results: Sequence[Value]) -> list[Value]:
    """The same results of tensors that every call has anew."""
    made: dict[Value, Value] = {}
    for value in below(results):
        changed = with_operands(value, made.__getitem__)
        made[value] = replace(changed, static=False) if isinstance(changed, Leaf) else changed
    return [made[r] for r in results]


@RULES
def test_a_rule_says_what_differs_with_nan_and_infinities_and_nothing_else_does(rule: Rule) -> None:
    """Elements that are finite on both sides are equal; of rules that keep every rounding, all are."""
    documented = inspect.getmodule(rule.matches)
    assert rule.exactness == "same" or "NaN" in str(documented and documented.__doc__)
    generator = torch.Generator().manual_seed(0)
    numbers = torch.tensor([0.0, -1.0, 2.0, 0.5, torch.nan, torch.inf, -torch.inf], dtype=torch.float64)
    for sizes, example in itertools.product(SIZES, (rule.example, *rule.others)):
        results = example(sizes)
        for match in matches(rule, results):
            for before, after in match.pairs:
                given = {v: numbers[torch.randint(7, v.shape, generator=generator)] for v in leaves([before, after])}
                a, b = evaluated([before, after], given)
                both = torch.ones_like(a, dtype=torch.bool) if rule.exactness == "same" else a.isfinite() & b.isfinite()
                torch.testing.assert_close(a[both], b[both], equal_nan=True)


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("exactness", ["same", "folded"])
def test_rules_together_are_right_for_random_values(seed: int, exactness: Exactness) -> None:
    rules = [rule for rule in all_rules() if exactness == "folded" or rule.exactness == "same"]
    assert why_together_wrong(rules, random_values(seed), seed) is None


def leaves(values: Sequence[Value]) -> list[Leaf]:
    return [v for v in below(values) if isinstance(v, Leaf)]


def rule_of(apply: Callable[[Value], Value | None], exactness: Exactness = "reassociated") -> Rule:
    """A rule for single values."""

    def found(equalities: Equalities) -> Iterable[Match]:
        pairs = ((value, apply(value)) for value in equalities.terms())
        return [Match(((value, made),)) for value, made in pairs if made is not None]

    return Rule("planted", exactness, found, lambda sizes: [])


def square(name: str) -> Leaf:
    return leaf(name, (3, 3), constant=True)


def doubled(x: Value) -> Value:
    return pointwise(lambda e: mul(e, Literal(2.0)), x)


def product_of(value: Value, a: Value, b: Value) -> Value:
    return product(Result("after", value.shape, "float32", ""), a, b, value.shape, (0, 2), (2, 1))


def transposed(x: Value) -> Value:
    return permute(Result(f"{x.name}_transposed", x.shape[::-1], x.dtype, ""), x, (1, 0))


def halved(x: Value) -> Value:
    return pointwise(lambda e: mul(e, Literal(0.5)), x)


def wrong_rules() -> dict[str, tuple[Rule, Sequence[Value]]]:
    """Rules with the mistakes that people make, and functions to which they apply."""
    x, w, v = leaf("x", (3, 3)), square("w"), square("v")
    y = matmul(x, w)
    scaled = matmul(x, halved(w))
    total = Result("total", (3,), "float32", "").reduced("sum", y, (0,))
    joined = Result("joined", (3, 6), "float32", "").of(Joined, parts=(w, v), dim=1)
    wide = matmul(x, joined)
    both = [y, pointwise(add, y, matmul(x, v))]
    rounded = Result("rounded", (3, 3), "bfloat16", "").pointwise(lambda e: e, y)
    biased = pointwise(add, y, leaf("bias", (3,), constant=True))
    along = pointwise(add, x, leaf("along", (3,), constant=True))
    weights, tripled = exponentials(along), pointwise(lambda e: mul(e, Literal(3.0)), biased)
    averages = matmul(exponentials(x), biased, "averages")
    most = maximum_of(pointwise(lambda e: mul(e, Literal(-2.0)), y))

    def at(place: Value, after: Callable[[Value], Value], exactness: Exactness = "reassociated") -> Rule:
        return rule_of(lambda value: after(value) if value is place else None, exactness)

    return {
        "a transposed operand": (at(y, lambda p: product_of(p, x, transposed(w))), [y]),
        "operands in the other order": (at(y, lambda p: product_of(p, w, x)), [y]),
        "a missing factor": (at(scaled, lambda p: product_of(p, x, w)), [scaled]),
        "a factor twice": (at(scaled, lambda p: halved(product_of(p, x, halved(w)))), [scaled]),
        "a wrong axis": (at(total, lambda t: Result("t", (3,), "float32", "").reduced("sum", y, (1,))), [total]),
        "a forgotten reader": (at(y, halved), both),
        "a wrong slice": (at(y, lambda p: piece(wide, 1, 3, 3)), [y, wide]),
        "parts in the other order": (at(wide, lambda p: concatenated(matmul(x, v), y)), [wide]),
        "a rounding left out": (at(rounded, lambda r: unrounded(r, y), "same"), [rounded]),
        "another rounding": (at(rounded, lambda r: again_rounded(r, "float16"), "same"), [rounded]),
        "a bias along the other axis": (at(biased, transposed_bias), [biased]),
        "a maximum through a sum": (at(total, lambda t: maximum_of_sums(y)), [maximum_of(y), total]),
        "a view that reorders": (at(y, lambda p: reshape(transposed(y), (3, 3))), [y]),
        "what the function does not have": (at(y, lambda p: product_of(p, x, square("u"))), [y]),
        "a shift along the row": (at(weights, lambda e: exponentials(x)), [weights]),
        "a scale without the bias": (at(tripled, lambda t: rebiased(t, matmul(x, threefold(w)))), [tripled]),
        "averages with weights of another sum": (
            at(averages, lambda a: rebiased(a, matmul(exponentials(x), y))),
            [averages],
        ),
        "a negative scale past a maximum": (at(most, lambda m: pointwise(minus_twofold, maximum_of(y))), [most]),
        "another shape": (at(y, lambda p: piece(wide, 1, 0, 4)), [y, wide]),
    }


def concatenated(*parts: Value) -> Value:
    return Result("joined", (3, 6), "float32", "").of(Joined, parts=parts, dim=1)


def unrounded(rounded: Value, sums: Value) -> Value:
    return Pointwise(
        name="unrounded",
        shape=sums.shape,
        dtype=rounded.dtype,
        arguments=(sums,),
        expression=placeholder(0, sums.dtype),
    )


def again_rounded(rounded: Value, dtype: str) -> Value:
    assert isinstance(rounded, Pointwise)
    return replace(rounded, expression=call(f"round_{dtype}", rounded.expression))


def transposed_bias(biased: Value) -> Value:
    assert isinstance(biased, Pointwise)
    y, bias = biased.arguments
    return replace(biased, arguments=(y, reshape(bias, (3, 1))))


def maximum_of(y: Value) -> Value:
    return Result("most", (3,), "float32", "").reduced("max", y, (0,))


def threefold(w: Value) -> Value:
    return pointwise(lambda e: mul(e, Literal(3.0)), w)


def minus_twofold(element: Expression) -> Expression:
    return mul(element, Literal(-2.0))


def rebiased(value: Value, sums: Value) -> Value:
    """Other sums with the bias that is somewhere below a value."""
    (bias,) = (v for v in below([value]) if isinstance(v, Leaf) and v.name == "bias")
    return pointwise(add, sums, bias)


def maximum_of_sums(y: Value) -> Value:
    return pointwise(lambda e: mul(e, Literal(3.0)), maximum_of(y))


@pytest.mark.parametrize("name", wrong_rules())
def test_a_wrong_rule_is_caught(name: str) -> None:
    rule, results = wrong_rules()[name]
    assert matches(rule, results)
    assert why_wrong(rule, results) is not None


def right_rules() -> dict[str, tuple[Rule, Sequence[Value]]]:
    """Identities that hold, in forms that differ."""
    x, w, v = leaf("x", (3, 3)), square("w"), square("v")
    y, z = matmul(x, w), matmul(x, v)
    sums = pointwise(add, y, z)
    rows = Result("rows", (3,), "float32", "").reduced("sum", y, (0,))
    chain = matmul(y, v)
    rounded = Result("rounded", (3, 3), "bfloat16", "").pointwise(lambda e: e, y)
    shifted = exponentials(pointwise(add, x, leaf("row", (3, 1))))
    averages = matmul(softmax(x), pointwise(add, y, leaf("bias", (3,), constant=True)), "averages")
    most = maximum_of(doubled(y))

    def at(place: Value, after: Callable[[Value], Value]) -> Rule:
        return rule_of(lambda value: after(value) if value is place else None)

    def of_row_sums(r: Value) -> Value:
        row = reshape(Result("sums", (3,), "float32", "").reduced("sum", x, (0,)), (1, 3))
        return reshape(matmul(row, w), (3,))

    return {
        "distributivity": (at(sums, lambda s: product_of(s, x, pointwise(add, w, v))), [sums]),
        "associativity": (at(chain, lambda c: product_of(c, x, matmul(w, v))), [chain]),
        "transposition": (at(y, lambda p: transposed(product_of(p, transposed(w), transposed(x)))), [y]),
        "sums of rows": (at(rows, of_row_sums), [rows]),
        "a factor moved": (
            at(y, lambda p: product_of(p, doubled(x), halved(w))),
            [y],
        ),
        "a rounding left out": (at(rounded, lambda r: unrounded(r, y)), [rounded]),
        "a shift of rows": (at(shifted, lambda e: exponentials(x)), [shifted]),
        "averages of what is shifted": (at(averages, lambda a: rebiased(a, matmul(softmax(x), y))), [averages]),
        "a positive scale past a maximum": (at(most, lambda m: doubled(maximum_of(y))), [most]),
    }


@pytest.mark.parametrize("name", right_rules())
def test_a_right_rule_passes(name: str) -> None:
    rule, results = right_rules()[name]
    assert matches(rule, results)
    assert why_wrong(rule, results) is None
