"""Configurations of a kernel: values of knobs with a rule, or a list of Triton's configurations.

A point of the search space has values that a log can represent: numbers, words, None. Other values of a knob (an
element type, a function of the kernel's language) are written by their name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Protocol

from search_spaces import InputError
from search_spaces.schedules.plain_space import PlainSpace, PlainValue, Point, identity

# Triton's launch options, besides the arguments of a kernel, on any of its backends.
LAUNCH_OPTIONS = frozenset(
    {
        *("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override", "enable_fp_fusion"),
        *("launch_pdl", "launch_cooperative_grid", "waves_per_eu", "matrix_instr_nonkdim", "kpack"),
    }
)
# The backend of their schedules.
BACKEND = "triton"

Legal = Callable[[dict[str, Any]], bool]
Hook = Callable[[dict[str, Any]], object]


class ListedConfig(Protocol):
    """`triton.Config`."""

    kwargs: dict[str, Any]
    pre_hook: Hook | None

    def all_kwargs(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Configuration:
    """A choice: keyword arguments in addition to the call's own, and a hook before every launch."""

    keywords: Mapping[str, Any]
    pre_hook: Hook | None = None

    def as_config(self) -> Any:
        """The same as a `triton.Config`."""
        import triton

        known = inspect.signature(triton.Config).parameters
        options = {name: value for name, value in self.keywords.items() if name in known}
        kwargs = {name: value for name, value in self.keywords.items() if name not in known}
        return triton.Config(kwargs, **options, pre_hook=self.pre_hook)


class Choices(Protocol):
    """All configurations for a call, whose positional and keyword arguments are given by their names."""

    @property
    def names(self) -> Sequence[str]: ...

    def space(self, positional: Mapping[str, Any], keywords: Mapping[str, Any]) -> PlainSpace: ...

    def configuration(self, point: Point) -> Configuration: ...


class KnobChoices:
    """Every combination of the knobs' values that the rule allows.

    `legal` gets the arguments of the call and the values of the knobs, by their names.
    """

    def __init__(
        self, knobs: Mapping[str, Sequence[Any]], legal: Legal | None, defaults: Mapping[str, Any] | None = None
    ) -> None:
        """`defaults` are those of arguments, for a call that leaves them out.

        Raises:
            InputError: a knob without values, or with one twice.
        """
        self._knobs = {name: [_told(v) for v in values] for name, values in knobs.items()}
        self._meanings = {(name, *identity(_told(v))): v for name, values in knobs.items() for v in values}
        self._legal, self._defaults = legal, dict(defaults or {})
        PlainSpace(self._knobs)

    @property
    def names(self) -> Sequence[str]:
        return tuple(self._knobs)

    def space(self, positional: Mapping[str, Any], keywords: Mapping[str, Any]) -> PlainSpace:
        legal, named = self._legal, {**self._defaults, **positional, **keywords}
        if legal is None:
            return PlainSpace(self._knobs)
        return PlainSpace(self._knobs, legal=lambda told: _accepts(legal, {**named, **self._meant(told)}))

    def configuration(self, point: Point) -> Configuration:
        return Configuration(self._meant(dict(zip(self._knobs, point, strict=True))))

    def _meant(self, told: Mapping[str, PlainValue]) -> dict[str, Any]:
        return {name: self._meanings[(name, *identity(value))] for name, value in told.items()}


class ListChoices:
    """Triton's configurations that `prune_configs_by` keeps. Of two equal ones the first counts."""

    def __init__(self, configs: Sequence[ListedConfig], prune_configs_by: Mapping[str, Any] | None) -> None:
        self._prune = dict(prune_configs_by or {})
        # A configuration without a knob leaves it to the kernel's default: None.
        self._names = tuple(dict.fromkeys(name for config in configs for name in config.all_kwargs()))
        self._configs: dict[Point, ListedConfig] = {}
        for config in configs:
            self._configs.setdefault(self._point(config), config)

    @property
    def names(self) -> Sequence[str]:
        return self._names

    def space(self, positional: Mapping[str, Any], keywords: Mapping[str, Any]) -> PlainSpace:
        points = [self._point(config) for config in self._pruned(positional, keywords)]
        columns = zip(*points, strict=True) if points else [() for _ in self._names]
        knobs = {n: list(dict.fromkeys(column)) or [None] for n, column in zip(self._names, columns, strict=True)}
        return PlainSpace(knobs, configurations=points)

    def configuration(self, point: Point) -> Configuration:
        config = self._configs[point]
        return Configuration(config.all_kwargs(), config.pre_hook)

    def _point(self, config: ListedConfig) -> Point:
        said = config.all_kwargs()
        return tuple(_told(said.get(name)) for name in self._names)

    def _pruned(self, positional: Mapping[str, Any], keywords: Mapping[str, Any]) -> list[ListedConfig]:
        """Triton's pruning: by a function of all of them, then to the first ones by a performance model."""
        kept = list(self._configs.values())
        if early := self._prune.get("early_config_prune"):
            kept = list(early(kept, positional, **keywords))
        model, top = self._prune.get("perf_model"), self._prune.get("top_k", 1.0)
        if model is None:
            return kept
        count = max(1, int(len(kept) * top)) if isinstance(top, float) and top <= 1.0 else int(top)
        return sorted(kept, key=lambda c: float(model(**positional, **keywords, **c.all_kwargs())))[:count]


def check_names(what: str, names: Sequence[str], allowed: Sequence[str]) -> None:
    """Raise InputError for a name that is none of the kernel's arguments (or launch options, for a knob)."""
    unknown = [name for name in names if name not in allowed]
    if unknown:
        got, expected = ", ".join(map(repr, unknown)), ", ".join(allowed)
        raise InputError(f"{what} names {got}; expected of the kernel's arguments: {expected}")


def _accepts(legal: Legal, meta: dict[str, Any]) -> bool:
    try:
        return bool(legal(meta))
    except KeyError as error:
        (missing,) = error.args or (None,)
        if missing in meta:
            raise
        raise InputError(
            f"legal= reads {missing!r}; expected one of {', '.join(n for n in meta if n != 'grid')}"
        ) from error


def _told(value: Any) -> PlainValue:
    if isinstance(value, Integral) and not isinstance(value, bool):
        # numpy's integers, too.
        return int(value)
    if value is None or isinstance(value, int | float | str):
        return value
    if isinstance(value, tuple) and all(v is None or isinstance(v, int | float | str) for v in value):
        return value
    return str(value)
