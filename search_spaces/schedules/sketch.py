"""Sketches: an anchor of a workload and the decisions that apply to it, with their rules for each backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import Knob, KnobValue, Values
from search_spaces.schedules.rules import Decisions, Rule, in_order
from search_spaces.schedules.translation import completed
from search_spaces.schedules.words import USUAL_WORDS, plainly, word_rules


@dataclass(frozen=True)
class Sketch:
    """A family of schedules: an anchor of a workload and the decisions that apply to it on a target.

    `legality_knobs` names the knobs that legality may depend on; all combinations of the others are equally legal.
    `rules` restrict values of knobs together (divisibility, combinations), beyond the limits of every target;
    `decided_first` names knobs in the order of their decision, if that is not their own. `resource_knobs`: the legality
    knobs that determine the resources of a program, if not all do. `seeds` are points worth trying first, as the
    literature would choose them by hand. `depth_knob` names the knob that gives way in a start that does not fit: it
    gets the largest value below its own that fits. `remarks`: restrictions of the space for this workload, with
    reasons. `words`: values that backends distinguish; `rules_of` and `words_of`: the same for each backend with fewer.
    `plain`: the simplest values for the same program.
    """

    name: str
    knobs: tuple[Knob, ...]
    lower: Callable[[Values], TileProgram]
    legality_knobs: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    seeds: tuple[Values, ...] = ()
    resource_knobs: tuple[str, ...] | None = None
    remarks: tuple[str, ...] = ()
    depth_knob: str = ""
    decided_first: tuple[str, ...] = ()
    rules_of: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    words: frozenset[str] = USUAL_WORDS
    words_of: Mapping[str, frozenset[str]] = field(default_factory=dict)
    plain: Callable[[Values], Values] | None = None

    @cached_property
    def _decided(self) -> Mapping[str, Decisions]:
        order, own = in_order(self.knobs, self.decided_first), (*word_rules(self.words, self.knobs), *self.rules)
        return {name: Decisions(order, rules) for name, rules in {"": own, **self.rules_of}.items()}

    def _distinguished(self, backend: str) -> frozenset[str]:
        return self.words_of.get(backend, self.words)

    def plainly(self, values: Values, backend: str) -> Values:
        """The values in the words of a backend; values that make no difference become the simplest equal ones."""
        said = plainly(values, self._distinguished(backend))
        return self.plain(said) if self.plain else said

    def distinguishes(self, values: Values, backend: str) -> bool:
        """True if a backend makes a kernel of these values, and not of plainer ones."""
        return plainly(values, self._distinguished(backend)) == values

    def decisions(self, backend: str) -> Decisions:
        """The knobs in the order in which they are decided, and their rules for a backend."""
        return self._decided.get(backend) or self._decided[""]

    def why_illegal(self, values: Values, backend: str = "") -> str | None:
        """The first rule that the values break: of a backend, or of the one that can make most."""
        return self.decisions(backend).why_broken(values)

    def beside(self, lesser: Mapping[str, Sketch | None]) -> Sketch:
        """The sketch for several backends, some of which can make less: those by name, each with its own sketch.

        A backend without one makes no kernel of it.
        """
        rules = {
            name: (*_only(name, sketch.knobs, self.knobs), *word_rules(sketch.words, sketch.knobs), *sketch.rules)
            if sketch
            else (_none(name, self),)
            for name, sketch in lesser.items()
        }
        words = {name: sketch.words for name, sketch in lesser.items() if sketch}
        return replace(self, rules_of=rules, words_of=words)

    def completed(self, values: Values) -> Values:
        """The values of a record, in the order of the knobs; knobs newer than the record get their former values."""
        return completed(values, self.knobs)

    def depths(self, start: Values) -> list[int]:
        """The values that the depth knob of a start may have: up to its own, largest first."""
        values = [v for k in self.knobs if k.name == self.depth_knob for v in k.values if isinstance(v, int)]
        return sorted((v for v in values if v <= start.integer(self.depth_knob)), reverse=True)

    def has_start(self, start: Values) -> bool:
        """True if the knobs have the values of a start, or a depth below its own."""
        fixed = (k for k in self.knobs if k.name != self.depth_knob)
        return all(start[k.name] in k.values for k in fixed) and bool(self.depths(start) or not self.depth_knob)


def _none(backend: str, sketch: Sketch) -> Rule:
    """A rule that no schedule of a sketch keeps."""
    why = f"backend {backend!r} has no kernels of {sketch.name}"
    return Rule((sketch.knobs[0].name,), lambda values: why)


def _only(backend: str, few: Sequence[Knob], many: Sequence[Knob]) -> Iterator[Rule]:
    """Rules that restrict knobs to the values of `few`, for a backend that has no others."""

    def rule(name: str, allowed: tuple[KnobValue, ...]) -> Rule:
        expected = f"backend {backend!r} has no kernels of it; expected one of {list(allowed)[:20]}"
        return Rule((name,), lambda values: None if values[name] in allowed else f"{name}={values[name]}: {expected}")

    values = {k.name: k.values for k in few}
    yield from (rule(k.name, values[k.name]) for k in many if values[k.name] != k.values)
