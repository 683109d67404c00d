"""Rewritings of a function: its results computed in other ways, by rewrites that go together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from autosched.tracing.fusion.regions import below
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.preparing import with_prepared
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.rewriting.terms import Operations, numbered, with_operands
from autosched.tracing.rewriting.texts import formulas
from autosched.tracing.translation.translate import DefectWarning
from autosched.tracing.values.values import Leaf, Value, View

# Rounds in which rules may use each other's results, and terms that they may add to those of the function.
_ROUNDS = 3
_MOST_NEW = 2000


@dataclass(frozen=True, eq=False)
class Rewrite:
    """A rule applied at one place; `needs`: those that made values which it is about; `made`: its own new terms."""

    rule: Rule
    match: Match
    needs: tuple[Rewrite, ...] = ()
    made: tuple[Value, ...] = ()

    @cached_property
    def all(self) -> frozenset[Rewrite]:
        """Itself, and all that it needs."""
        return frozenset([self]).union(*(r.all for r in self.needs))

    @property
    def lines(self) -> tuple[str, ...]:
        """The user's source lines of what it changes, as far as they are known."""
        own = dict.fromkeys(before.line for before, _ in self.match.pairs if before.line)
        return tuple(own or dict.fromkeys(line for each in self.needs for line in each.lines))

    def __str__(self) -> str:
        """`norm into product (model.py:7: y = norm(x) @ w): before → after` of its first value."""
        (before, after), *_ = self.match.pairs
        first, *others = self.lines or [f"{list(before.shape)} {before.dtype}"]
        place = f"{first}{f', and {len(others)} more' * bool(others)}"
        return f"{self.rule.name} ({place}): {formulas(before, after)}"


@dataclass(frozen=True, eq=False)
class Rewriting:
    """Results computed with these rewrites, in the order of the given ones; each has made something that is left."""

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
                needs = dict.fromkeys(makers[v] for v in about if v in makers)
                rewrite = Rewrite(rule, match, tuple(needs), tuple(new))
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


def with_rewrites(results: Sequence[Value], equalities: Equalities, rewrites: Sequence[Rewrite]) -> Rewriting | None:
    """The results with these rewrites, less those that need what they replace; None where that changes nothing."""
    replaced: dict[int, Value] = {}
    used: dict[int, Rewrite] = {}
    makers = {value: rewrite for rewrite in rewrites for value in rewrite.made}
    for rewrite in rewrites:
        for before, after in rewrite.match.pairs:
            number, oldest = equalities.number(before), equalities.forms(before)[0]
            # What lies in memory already is read there, and no rewrite leads back. Matches of later rounds are made of
            # what earlier ones made.
            if not isinstance(oldest, Leaf) and not equalities.are_one_term(after, oldest):
                replaced[number], used[number] = after, rewrite
    made = _made(results, equalities, replaced)
    while isinstance(made, _Cycle):
        del replaced[made.number], used[made.number]
        made = _made(results, equalities, replaced)
    found = tuple(made[equalities.number(r)] for r in results)
    if all(a is b for a, b in zip(found, results, strict=True)):
        return None
    left = {used[n] if n in used else makers.get(equalities.oldest(n)) for n in made}
    return Rewriting(found, tuple(rewrite for rewrite in rewrites if rewrite in left))


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


def rewritings(
    results: Sequence[Value],
    rules: Sequence[Rule],
    why_refused: Callable[[Rewrite], str | None] = lambda _: None,
    laid_out: bool = False,
) -> list[Rewriting]:
    """Other ways to compute the results: with all rewrites, with those of all rules but one, and of each rule alone.

    `why_refused`: of a rewrite that is not to be used, nor what is made of it. `laid_out`: the results are where
    PyTorch's are, and share memory with others only where those do.
    """
    equalities, every = rewrites_of(results, rules, {_memory_of(r) for r in results} if laid_out else ())
    refused = {r for r in every if why_refused(r) is not None}
    found = [r for r in every if not r.all & refused]
    given = set(below(results))
    known: dict[Hashable, int] = {}
    written = numbered(results, known)
    different: dict[tuple[int, ...], Rewriting] = {}
    for made in (with_rewrites(results, equalities, each) for each in _together(found)):
        if made is not None and (numbers := numbered(made.results, known)) != written:
            different.setdefault(numbers, made)
    return [replace(a, results=with_prepared(a.results, given)) for a in different.values()]


def _together(found: Sequence[Rewrite]) -> list[tuple[Rewrite, ...]]:
    """The sets of rewrites that are tried, each once."""
    rules = frozenset(r.rule for r in found)
    ordered = [*dict.fromkeys(r.rule for r in found)]
    allowed = [rules, *(rules - {rule} for rule in ordered), *(frozenset({rule}) for rule in ordered)]
    sets = [tuple(r for r in found if {n.rule for n in r.all} <= some) for some in allowed]
    return [each for each in dict.fromkeys(sets) if each]
