"""Protocols of what a fleet measurer works with: cards, nodes that compile, and the roster that finds them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from autosched.measuring.fleet.crew import Place
from autosched.measuring.fleet.messages import Packed
from tuning_logs import Versions


class Card(Place, Protocol):
    """A card that measures: `actors.CardActor`, from afar. Futures raise what `Roster.why_lost` explains."""

    @property
    def name(self) -> str:
        """The name of its node."""
        ...

    def measure(self, search: str, task: str, schedules: str, seed: int, compiled: Packed | None) -> Future[str]: ...

    def hold_finals(self, search: str, task: str, schedules: str, rounds: int, seed: int) -> Future[str]: ...

    def cancel(self) -> Future[None]: ...


class Compiler(Place, Protocol):
    """A node that compiles: `actors.CompileActor`, from afar."""

    @property
    def name(self) -> str: ...

    def compile(self, task: str, schedules: str) -> Future[tuple[str, Packed | None]]: ...


class Roster(Protocol):
    """The cards of one device, and the nodes that compile for it: they come and go."""

    @property
    def cards(self) -> int:
        """Number of cards at the start."""
        ...

    @property
    def environment(self) -> Versions:
        """Versions of what measurements depend on: those of every card."""
        ...

    def joined(self) -> tuple[list[Card], list[Compiler]]:
        """Cards and nodes that compile which are ready since the last call. Takes no time.

        Raises:
            TargetUnavailableError: the cluster is lost.
        """
        ...

    def lost(self, place: Card | Compiler) -> None:
        """Start another one in its place, where that is of use."""
        ...

    def why_lost(self, error: BaseException) -> str | None:
        """Reason if an error says that a place is lost; None for any other error."""
        ...

    @property
    def complaints(self) -> str:
        """Reasons why nodes are not in use; "" if all are."""
        ...

    def close(self) -> None: ...
