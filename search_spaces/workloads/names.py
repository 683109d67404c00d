"""Unique names: of stages that are added to a workload, and of the tiles of a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Names:
    """Gives out names: the wanted one, or with a number behind it when it is taken."""

    taken: set[str] = field(default_factory=set)

    def fresh(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self.taken:
            number += 1
            name = f"{wanted}{number}"
        self.taken.add(name)
        return name
