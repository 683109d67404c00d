"""Actors on the nodes of a fleet: one that owns the measurer of a card, and one that compiles.

Both take and give text and binaries only (`messages`). Each runs its methods in one thread, as a measurer demands.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Iterator
from functools import lru_cache

from autosched.backends import spaces
from autosched.measuring.fleet.messages import Answer, Packed, packed, schedules_of, task_of, unpacked
from autosched.measuring.fleet.node import node_at
from autosched.measuring.measurer import UnfitWorkloadError
from search_spaces import Schedule, SearchSpace, Target, TargetUnavailableError, Workload
from search_spaces.parsed_json import parsed
from tuning_logs import Measurement

# Search spaces kept, some milliseconds each to derive.
_MOST_SPACES = 64


def survey(location: str, target: str) -> str:
    """JSON of a node's devices and code, as it is seen for a target."""
    node = node_at(location)
    code = node.code(Target.from_json(parsed(target)))
    return json.dumps({"devices": node.devices(), "code": code.to_text()})


class _Binding:
    """Binds schedules from messages to the search spaces that this node derives for a target."""

    def __init__(self, target: str) -> None:
        self.target = Target.from_json(parsed(target))
        self._space = lru_cache(_MOST_SPACES)(self._derived)

    def _derived(self, workload: Workload) -> SearchSpace:
        return spaces.build(workload, self.target)

    def bound(self, workload: Workload, schedules: str) -> list[Schedule]:
        """Raises InputError: a schedule is not of the space."""
        space = self._space(workload)
        return [space.bind(schedule) for schedule in schedules_of(schedules)]


class CardActor:
    """Owns the measurer of one card."""

    def __init__(self, location: str, target: str, workers: int) -> None:
        node = node_at(location)
        self._binding = _Binding(target)
        self._measurer = node.measurer(self._binding.target, workers)
        self._card = node.card(self._binding.target)
        self._search: str | None = None
        self._ended: set[str] = set()
        self._reserved = contextlib.ExitStack()

    async def hello(self) -> str:
        """The card's UUID."""
        return self._card

    async def measure(self, search: str, task: str, schedules: str, seed: int, compiled: Packed | None) -> str:
        """The answer for one schedule of a search. Raises TargetUnavailableError: the measurer broke."""
        with self._or_lost():
            workload, policy = task_of(task)
            bound = self._binding.bound(workload, schedules)
            artefact = unpacked(compiled) if compiled is not None else None
            try:
                self._serve(search)
                (future,) = self._measurer.submit(workload, bound, policy=policy, seed=seed, artefact=artefact)
                measured = [await asyncio.wrap_future(future)]
            except UnfitWorkloadError as error:
                return Answer(unfit=str(error)).to_text()
            except asyncio.CancelledError:
                return Answer().to_text()
            return Answer(self._here(measured), self._measurer.library_s(workload)).to_text()

    async def hold_finals(self, search: str, task: str, schedules: str, rounds: int, seed: int) -> str:
        """The answer for finalists; nothing else is measured meanwhile. Raises as `measure`."""
        with self._or_lost():
            workload, policy = task_of(task)
            bound = self._binding.bound(workload, schedules)
            try:
                self._serve(search)
                measured = self._measurer.remeasure(workload, bound, rounds, policy=policy, seed=seed)
            except UnfitWorkloadError as error:
                return Answer(unfit=str(error)).to_text()
            except asyncio.CancelledError:
                return Answer().to_text()
            return Answer(self._here(measured or []), self._measurer.library_s(workload)).to_text()

    async def cancel(self) -> None:
        """Cancel what has not begun."""
        self._measurer.cancel()

    @contextlib.contextmanager
    def _or_lost(self) -> Iterator[None]:
        """Any error of a measurer that cannot be used any more says that this card is lost, not the search."""
        try:
            yield
        except Exception as error:
            if self._measurer.usable:
                raise
            raise TargetUnavailableError(f"the measurer of a card broke: {error}") from error

    def _serve(self, search: str) -> None:
        """Before the first job of a search: free what the one before it used, and reserve the card.

        Raises CancelledError: the job is late, of a search before the present one.
        """
        if search in self._ended:
            raise asyncio.CancelledError
        if search != self._search:
            self._reserved.close()
            self._reserved.enter_context(self._measurer.reserved(self._binding.target))
            if self._search is not None:
                self._ended.add(self._search)
            self._search = search

    def _here(self, measured: list[Measurement]) -> tuple[Measurement, ...]:
        return tuple(dataclasses.replace(m, card=self._card) for m in measured)


class CompileActor:
    """Compiles for a target."""

    def __init__(self, location: str, target: str, workers: int) -> None:
        self._binding = _Binding(target)
        self._service = node_at(location).compiling(self._binding.target, workers)

    async def hello(self) -> str:
        """Nothing: it has no card."""
        return ""

    async def compile(self, task: str, schedules: str) -> tuple[str, Packed | None]:
        """An answer with the failure of a schedule; or "" and its artefact."""
        workload, _ = task_of(task)
        (schedule,) = self._binding.bound(workload, schedules)
        made = await asyncio.wrap_future(self._service.submit(workload, schedule))
        if isinstance(made, Measurement):
            return Answer((made,)).to_text(), None
        return "", packed(made)
