"""Laws of the e-graph, for random terms and random merges."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.tracing.fusion.regions import below
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.evaluation import evaluated
from autosched.tracing.rewriting.examples import leaf, pointwise
from autosched.tracing.rewriting.rewritings import Rewrite, Rewriting, rewrites_of, rewritings, with_rewrites
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.values.values import Value
from residues import Residues, are_equal
from rule_checks import residues_of
from search_spaces.workloads.expressions.expression import Expression, add, call

_MOST = 50


@dataclass(frozen=True)
class Terms:
    """Terms of a few leaves, operands first, and pairs of their numbers to merge."""

    values: tuple[Value, ...]
    pairs: tuple[tuple[int, int], ...]

    @property
    def merges(self) -> list[tuple[Value, Value]]:
        return [(self.values[a], self.values[b]) for a, b in self.pairs]


@st.composite
def terms(draw: st.DrawFn) -> Terms:
    values: list[Value] = [leaf(name, (2,)) for name in "ab"]
    for n in range(draw(st.integers(1, 8))):
        operands = [values[i] for i in draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=2))]
        combine = add if len(operands) == 2 else draw(st.sampled_from((negated, exponential)))
        values.append(pointwise(combine, *operands, name=f"v{n}"))
    number = st.integers(0, len(values) - 1)
    return Terms(tuple(values), tuple(draw(st.lists(st.tuples(number, number), max_size=4))))


def negated(x: Expression) -> Expression:
    return call("neg", x)


def exponential(x: Expression) -> Expression:
    return call("exp", x)


def merged(values: Sequence[Value], pairs: Sequence[tuple[Value, Value]]) -> Equalities:
    equalities = Equalities(values, _MOST)
    for a, b in pairs:
        equalities.merge(a, b)
    equalities.rebuild()
    return equalities


def partition(values: Sequence[Value], equalities: Equalities) -> set[frozenset[Value]]:
    return {frozenset(v for v in values if equalities.are_equal(v, u)) for u in values}


def have_same_elements(some: Sequence[Value], others: Sequence[Value]) -> bool:
    tensors, residues = residues_of(others, 0), Residues(rounded=True)
    return all(map(are_equal, evaluated(some, tensors, residues), evaluated(others, tensors, residues)))


@given(terms())
def test_equal_operands_make_equal_terms(made: Terms) -> None:
    equalities = merged(made.values, made.merges)
    for a, b in itertools.combinations(made.values, 2):
        alike = getattr(a, "expression", a) == getattr(b, "expression", b) and len(a.operands) == len(b.operands)
        if alike and all(map(equalities.are_equal, a.operands, b.operands)):
            assert equalities.are_equal(a, b)
    each = [(getattr(v, "expression", v), *map(equalities.number, v.operands)) for v in equalities.terms()]
    assert len(set(each)) == len(each)


@given(terms())
def test_terms_and_merges_known_already_change_nothing(made: Terms) -> None:
    once, twice = merged(made.values, made.merges), merged(made.values, made.merges)
    twice.add(made.values)
    assert not any(twice.merge(a, b) for a, b in made.merges)
    twice.rebuild()
    assert partition(made.values, once) == partition(made.values, twice)
    assert len(once) == len(twice)


@given(terms(), st.randoms(use_true_random=False))
def test_the_order_of_merges_means_nothing(made: Terms, random: Random) -> None:
    pairs = [pair if random.random() < 0.5 else pair[::-1] for pair in made.merges]
    random.shuffle(pairs)
    first, second = merged(made.values, made.merges), merged(made.values, pairs)
    assert partition(made.values, first) == partition(made.values, second)
    assert {len(first.forms(v)) for v in made.values} == {len(second.forms(v)) for v in made.values}


@given(terms())
def test_every_class_has_its_terms_and_readers(made: Terms) -> None:
    equalities = merged(made.values, made.merges)
    forms = {form for v in made.values for form in equalities.forms(v)}
    assert forms == set(equalities.terms())
    for number, readers in equalities.readers().items():
        assert all(number in map(equalities.number, reader.operands) for reader in readers)


@given(terms())
def test_without_rewrites_results_have_the_same_elements(made: Terms) -> None:
    given_tensors, residues = residues_of(made.values, 0), Residues(rounded=True)
    other = with_rewrites(made.values, Equalities(made.values, _MOST), [])
    found = made.values if other is None else other.results
    for a, b in zip(
        evaluated(made.values, given_tensors, residues), evaluated(found, given_tensors, residues), strict=True
    ):
        assert are_equal(a, b)


@given(terms())
def test_results_are_found_also_where_equalities_are_cyclic(made: Terms) -> None:
    """Merged terms of which one is computed from the other, in any way."""
    equalities = merged(made.values, made.merges)
    rule = Rule("any", "same", lambda _: [], lambda _: [])
    for pairs in (made.merges, [pair[::-1] for pair in made.merges]):
        other = with_rewrites(made.values, equalities, [Rewrite(rule, Match((pair,))) for pair in pairs])
        results = made.values if other is None else other.results
        # Finite, and each result in the class of the one that it is in the place of.
        equalities.add(below(results))
        assert all(map(equalities.are_equal, results, made.values))


def growing(equalities: Equalities) -> list[Match]:
    """x → -(-x), of all terms, also of those that it made."""
    pairs = [(v, pointwise(negated, pointwise(negated, v))) for v in equalities.terms()]
    return [Match((pair,)) for pair in pairs]


@given(terms())
@settings(max_examples=10, deadline=None)
def test_what_rules_add_is_bounded(made: Terms) -> None:
    rule = Rule("growing", "same", growing, lambda _: [])
    equalities, _ = rewrites_of(made.values, [rule] * 40)
    assert len(equalities) <= len(made.values) + 2000 + 2
    for other in rewritings(made.values, [rule]):
        assert have_same_elements(other.results, made.values)


def exponential_of_negated(x: Value) -> Value:
    return pointwise(exponential, pointwise(negated, x))


def rule_of(name: str, *pairs: tuple[Value, Value]) -> Rule:
    """A rule that knows some equal values once they are there."""
    return Rule(name, "same", lambda known: [Match((p,)) for p in pairs if p[0] in known], lambda _: [])


def names(other: Rewriting) -> str:
    return " ".join(r.rule.name for r in other.rewrites)


def test_rules_are_tried_together_all_but_one_and_alone() -> None:
    leaves = [leaf(name, (2,)) for name in "abc"]
    results = [pointwise(exponential, each) for each in leaves]
    rules = [rule_of(each.name, (v, exponential_of_negated(each))) for v, each in zip(results, leaves, strict=True)]
    assert [names(a) for a in rewritings(results, rules)] == ["a b c", "b c", "a c", "a b", "a", "b", "c"]
    # Of two rules one is all but the other.
    assert [names(a) for a in rewritings(results, rules[:2])] == ["a b", "b", "a"]


def test_a_rewrite_that_undoes_another_is_not_taken() -> None:
    """exp(a) → -(-a) → exp(-b) → exp(a), by rules that say so."""
    a, b = leaf("a", (2,)), leaf("b", (2,))
    written, outer, inner = pointwise(exponential, a), pointwise(negated, pointwise(negated, a)), pointwise(negated, b)
    there, back = rule_of("there", (written, outer)), rule_of("back", (inner, a))
    around = rule_of("around", (outer, pointwise(exponential, inner)))
    assert [names(a) for a in rewritings([written], [there, around])] == ["around", "there"]
    assert [names(a) for a in rewritings([written], [there, around, back])] == ["there"]


def test_equal_alternatives_are_one() -> None:
    a = leaf("a", (2,))
    written = pointwise(exponential, a)
    same = [rule_of(name, (written, exponential_of_negated(a))) for name in "ab"]
    assert len(rewritings([written], same)) == 1
