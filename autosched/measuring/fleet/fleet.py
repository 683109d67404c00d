"""`fleet("auto")`: the machines of a Ray cluster as the measurer of any number of searches."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

from autosched.measuring.fleet.fleet_measurer import FleetMeasurer
from autosched.measuring.fleet.node import LOCATION
from autosched.measuring.measurer import Measurer
from search_spaces import InputError, Target


class Fleet:
    """Measures on the cards of a cluster, those of every device for itself; they stay from search to search.

    An actor has the cores of its node, or a share, for itself. So a search for another target gives back what no search
    uses; of two at once, only the first has the nodes that both need.

    `node` tells the nodes what they have, as "module:class" (`node.Node`).
    """

    def __init__(self, address: str = "auto", node: str = LOCATION) -> None:
        check_installed()
        from autosched.measuring.fleet import cluster

        cluster.connect(address)
        self._open_roster = cluster.RayRoster
        self._node = node
        self._lock = threading.Lock()
        self._measurers: dict[str, FleetMeasurer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def session(self, target: Target) -> Iterator[Measurer]:
        """The measurer of all cards of a target, reserved for one search while the block lasts.

        Raises:
            InputError: another search of this process has them.
            TargetUnavailableError: no node has such a card.
        """
        with ExitStack() as reserved:
            with self._lock:
                measurer = self._of(target)
                reserved.enter_context(measurer.of_one_search())
            yield measurer

    def close(self) -> None:
        """Give back all cards; the cluster goes on."""
        with self._lock:
            for measurer in self._measurers.values():
                measurer.close()
            self._measurers.clear()

    def _of(self, target: Target) -> FleetMeasurer:
        """The measurer of a target; those that no search uses, or can use, are closed."""
        for key, measurer in list(self._measurers.items()):
            if not measurer.usable or (key != target.key and not measurer.in_use):
                self._measurers.pop(key).close()
        if target.key not in self._measurers:
            self._measurers[target.key] = FleetMeasurer(target, self._open_roster(target, self._node))
        return self._measurers[target.key]


def fleet(address: str = "auto") -> Fleet:
    """The Ray cluster at an address as a measurer: `tune(op, target="h200", measurer=fleet("auto"))`.

    "auto" is the cluster of this machine, "local" a new one on this machine alone; others are "host:port", as
    `ray start --head` prints it, of a cluster that this machine is part of, and "ray://host:10001" of one that it is
    not, for which Ray wants `ray[client]`.

    Raises:
        InputError: Ray is not installed, or there is no cluster.
    """
    return Fleet(address)


def check_installed() -> None:
    """Raise InputError unless Ray is installed."""
    if importlib.util.find_spec("ray") is None:
        raise InputError("a fleet needs Ray: pip install 'autosched[fleet]'")
