"""Checks of rules of rewriting: each pair of a match is equal over the integers modulo a prime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from autosched.tracing.fusion.regions import below
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.evaluation import evaluated
from autosched.tracing.rewriting.rewritings import rewritings
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.values.values import Leaf, Value
from residues import PRIME, Residues, are_equal, pairs
from search_spaces.workloads.dtypes import is_integer

# More than any rule adds to one of its examples.
_MOST = 1000


def residues_of(values: Sequence[Value], seed: int) -> dict[Value, Tensor]:
    """Random elements of the leaves: indices where these are integers."""
    generator = torch.Generator().manual_seed(seed)
    made: dict[Value, Tensor] = {}
    for leaf in (v for v in below(values) if isinstance(v, Leaf)):
        whole = is_integer(leaf.dtype) or leaf.dtype == "bool"
        drawn = torch.randint(2 if whole else PRIME, leaf.shape, generator=generator)
        made[leaf] = drawn if whole else pairs(drawn)
    return made


def matches(rule: Rule, results: Sequence[Value]) -> list[Match]:
    """The places where a rule applies to a function as it was written."""
    return list(rule.matches(Equalities(results, _MOST)))


def why_wrong(rule: Rule, results: Sequence[Value], seed: int = 0) -> str | None:
    """Reason that a rule is wrong for a function: a pair, or a result of a rewriting, with other elements."""
    residues = Residues(rounded=rule.exactness == "same")
    given = residues_of(results, seed)
    for before, after in (pair for match in matches(rule, results) for pair in match.pairs):
        if unknown := [v.name for v in below([after]) if isinstance(v, Leaf) and v not in given]:
            return f"{before.name} is said to be computed from {', '.join(unknown)}, which the function does not have"
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            return f"{before.name} is {before.shape} {before.dtype}, and {after.name} {after.shape} {after.dtype}"
        if not are_equal(*evaluated([before, after], given, residues)):
            return f"{before.name} and {after.name} differ"
    return next(_why_alternatives_differ([rule], results, given, residues), None)


def _why_alternatives_differ(
    rules: Sequence[Rule], results: Sequence[Value], given: dict[Value, Tensor], residues: Residues
) -> Iterator[str]:
    right = evaluated(results, given, residues)
    for other in rewritings(results, rules):
        found = evaluated(other.results, given, residues)
        for result, a, b in zip(results, right, found, strict=True):
            if not are_equal(a, b):
                yield f"result {result.name} differs with {', '.join(map(str, other.rewrites))}"


def why_together_wrong(rules: Sequence[Rule], results: Sequence[Value], seed: int = 0) -> str | None:
    """The same of several rules, whose rewrites go together."""
    residues = Residues(rounded=all(rule.exactness == "same" for rule in rules))
    return next(_why_alternatives_differ(rules, results, residues_of(results, seed), residues), None)
