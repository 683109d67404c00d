"""The finals: the latency of every finalist, and of the library, over that of the winner, with intervals."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.reporting.analysis.finals import Finalist
from autosched.reporting.analysis.tasks import Speedup
from autosched.reporting.html.charts.strips import Strip, bar, mark, strips
from autosched.reporting.html.knob_text import knob_text
from autosched.reporting.html.markup import Markup
from autosched.reporting.html.scales import Scale, log_scale
from tuning_logs import TuningRecord
from tuning_logs.text import duration_text

_MOST_ROWS = 10
_MOST_BEYOND = 1.1
# Knobs that tell a finalist from the winner, in its label.
_MOST_KNOBS = 3


def finals_chart(finals: Sequence[Finalist], library: Speedup | None) -> Markup | None:
    """None without finals."""
    if not finals:
        return None
    shown = finals[:_MOST_ROWS]
    intervals = [finalist.against.interval for finalist in shown[1:]]
    ratios = [f.against.ratio for f in shown]
    # An interval much wider than the finalists lie apart is cut at the edge.
    low, high = min(ratios) / _MOST_BEYOND, max(ratios) * _MOST_BEYOND
    ends = [min(max(end, low), high) for i in intervals if i for end in (i.low, i.high)]
    scale = log_scale([*ratios, *ends], 0, 100, margin=1.01)
    winner = shown[0].record
    rows = [Strip("the winner", [mark(scale(1.0), "win")], duration_text(winner.measurement.latency_s))]
    for finalist in shown[1:]:
        rows.append(
            _row(_difference(finalist.record, winner), finalist.against, scale, "" if finalist.is_slower else "tie")
        )
    if library is not None:
        rows.append(_row("the library", library, scale, "library"))
    return strips(rows, scale, "×")


def _row(label: str, against: Speedup, scale: Scale, class_: str) -> Strip:
    interval, reference = against.interval, mark(scale(1.0), "one")
    spread = [bar(scale(interval.low), scale(interval.high), class_)] if interval else []
    return Strip(label, [reference, *spread, mark(scale(against.ratio), class_)], f"{against.ratio:.3f}×")


def _difference(record: TuningRecord, winner: TuningRecord) -> str:
    """Knobs that differ from the winner's: `stages 3, warps 4`."""
    ours, theirs = ({"by": r.backend, "sketch": r.schedule.sketch, **r.schedule.knobs} for r in (record, winner))
    different = [f"{name} {knob_text(value)}" for name, value in ours.items() if theirs.get(name) != value]
    more = f" +{len(different) - _MOST_KNOBS}" if len(different) > _MOST_KNOBS else ""
    return (", ".join(different[:_MOST_KNOBS]) + more) or "fewer knobs"
