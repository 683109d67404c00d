"""The batches of a function: terms that are equal but for operands that can be stacked, whole chains together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from autosched.tracing.operators.view_translation import piece
from autosched.tracing.rewriting.batching.batched import Operand, batched
from autosched.tracing.rewriting.batching.stacks import place_of, stacked_constants, stacked_slices, step_of
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.terms import key_of, takes_other_operands
from autosched.tracing.values.values import Product, Reduced, Value, View


@dataclass(frozen=True, eq=False)
class Batch:
    """Terms as one `value`, in whose first dimension they lie in order.

    `below`: the batches that it is computed from. `pays`: it has sums that would be kernels of their own, and are not
    products of one operand and constants, which may be one wide product.
    """

    value: Value
    terms: tuple[Value, ...]
    below: tuple[Batch, ...] = ()
    pays: bool = False


@dataclass(frozen=True, eq=False)
class _Stacked:
    """An operand of several terms. `batch`: the one that it is a part of; `constant`: it is stacked constants."""

    operand: Operand
    batch: Batch | None = None
    constant: bool = False


@dataclass(eq=False)
class Batches:
    """`of`: the batches of each class, the largest first; `constants`: the classes of constants."""

    equalities: Equalities
    constants: set[int] = field(default_factory=set)
    of: dict[int, list[Batch]] = field(default_factory=lambda: defaultdict(list))

    @staticmethod
    def within(equalities: Equalities) -> Batches:
        """All batches of the oldest terms, those of operands before those of what is computed from them."""
        found = Batches(equalities)
        for terms in found._levels():
            found._add_level(terms)
        return found

    def _levels(self) -> list[list[Value]]:
        """The terms that calls compute, by the length of the longest chain from a leaf."""
        number = self.equalities.number
        depths: dict[int, int] = {}
        levels: dict[int, list[Value]] = defaultdict(list)
        for value in self.equalities.terms():
            if self.equalities.forms(value)[0] is not value:
                continue
            operands = {number(o) for o in value.operands}
            known = takes_other_operands(value) and bool(operands)
            if value.constant or (known and operands <= self.constants):
                self.constants.add(number(value))
                continue
            depth = depths[number(value)] = 1 + max((depths.get(n, 0) for n in operands), default=0)
            if known and value.readable and value.elements:
                levels[depth].append(value)
        return [terms for _, terms in sorted(levels.items())]

    def _add_level(self, terms: Sequence[Value]) -> None:
        groups: dict[Hashable, list[Value]] = defaultdict(list)
        for term in terms:
            for option in dict.fromkeys(key_of(term, of) for of in (self._in_batch, self._in_slices)):
                groups[option].append(term)
        made = [batch for group in {tuple(g): None for g in groups.values()} for batch in self._made(group)]
        for batch in sorted(made, key=lambda b: -len(b.terms)):
            for term in batch.terms:
                self.of[self.equalities.number(term)].append(batch)

    def _in_batch(self, operand: Value) -> Hashable:
        """Equal for operands that may be stacked, as terms of one batch where that is possible."""
        own = self.of.get(self.equalities.number(operand))
        return id(own[0]) if own else self._in_slices(operand)

    def _in_slices(self, operand: Value) -> Hashable:
        """Equal for operands that may be stacked, as slices of one tensor where that is possible."""
        number = self.equalities.number(operand)
        if number in self.constants:
            return "constant", operand.shape, operand.dtype
        if (view := _slice(self.equalities, operand)) is not None:
            return _slice_key(self.equalities, view)
        own = self.of.get(number)
        return id(own[0]) if own else number

    def _made(self, terms: Sequence[Value]) -> Iterator[Batch]:
        """The terms, which are equal but for their operands, as one batch, or as several where they must be."""
        if len(terms) < 2:
            return
        if (known := _slices_as_one(self.equalities, terms)) is not None:
            yield Batch(known, tuple(terms))
            return
        operands: list[_Stacked] = []
        for those in zip(*(t.operands for t in terms), strict=True):
            found = self._stacked(those)
            if found is None:
                for part in self._parts(terms, those):
                    yield from self._made(part)
                return
            operands.append(found)
        if not any(o.operand.stacked for o in operands):
            # Equal terms of classes that are kept apart.
            return
        value = batched(terms[0], len(terms), [o.operand for o in operands])
        if value is not None:
            below = tuple(o.batch for o in operands if o.batch is not None)
            yield Batch(value, tuple(terms), below, any(b.pays for b in below) or _pays(value, operands))

    def _parts(self, terms: Sequence[Value], operands: Sequence[Value]) -> list[list[Value]]:
        """The terms by an operand of each that cannot be stacked; none where all are different."""
        parts: dict[int, list[Value]] = defaultdict(list)
        for term, operand in zip(terms, operands, strict=True):
            parts[self.equalities.number(operand)].append(term)
        return [*parts.values()] if len(parts) < len(terms) else []

    def stacked(self, values: Sequence[Value]) -> Value | None:
        """Several values as slices of one tensor, or terms of one batch, stacked; None for others."""
        numbers = [self.equalities.number(v) for v in values]
        found = self._stacked(values) if not self.constants.issuperset(numbers) else None
        return found.operand.value if found is not None and found.operand.stacked else None

    def _stacked(self, operands: Sequence[Value]) -> _Stacked | None:
        """The operands of several terms as one; None where they cannot be stacked."""
        numbers = [self.equalities.number(o) for o in operands]
        different = len({*numbers})
        if different == 1:
            return _Stacked(Operand(operands[0], stacked=False))
        if self.constants.issuperset(numbers):
            whole = stacked_constants(operands) if different == len(numbers) else None
            return None if whole is None else _Stacked(Operand(whole, stacked=True), constant=True)
        for batch in self.of.get(numbers[0], ()):
            if (part := self._part(batch, numbers)) is not None:
                return _Stacked(Operand(part, stacked=True), batch)
        slices = _slices_as_one(self.equalities, operands)
        return None if slices is None else _Stacked(Operand(slices, stacked=True))

    def _part(self, batch: Batch, numbers: Sequence[int]) -> Value | None:
        """Terms of a batch, given by their classes, stacked; None where they do not lie at equal distances in it."""
        known = {self.equalities.number(term): place for place, term in enumerate(batch.terms)}
        places = [known[n] for n in numbers if n in known]
        step = step_of(places) if len(places) == len(numbers) else None
        return None if step is None else piece(batch.value, 0, places[0], len(places), step)


def _pays(value: Value, operands: Sequence[_Stacked]) -> bool:
    if isinstance(value, Product):
        return all(o.operand.stacked for o in operands) or not any(o.constant for o in operands)
    return isinstance(value, Reduced)


def _slices_as_one(equalities: Equalities, values: Sequence[Value]) -> Value | None:
    """Slices of one tensor at equal distances, stacked; None for other values."""
    views = [view for v in values if (view := _slice(equalities, v)) is not None]
    if len(views) < len(values) or len({_slice_key(equalities, v) for v in views}) > 1:
        return None
    return stacked_slices(views, views[0].argument)


def _slice(equalities: Equalities, value: Value) -> View | None:
    """The value as a slice of another one."""
    return next((f for f in equalities.forms(value) if isinstance(f, View) and place_of(f) is not None), None)


def _slice_key(equalities: Equalities, view: View) -> Hashable:
    place = place_of(view)
    return view.shape, equalities.number(view.argument), None if place is None else place.kind
