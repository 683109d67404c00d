"""A decision: a knob, its legality, and the effect of its value: a rewrite of the tile program.

    base program of the anchor  → effect of the first decision → … → effect of the last one → what is printed

Sketches are lists of decisions (Ansor's word): `derived` makes one of a base program and the decisions that apply.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from search_spaces.programs.statements import Statement, mapped
from search_spaces.programs.tile_program import Kernel, Launch, TileProgram
from search_spaces.schedules.knobs import Knob, KnobValue, Values
from search_spaces.schedules.rules import Rule
from search_spaces.schedules.sketch import Sketch

# The tile program with a decision applied; all values are given, since one may depend on others.
Effect = Callable[[TileProgram, Values], TileProgram]


@dataclass(frozen=True)
class Decision:
    """`effect`: None where the base program is made with the value, as with the sizes of tiles.

    `bears_on`: the consequence of the value besides speed: the resources that a program needs of the device; only which
    values of others are legal; or nothing. `plain`: the simplest equal spelling of values that make no difference.
    """

    knob: Knob
    effect: Effect | None = None
    rules: tuple[Rule, ...] = ()
    bears_on: Literal["resources", "legality", "nothing"] = "resources"
    plain: Callable[[Values], Mapping[str, KnobValue]] | None = None

    @property
    def name(self) -> str:
        return self.knob.name


@dataclass(frozen=True)
class Anchor:
    """The computation that a kernel is built around: its name, and the program before any decision's effect.

    `rules` constrain decisions of this anchor together; `starts` are values to try first; `remarks`: the parts that the
    space leaves out, and the reasons; `decided_first`: names in the order in which they are decided, if that is not
    the decisions' own.
    """

    name: str
    base: Callable[[Values], TileProgram]
    rules: tuple[Rule, ...] = ()
    starts: tuple[Values, ...] = ()
    remarks: tuple[str, ...] = ()
    decided_first: tuple[str, ...] = ()


def derived(anchor: Anchor, decisions: Iterable[Decision]) -> Sketch:
    """The sketch of an anchor with these decisions, in the order in which their effects are applied."""
    applied = tuple(decisions)
    effects = [d.effect for d in applied if d.effect is not None]

    def lower(values: Values) -> TileProgram:
        program = anchor.base(values)
        for effect in effects:
            program = effect(program, values)
        return program

    def plain(values: Values) -> Values:
        return Values({**values, **{k: v for d in applied if d.plain for k, v in d.plain(values).items()}})

    return Sketch(
        anchor.name,
        tuple(d.knob for d in applied),
        lower,
        tuple(d.name for d in applied if d.bears_on != "nothing"),
        (*anchor.rules, *(rule for d in applied for rule in d.rules)),
        anchor.starts,
        tuple(d.name for d in applied if d.bears_on == "resources"),
        anchor.remarks,
        "stages" if any(d.name == "stages" for d in applied) else "",
        anchor.decided_first,
        plain=plain if any(d.plain for d in applied) else None,
    )


def modulo(decision: Decision, others: Iterable[str], made: Callable[[Values], Hashable]) -> Decision:
    """The decision with one of its values, the first, for each result of `made`, which reads the `others` too."""
    name = decision.name

    def first(values: Values) -> Mapping[str, KnobValue]:
        own = made(values)
        return {name: next(v for v in decision.knob.values if made(Values({**values, name: v})) == own)}

    def why_another(values: Values) -> str | None:
        value = first(values)[name]
        return None if value == values[name] else f"{name}={values[name]} is {name}={value} there"

    rule = Rule((name, *others), why_another)
    bears_on = "legality" if decision.bears_on == "nothing" else decision.bears_on
    return replace(decision, rules=(*decision.rules, rule), bears_on=bears_on, plain=first)


def each_kernel(program: TileProgram, change: Callable[[Kernel], Kernel]) -> TileProgram:
    """The program with every kernel changed except auxiliary ones, which decisions do not concern."""
    kernels = tuple([k if k.auxiliary else change(k) for k in program.kernels])
    return program if all(map(operator.is_, kernels, program.kernels)) else replace(program, kernels=kernels)


def each_launch(program: TileProgram, change: Callable[[Launch], Launch]) -> TileProgram:
    """The same for the launches of these kernels."""

    def changed(kernel: Kernel) -> Kernel:
        launch = change(kernel.launch)
        return kernel if launch == kernel.launch else replace(kernel, launch=launch)

    return each_kernel(program, changed)


def each_body(program: TileProgram, change: Callable[[Statement], Statement]) -> TileProgram:
    """The same for the statements of these kernels, inner ones first."""

    def changed(kernel: Kernel) -> Kernel:
        body = mapped(kernel.body, change)
        return kernel if body is kernel.body else replace(kernel, body=body)

    return each_kernel(program, changed)


def start(decisions: Sequence[Decision], values: Values) -> Values:
    """A starting point: the values given, and the first value of every other decision."""
    return Values({d.name: values.get(d.name, d.knob.values[0]) for d in decisions})
