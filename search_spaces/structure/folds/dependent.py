"""Folds that share a loop over their points, and the rules for folds that depend on each other.

A fold whose summand reads the result of another one waits for it, and then needs a second loop over the points; or it
shares the loop, and is relative to the other's result so far. Whenever that changes from `old` to `new`, its own
partial result is moved:

    summand                                      is moved
    y * exp(c * (x - top)), top the max of x     partial * exp(c * (old - new))
    (x - mean) * (z - mean of z)                 partial + the excess of such products about other points
    where(x == top, position, beyond)            partial where old == new, else beyond

(see `moving`). Parts of the points that were folded apart are joined by the same rule: each is moved to the result of
all of them. A fold that may be relative to any near value, as the second kind may, is moved only there: while points
are added, its centre stays that of the first ones. (Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018, algorithm 3; Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983, sections 2
and 3.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from search_spaces.structure.folds.moving import (
    Centre,
    Centred,
    Exponent,
    Member,
    Scaled,
    Selected,
    reads,
    rule_of,
    scale_of,
)
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Access, Expression, Literal
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.walking import accesses, rewritten
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Reduction, Stage

# Start of a maximum that others are relative to: the lowest float32, not -inf, so that minus itself it is 0.
LOWEST = -3.4028234663852886e38


@dataclass(frozen=True)
class Fold:
    """A fold of a loop: that of its stage, from `start` on, or if that is None from the neutral value.

    `moved`: its partial result moved, if it is relative to others; their former values are read by the names that
    `before` gives them. `held`: that is done only where parts are joined, or all points are folded. `counts`: it is the
    number of the points.
    """

    stage: Stage
    start: float | None = None
    moved: Expression | None = None
    held: bool = False
    counts: bool = False

    @property
    def name(self) -> str:
        return self.stage.name


@dataclass(frozen=True)
class Relative:
    """A value per row of the results of folds, which others are relative to; it is read by its name.

    `held`: its replacement while points are added, computed from the former values.
    """

    name: str
    value: Expression
    held: Expression | None = None


@dataclass(frozen=True)
class Group:
    """The folds of one loop; those that others are relative to come first.

    `completed`: factors of results once all points are folded, by name.
    """

    folds: tuple[Fold, ...]
    relatives: tuple[Relative, ...] = ()
    completed: tuple[tuple[str, Expression], ...] = ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(f.stage for f in self.folds)

    @cached_property
    def leaders(self) -> frozenset[str]:
        """The folds that others are relative to, or are moved by, while points are added: these change last."""
        found = {a.tensor for r in self.relatives for a in accesses(r.held or r.value)}
        for fold in self.folds:
            read = {a.tensor for a in accesses(fold.moved)} if fold.moved and not fold.held else set()
            found |= {f.name for f in self.folds if f is not fold and read & {f.name, before(f.name)}}
        return frozenset(found)


def before(name: str) -> str:
    """Name of the former value of a fold, or of a relative, before the points that are being added."""
    return f"{name} before"


def was(expression: Expression) -> Expression:
    """The expression of former values."""
    return rewritten(expression, lambda e: Access(before(e.tensor), e.index) if isinstance(e, Access) else None)


def groups(
    folds: Sequence[Stage],
    bodies: Mapping[str, Expression],
    results: Sequence[Expression],
    online: bool,
    lowest: float = LOWEST,
) -> list[Group]:
    """The folds in order, grouped into loops; `online`: dependent ones share a loop if there is a rule for it.

    `bodies`: the summands, with everything inlined but folds; `results`: the stored values, likewise. `lowest`: start
    of a maximum that others are relative to.
    """
    walks: list[dict[str, Member]] = [{}]
    for stage in folds:
        body, walk = bodies[stage.name], walks[-1]
        shares = online and all(_over(m.stage) == _over(stage) for m in walk.values())
        rule = rule_of(stage, body, walk) if shares else None
        if rule is None and reads(body, walk):
            walks.append({})
        walks[-1][stage.name] = Member(stage, body, rule)
    names = Names({s.name for s in folds} | {a.tensor for e in (*bodies.values(), *results) for a in accesses(e)})
    return [_Build(walk, (*bodies.items(),), results, names, lowest).group() for walk in walks if walk]


@dataclass
class _Build:
    """Builds the group of a loop."""

    walk: Mapping[str, Member]
    bodies: Sequence[tuple[str, Expression]]
    results: Sequence[Expression]
    names: Names
    lowest: float = LOWEST
    relatives: list[Relative] = field(default_factory=list)
    completed: list[tuple[str, Expression]] = field(default_factory=list)
    counts: list[Fold] = field(default_factory=list)
    others: dict[str, Fold] = field(default_factory=dict)

    def group(self) -> Group:
        hidden = {m.stage.name for m in self.walk.values() if isinstance(m.rule, Scaled)}
        shown = [e for name, e in self.bodies if name not in hidden] + [*self.results]
        for name, member in self.walk.items():
            match member.rule:
                case Scaled():
                    self._scaled(member, member.rule, shown)
                case Centred():
                    self._centred(member, member.rule)
                case Selected():
                    self._selected(member, member.rule)
                case None:
                    self.others[name] = _fold(member.stage, member.body)
        return Group((*self.counts, *self.others.values()), tuple(self.relatives), tuple(self.completed))

    # Sums of exponentials

    def _scaled(self, member: Member, rule: Scaled, shown: Sequence[Expression]) -> None:
        total = Access(member.stage.name, ())
        body, moved = member.body, was(total)
        for exponent, coefficient in rule.scale.items():
            relative = self._finite(exponent, shown)
            body = _replaced(body, exponent.relative, relative)
            moved = ex.mul(moved, _power(exponent.operator, coefficient, was(relative), relative))
            if relative != exponent.relative:
                given = next(r.value for r in self.relatives if r.name == relative.tensor)
                last = _power(exponent.operator, coefficient, given, exponent.relative)
                self.completed.append((member.stage.name, last))
        self.others[member.stage.name] = _fold(member.stage, body, moved=moved)

    def _finite(self, exponent: Exponent, shown: Sequence[Expression]) -> Access:
        """The value that an exponential is relative to while points are folded: the extreme, but a finite number.

        The fold of the extreme may itself start from one if nothing reveals it: if all its readers are quotients of
        values relative to it, which for a row of -inf are NaN anyhow. Otherwise it stays, and sums are moved to it in
        the end.
        """
        leader = self.walk[exponent.leader]
        start = self.lowest if leader.operator == "max" else -self.lowest
        if isinstance(exponent.relative, Access):
            if self._cancels(shown):
                self.others[exponent.leader] = _fold(leader.stage, leader.body, start)
                return exponent.relative
            # From an infinity at the other end to itself, sums are moved by NaN, as they should be.
            bounds = [start]
        else:
            bounds = [start, -start]
        value: Expression = Access(exponent.leader, ())
        for bound in bounds:
            value = ex.call("maximum" if bound < 0 else "minimum", value, Literal(bound))
        return self._relative(f"{exponent.leader}_finite", value)

    def _cancels(self, shown: Sequence[Expression]) -> bool:
        scales = {name: m.rule.scale for name, m in self.walk.items() if isinstance(m.rule, Scaled)}
        return all(scale_of(e, self.walk, scales) == {} for e in shown)

    # Products about means

    def _centred(self, member: Member, rule: Centred) -> None:
        (first, a, s), (second, b, t) = (self._about(member, centre) for centre in (rule.first, rule.second))
        count = self._count(member)
        more = ex.add(ex.mul(t, a), ex.mul(s, ex.add(b, ex.mul(was(count), t))))
        body = _replaced(_replaced(member.body, rule.first.mean, first), rule.second.mean, second)
        name = member.stage.name
        self.others[name] = _fold(member.stage, body, moved=ex.add(was(Access(name, ())), more), held=True)

    def _about(self, member: Member, centre: Centre) -> tuple[Access, Expression, Expression]:
        """The name of the mean; the sum of the values about it, as it was; and the distance by which it moved."""
        count, total = self._count(member), Access(centre.leader, ())

        def first(mean: Access) -> Expression:
            none_before = ex.call("eq", was(count), Literal(0.0))
            return ex.call("where", none_before, ex.mul(total, ex.div(Literal(1.0), count)), was(mean))

        # Divided, not multiplied by 1 / count: a product could be fused with a subtraction, and differ.
        value = ex.div(total, ex.call("maximum", count, Literal(1.0)))
        mean = self._relative(f"{centre.leader}_mean", value, first)
        step = ex.sub(was(mean), mean)
        body = _replaced(ex.sub(centre.value, centre.mean), centre.mean, mean)
        known = next((f.name for f in self.others.values() if f.stage.expression == body), None)
        name = known or self.names.fresh(f"{centre.leader}_away")
        away = Access(name, ())
        if known is None:
            moved = ex.add(was(away), ex.mul(was(count), step))
            self.others[name] = Fold(_beside(member.stage, name, body), moved=moved, held=True)
        return mean, was(away), step

    def _count(self, member: Member) -> Access:
        if not self.counts:
            one = Literal(1.0)
            self.counts.append(Fold(_beside(member.stage, self.names.fresh("count"), one), counts=True))
        return Access(self.counts[0].stage.name, ())

    # Places of an extreme

    def _selected(self, member: Member, rule: Selected) -> None:
        old, new = was(rule.extreme), rule.extreme
        stays = ex.call("eq", old, new)
        partial: Expression = was(Access(member.stage.name, ()))
        if is_integral(member.body):
            partial = ex.call("to_integer", partial)
        if not is_integral(rule.extreme):
            # Once NaN, it stays so, and equals nothing.
            stays = ex.call("maximum", stays, ex.call("eq", ex.call("eq", old, old), Literal(0.0)))
        moved = ex.call("where", stays, partial, rule.beyond)
        self.others[member.stage.name] = _fold(member.stage, member.body, moved=moved)

    def _relative(self, wanted: str, value: Expression, held: Callable[[Access], Expression] | None = None) -> Access:
        known = next((r.name for r in self.relatives if r.value == value), None)
        name = Access(known or self.names.fresh(wanted), ())
        if known is None:
            self.relatives.append(Relative(name.tensor, value, held(name) if held else None))
        return name


def _over(stage: Stage) -> set[Axis]:
    assert stage.reduction is not None
    return {*stage.reduction.axes}


def _fold(
    stage: Stage, body: Expression, start: float | None = None, moved: Expression | None = None, held: bool = False
) -> Fold:
    return Fold(replace(stage, expression=body), start, moved, held)


def _beside(stage: Stage, name: str, body: Expression) -> Stage:
    """A sum over the same points."""
    assert stage.reduction is not None
    return Stage(name, stage.axes, body, Reduction("sum", stage.reduction.axes))


def _power(operator: str, coefficient: float, old: Expression, new: Expression) -> Expression:
    step = ex.sub(old, new)
    return ex.call(operator, step if coefficient == 1.0 else ex.mul(step, Literal(coefficient)))


def _replaced(expression: Expression, part: Expression, by: Expression) -> Expression:
    return rewritten(expression, lambda e: by if e == part else None)
