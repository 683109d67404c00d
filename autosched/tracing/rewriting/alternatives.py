"""Alternatives of a function: its results computed in other ways, by rewrites that go together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from autosched.tracing.fusion.regions import below
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.preparing import with_prepared
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.rewriting.terms import Operations, with_operands
from autosched.tracing.translation.translate import DefectWarning
from autosched.tracing.values.values import Leaf, Value, View

# Rounds in which rules may use each other's results, and terms that they may add to those of the function.
_ROUNDS = 3
_MOST_NEW = 2000


@dataclass(frozen=True, eq=False)
class Rewrite:
    """A rule applied at one place; `needs`: those that made values which it is about."""

    rule: Rule
    match: Match
    needs: tuple[Rewrite, ...] = ()

    @cached_property
    def all(self) -> frozenset[Rewrite]:
        """Itself, and all that it needs."""
        return frozenset([self]).union(*(r.all for r in self.needs))

    def __str__(self) -> str:
        changed = ", ".join(before.name for before, _ in self.match.pairs)
        return f"{self.rule.name}: {changed}"


@dataclass(frozen=True, eq=False)
class Alternative:
    """Results computed with these rewrites, in the order of the given ones."""

    results: tuple[Value, ...]
    rewrites: tuple[Rewrite, ...]


def rewrites_of(
    results: Sequence[Value], rules: Sequence[Rule], apart: Container[Value] = ()
) -> tuple[Equalities, list[Rewrite]]:
    """The places where rules apply, in rounds: those of a later one may be within what an earlier one has made.

    `apart`: values that have memory of their own.
    """
    equalities = Equalities(results, _MOST_NEW, apart)
    found: list[Rewrite] = []
    makers: dict[Value, Rewrite] = {}
    for _ in range(_ROUNDS):
        matches = [(rule, m) for rule in rules for m in _matches(rule, equalities)]
        before = len(found)
        for rule, match in matches:
            if equalities.full:
                break
            ends = [v for pair in match.pairs for v in pair]
            new = equalities.add(ends)
            merged = [equalities.merge(*pair) for pair in match.pairs]
            if any(merged):
                about = [*ends, *(o for v in new for o in v.operands)]
                rewrite = Rewrite(rule, match, tuple(dict.fromkeys(makers[v] for v in about if v in makers)))
                makers |= dict.fromkeys(new, rewrite)
                found.append(rewrite)
        equalities.rebuild()
        if len(found) == before:
            break
    return equalities, found


def _matches(rule: Rule, equalities: Equalities) -> list[Match]:
    """The places of a rule; none where it fails, which is a defect, and no reason to leave a caller without kernels."""
    try:
        return list(rule.matches(equalities))
    except Exception as error:
        why = f"the rule {rule.name} failed with {type(error).__name__}: {error}"
        warnings.warn(f"{why}; this is a defect of autosched", DefectWarning, stacklevel=2)
        return []


def alternative(results: Sequence[Value], equalities: Equalities, rewrites: Sequence[Rewrite]) -> Alternative | None:
    """The results with these rewrites, less those that need what they replace; None where that changes nothing."""
    replaced: dict[int, Value] = {}
    used: dict[int, Rewrite] = {}
    for rewrite in rewrites:
        for before, after in rewrite.match.pairs:
            number = equalities.number(before)
            # What lies in memory already is read there. Matches of later rounds are made of what earlier ones made.
            if not isinstance(equalities.forms(before)[0], Leaf):
                replaced[number], used[number] = after, rewrite
    made = _made(results, equalities, replaced)
    while isinstance(made, _Cycle):
        del replaced[made.number], used[made.number]
        made = _made(results, equalities, replaced)
    found = tuple(made[equalities.number(r)] for r in results)
    if all(a is b for a, b in zip(found, results, strict=True)):
        return None
    reached = {r for n in made if n in used for r in used[n].all}
    return Alternative(found, tuple(rewrite for rewrite in rewrites if rewrite in reached))


@dataclass(frozen=True)
class _Cycle:
    """The number of a class that was replaced by a value that needs itself."""

    number: int


def _made(results: Sequence[Value], equalities: Equalities, replaced: Mapping[int, Value]) -> dict[int, Value] | _Cycle:
    """A value for each class that the results need, with the values of some classes `replaced`.

    The oldest forms need older ones only, so that something is replaced in every cycle.
    """
    made: dict[int, Value] = {}
    operations = Operations()
    begun: dict[int, None] = {}
    stack = [*results]
    while stack:
        value = stack[-1]
        number = equalities.number(value)
        oldest = equalities.forms(value)[0]
        form = replaced.get(number, oldest)
        if number in made:
            stack.pop()
        elif number in begun:
            found = with_operands(form, lambda o: made[equalities.number(o)], operations)
            made[number] = found if found is oldest else _in_place_of(oldest, found)
            del begun[number]
            stack.pop()
        else:
            begun[number] = None
            waiting = [o for o in form.operands if equalities.number(o) not in made]
            if any(equalities.number(o) in begun for o in waiting):
                return _Cycle(next(n for n in reversed(begun) if n in replaced))
            stack += waiting
    return made


def _in_place_of(original: Value, made: Value) -> Value:
    """A value with the name, line and memory layout of the one that it replaces."""
    if isinstance(made, Leaf):
        return made
    return replace(made, name=original.name, line=original.line, strides=original.strides)


def _memory_of(result: Value) -> Value:
    return _memory_of(result.argument) if isinstance(result, View) else result


def alternatives(
    results: Sequence[Value],
    rules: Sequence[Rule],
    why_refused: Callable[[Rewrite], str | None] = lambda _: None,
    laid_out: bool = False,
    most: int = 4,
) -> list[Alternative]:
    """At most so many other ways to compute the results: with all rewrites, and with those of each rule alone. Rewrites
    that take apart what others merge are in one more, with all others.

    `why_refused`: of a rewrite that is not to be used, nor what is made of it. `laid_out`: the results are where
    PyTorch's are, and share memory with others only where those do.
    """
    equalities, every = rewrites_of(results, rules, {_memory_of(r) for r in results} if laid_out else ())
    refused = {r for r in every if why_refused(r) is not None}
    found = [r for r in every if not r.all & refused]
    given = set(below(results))
    merging = [r for r in found if not any(n.rule.divides for n in r.all)]
    rules_used = dict.fromkeys(r.rule for r in merging)
    alone = [[r for r in merging if {n.rule for n in r.all} == {rule}] for rule in rules_used]
    sets = [*[merging, *(alone if len(alone) > 1 else [])][:most], found]
    made = [a for each in sets if each and (a := alternative(results, equalities, each)) is not None]
    return [replace(a, results=with_prepared(a.results, given)) for a in _different(results, made)]


def _different(results: Sequence[Value], others: Sequence[Alternative]) -> list[Alternative]:
    """Those with other terms than the results and those before: what one rule merges, another may split again."""
    terms = Equalities([*results, *(r for other in others for r in other.results)], 0)
    found: dict[tuple[int, ...], Alternative] = {}
    for other in others:
        found.setdefault(tuple(map(terms.number, other.results)), other)
    found.pop(tuple(map(terms.number, results)), None)
    return list(found.values())
