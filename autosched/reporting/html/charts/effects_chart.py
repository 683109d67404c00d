"""The cost of each value of the important knobs: the best trial with it, and the median one."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.reporting.analysis.effects import KnobEffect, ValueEffect
from autosched.reporting.html.charts.strips import Strip, grouped, heading, mark, strips
from autosched.reporting.html.knob_text import knob_text
from autosched.reporting.html.markup import Markup
from autosched.reporting.html.scales import Scale
from search_spaces.schedules.knobs import KnobValue

_MOST_KNOBS = 6
_MOST_VALUES = 5
# Values costlier than this part of them are at the right edge, within bounds: their figure tells.
_SHOWN_PART = 0.8
_LEAST_TIMES, _MOST_TIMES = 1.2, 4.0


def effects_chart(effects: Sequence[KnobEffect], chosen: dict[str, KnobValue]) -> Markup | None:
    """The most important knobs; `chosen` are the winner's values. None where no knob has several values."""
    if not effects:
        return None
    shown = effects[:_MOST_KNOBS]
    costs = sorted(value.best for effect in shown for value in _shown(effect))
    edge = costs[int(_SHOWN_PART * (len(costs) - 1))]
    scale = Scale(1.0, min(_MOST_TIMES, max(_LEAST_TIMES, edge)), 2, 98, is_log=True)
    parts = []
    for effect in shown:
        parts.append(heading(effect.knob, _remark(effect)))
        last = effect is shown[-1]
        rows = [_row(value, chosen.get(effect.knob) == value.value, scale) for value in _shown(effect)]
        parts.append(strips(rows, scale if last else None, "×"))
    return grouped(parts)


def _shown(effect: KnobEffect) -> tuple[ValueEffect, ...]:
    """The cheapest values, and the costliest."""
    if len(effect.values) <= _MOST_VALUES:
        return effect.values
    return (*effect.values[: _MOST_VALUES - 1], effect.values[-1])


def _remark(effect: KnobEffect) -> str:
    parts = [] if effect.importance is None else [f"importance {effect.importance:.0%}"]
    if len(effect.values) > _MOST_VALUES:
        left = effect.values[_MOST_VALUES - 1 : -1]
        costs = dict.fromkeys(_times(value.best) for value in (left[0], left[-1]))
        parts.append(f"{len(left)} more: {' to '.join(costs)}")
    return "; ".join(parts)


def _row(effect: ValueEffect, is_chosen: bool, scale: Scale) -> Strip:
    marks = [mark(scale(effect.median), "median"), mark(scale(effect.best), "win" if is_chosen else "")]
    label = knob_text(effect.value) + (" ✓" if is_chosen else "")
    about = f"best {effect.best:.3f}×, median {effect.median:.2f}× of the fastest trial, {effect.trials} trials"
    return Strip(label, marks, f"{_times(effect.best)} {effect.trials:>4}", about)


def _times(cost: float) -> str:
    return f"{cost:.2f}×" if cost < 10 else f"{cost:.0f}×"
