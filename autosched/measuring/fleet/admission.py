"""Admission to a fleet: which nodes may measure or compile for a target, and why others may not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autosched.measuring.fleet.code import Code, own_versions
from search_spaces import Target
from search_spaces.parsed_json import parsed


@dataclass(frozen=True)
class NodeFacts:
    """A node of the cluster: its id, name, and what Ray may use there."""

    id: str
    name: str
    gpus: int
    cpus: int


@dataclass(frozen=True)
class Surveyed:
    """Devices and code of a node."""

    devices: tuple[str, ...]
    code: Code

    @staticmethod
    def from_text(message: str) -> Surveyed:
        given = parsed(message)
        return Surveyed(tuple(given["devices"]), Code.from_text(given["code"]))


class Admission:
    """Admits nodes whose code is that of this process; and for its target those that fit the first one that measures.

    Measurements of different compilers or drivers do not compare. `measuring` is the code of that node.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._own = own_versions()
        self.measuring: Code | None = None

    def measures(self, node: NodeFacts, surveyed: Surveyed) -> bool:
        return self._target.device in surveyed.devices and (self._target.kind == "cpu" or node.gpus > 0)

    def compiles(self, node: NodeFacts) -> bool:
        return self._target.kind == "gpu" and not node.gpus

    def why_refused(self, found: Mapping[NodeFacts, Surveyed]) -> dict[NodeFacts, str]:
        """Reasons for all of the nodes, "" for those that may take part: first come those that measure."""
        ordered = sorted(found.items(), key=lambda pair: not self.measures(*pair))
        return {node: self._why_refused(node, surveyed) for node, surveyed in ordered}

    def _why_refused(self, node: NodeFacts, surveyed: Surveyed) -> str:
        measures = self.measures(node, surveyed)
        why = surveyed.code.why_unlike(self._own)
        if not why and self.measuring is not None and (measures or self.compiles(node)):
            why = surveyed.code.why_unfit(self.measuring, only_compiles=not measures)
        if measures and not why and self.measuring is None:
            self.measuring = surveyed.code
        return why


def last_line(error: BaseException) -> str:
    """The last line of an error: what was raised on the node, before which Ray puts its traceback."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
