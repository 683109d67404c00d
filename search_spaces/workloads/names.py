"""Unique names: of stages that are added to a workload, and of the tiles of a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Names:
    """Gives out names: the wanted one, or with a number behind it when it is taken."""

    taken: set[str] = field(default_factory=set)
    # Up to here the numbers behind a name are taken: unrolled kernels want one name thousands of times.
    _last: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    def fresh(self, wanted: str) -> str:
        number = self._last.get(wanted, 1)
        name = wanted if number == 1 else f"{wanted}{number}"
        while name in self.taken:
            number += 1
            name = f"{wanted}{number}"
        self._last[wanted] = number
        self.taken.add(name)
        return name
