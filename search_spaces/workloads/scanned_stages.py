"""Stages that are scanned together: checks of their agreement, and their text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from search_spaces.errors import InputError
from search_spaces.parsed_json import array, members, text, truth
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions import expression_json
from search_spaces.workloads.expressions.kinds import check_kinds, is_integral
from search_spaces.workloads.scans import Scan
from search_spaces.workloads.stages import Stage


def check_scans(stages: Sequence[Stage]) -> None:
    """Raise InputError unless the members of every scan exist, are alike, and combine to their own kinds."""
    for stage in stages:
        if stage.scan is not None:
            _check_members(stage, stage.scan, stages)
            _check_combination(stage)


def _check_members(stage: Stage, scan: Scan, stages: Sequence[Stage]) -> None:
    names = [s.name for s in stages]
    members = [s for s in stages if s.name in scan.members]
    first = names.index(members[0].name) if members else 0
    if {*names[first : first + len(scan.members)]} != {*scan.members} or {*scan.members} & {*stage.read_elements}:
        raise InputError(f"stages {list(scan.members)} are scanned together; expected one after the other")
    alike = all(m.scan == scan and m.axes == stage.axes for m in members)
    if stage.name not in scan.members or not alike or stage.reduction:
        raise InputError(f"stage {stage.name!r} is scanned with {list(scan.members)}; expected equal scans")
    if scan.axis not in (a.name for a in stage.axes):
        raise InputError(f"stage {stage.name!r} is scanned along {scan.axis!r}, which is no axis of it")


def _check_combination(stage: Stage) -> None:
    combined = stage.combination
    assert combined is not None
    check_kinds(combined)
    if is_integral(combined) != is_integral(stage.expression):
        raise InputError(f"stage {stage.name!r} combines to {ex.to_text(combined)}, of another kind")


def scan_text(stage: Stage) -> str:
    """Text of the stage's scan, as printed before its expression; "" without one."""
    scan, combined = stage.scan, stage.combination
    if scan is None or combined is None:
        return ""
    others = [m for m in scan.members if m != stage.name]
    together = f" with {', '.join(others)}" if others else ""
    return f"scan along {scan.axis}{' backwards' * scan.reverse}{together} by {ex.to_text(combined)} of "


def scan_to_json(scan: Scan) -> dict[str, Any]:
    return {
        "axis": scan.axis,
        "members": list(scan.members),
        "combine": [expression_json.to_json(c) for c in scan.combine],
        "reverse": scan.reverse,
    }


def scan_from_json(data: Any) -> Scan:
    """Raises DataError, InputError."""
    told = members(data, "scan", ("axis", "members", "combine", "reverse"))
    scanned = tuple(text(name, "member of a scan") for name in array(told["members"], "members of a scan"))
    combine = tuple(map(expression_json.from_json, array(told["combine"], "combine")))
    return Scan(text(told["axis"], "scanned axis"), scanned, combine, truth(told["reverse"], "reverse"))
