"""Cards of a fleet in this process: they answer at once, dawdle, or are lost, as they are told."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

from autosched.measuring.fleet.messages import Answer, Packed, schedules_of, task_of
from autosched.measuring.fleet.roster import Card, Compiler
from made_up_node import made_up
from search_spaces import Schedule

T = TypeVar("T")


class Gone(Exception):
    """A place is lost."""


class FakeCard:
    """Answers at once. It is lost with any of the `deadly` schedules, and after `answers` of them; or is never heard of
    again then, if it `hangs`.
    """

    whole = False

    def __init__(
        self, name: str = "", deadly: Collection[str] = (), answers: int = 10**9, hangs: bool = False, unfit: str = ""
    ) -> None:
        self.room = 4
        self.name = name
        self.measured: list[Schedule] = []
        self.compiled_elsewhere = 0
        self.finals = 0
        self._deadly = deadly
        self._left = answers
        self._hangs = hangs
        self._unfit = unfit

    def measure(self, search: str, task: str, schedules: str, seed: int, compiled: Packed | None) -> Future[str]:
        self.compiled_elsewhere += compiled is not None
        return self._answer(task, schedules)

    def hold_finals(self, search: str, task: str, schedules: str, rounds: int, seed: int) -> Future[str]:
        self.finals += 1
        return self._answer(task, schedules)

    def cancel(self) -> Future[None]:
        return _of(None)

    def _answer(self, task: str, message: str) -> Future[str]:
        (workload, _), schedules = task_of(task), schedules_of(message)
        self._left -= 1
        if self._left < 0 and self._hangs:
            return Future()
        if self._left < 0 or any(s.one_line in self._deadly for s in schedules):
            return _failed(Gone(f"{self.name} is gone"))
        if self._unfit:
            return _of(Answer(unfit=self._unfit).to_text())
        self.measured += schedules
        return _of(Answer(tuple(replace(made_up(workload, s), card=self.name) for s in schedules), 1e-6).to_text())


class FakeCompiler:
    """Compiles to nothing, until it is lost after so many answers."""

    whole = False

    name = "a compiler"

    def __init__(self, answers: int = 10**9) -> None:
        self.room = 4
        self.failed = 0
        self._left = answers

    def compile(self, task: str, schedules: str) -> Future[tuple[str, Packed | None]]:
        self._left -= 1
        if self._left < 0:
            return _failed(Gone("the compiler is gone"))
        (workload, _), (schedule,) = task_of(task), schedules_of(schedules)
        made = made_up(workload, schedule)
        self.failed += not made.ok
        return _of(("", ("made up", (b"",))) if made.ok else (Answer((made,)).to_text(), None))


class FakeRoster:
    """Its cards are there at the start; those in `later` come one by one, each when another one was lost."""

    environment = (("device", "imaginary"),)
    complaints = ""

    def __init__(self, cards: Sequence[Card], compilers: Sequence[Compiler] = (), later: Sequence[Card] = ()) -> None:
        self.cards = len(cards)
        self._next = list(cards), list(compilers)
        self._later = list(later)
        self.closed = False

    def joined(self) -> tuple[list[Card], list[Compiler]]:
        now, self._next = self._next, ([], [])
        return now

    def lost(self, place: Card | Compiler) -> None:
        if self._later:
            self._next[0].append(self._later.pop(0))

    def why_lost(self, error: BaseException) -> str | None:
        return str(error) if isinstance(error, Gone) else None

    def close(self) -> None:
        self.closed = True


def _of(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future


def _failed(error: Exception) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future
