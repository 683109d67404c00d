"""A measurer of many cards of one device: candidates go where there is room, and elsewhere when a node is lost.

submit ─ compiled on a node without cards, if there is any ─ measured on a card ─ measurement
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from autosched.machine.policies import Policy, check_timing
from autosched.measuring.fleet.crew import Crew, Job
from autosched.measuring.fleet.messages import Answer, Packed, schedules_text, task_text
from autosched.measuring.fleet.roster import Card, Compiler, Roster
from autosched.measuring.measurer import BATCH, UnfitWorkloadError
from autosched.measuring.reservation import Reservation
from search_spaces import DataError, InputError, Schedule, Target, TargetUnavailableError, Workload
from tuning_logs import Measurement, Versions

# Nodes that are lost or new are noticed within this time, apart from lost ones that had a job.
_TICK_S = 0.5
# Batches in flight for each card: one measured, one compiled, one proposed; on a CPU one alone.
_BATCHES = {"gpu": 3, "cpu": 1}
# Without a card for so long, the fleet is given up: a machine of a cloud needs some minutes to start.
PATIENCE_S = 300.0

P = TypeVar("P")
J = TypeVar("J")
R = TypeVar("R")


@dataclass(eq=False, kw_only=True)
class _Trial(Job):
    """One schedule, or finalists, for which `rounds` is not 0; `key` is that of the workload."""

    search: str
    key: str
    task: str
    schedules: str
    seed: int
    rounds: int = 0
    compiled: Packed | None = None
    answer: Future[Answer] = field(default_factory=Future)


@dataclass(eq=False, kw_only=True)
class _Compilation(Job):
    """A trial that is compiled before a card gets it."""

    trial: _Trial


class FleetMeasurer:
    """Measures on all cards that the roster has. Everything but submission happens in one thread, event by event.

    What a search does depends on its seed alone, not on which card answers first: the capacity follows from the number
    of cards at the start.
    """

    def __init__(self, target: Target, roster: Roster, patience_s: float = PATIENCE_S) -> None:
        self._target = target
        self._roster = roster
        self._patience_s = patience_s
        self._reservation = Reservation(target.device)
        # Guards the reservation.
        self._lock = threading.Lock()
        self._cards: Crew[Card, _Trial] = Crew()
        self._compilers: Crew[Compiler, _Compilation] = Crew()
        self._library_s: dict[str, float] = {}
        self._losses: list[str] = []
        self._search = ""
        self._alone_since = time.monotonic()
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._closing = False
        self._broken: Exception | None = None
        self._thread = threading.Thread(target=self._drive, name="autosched-fleet", daemon=True)
        self._thread.start()

    @property
    def capacity(self) -> int:
        return _BATCHES[self._target.kind] * BATCH * self._roster.cards

    @property
    def environment(self) -> Versions:
        return self._roster.environment

    @property
    def usable(self) -> bool:
        return self._broken is None and not self._closing and self._reservation.here

    @property
    def in_use(self) -> bool:
        with self._lock:
            return self._reservation.taken

    @property
    def losses(self) -> Sequence[str]:
        return tuple(self._losses)

    def library_s(self, workload: Workload) -> float | None:
        return self._library_s.get(workload.key)

    @contextmanager
    def of_one_search(self) -> Iterator[None]:
        """Reserve it for one search while the block lasts.

        Raises:
            InputError: it is in use already, or belongs to another process.
        """
        self._reservation.check_process()
        with self._lock:
            self._reservation.take()
        self._search = uuid.uuid4().hex
        self._library_s.clear()
        self._losses.clear()
        try:
            yield
        finally:
            # Before the next search submits anything.
            self._events.put(self._end_search)
            with self._lock:
                self._reservation.end()

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        """A future for every schedule.

        Raises:
            InputError: the target lacks the policy.
            TargetUnavailableError: no card is left; open futures raise it, too.
        """
        trials = [self._trial(workload, policy, [schedule], seed) for schedule in schedules]
        futures: list[Future[Measurement]] = [Future() for _ in trials]
        for trial, future in zip(trials, futures, strict=True):
            trial.answer.add_done_callback(partial(_deliver, future))
        self._events.put(partial(self._take, trials))
        return futures

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = "cold", seed: int = 0
    ) -> list[Measurement] | None:
        """Finals, all of them on one card: only figures of one card compare fairly. If it is lost, another holds them.

        Raises:
            InputError, TargetUnavailableError: as `submit`.
        """
        trial = self._trial(workload, policy, schedules, seed, rounds)
        self._events.put(partial(self._take, [trial]))
        answer = trial.answer.result()
        if answer.unfit:
            raise UnfitWorkloadError(answer.unfit)
        return list(answer.measurements) if len(answer.measurements) == len(schedules) else None

    def cancel(self) -> None:
        """Cancel the futures of schedules that no worker has begun."""
        self._events.put(self._cancel)

    def close(self) -> None:
        """Give back the cards; open futures are cancelled."""
        if self._closing or not self._reservation.here:
            return
        self._closing = True
        self._thread.join()
        self._roster.close()

    def _trial(
        self, workload: Workload, policy: Policy, schedules: Sequence[Schedule], seed: int, rounds: int = 0
    ) -> _Trial:
        check_timing(policy, self._target)
        self._reservation.check_process()
        if self._broken is not None:
            raise self._broken
        if self._closing:
            raise InputError(f"the fleet's measurer for {self._target.device} was closed; expected an open one")
        return _Trial(
            alone=rounds > 0,
            search=self._search,
            key=workload.key,
            task=task_text(workload, policy),
            schedules=schedules_text(schedules),
            seed=seed,
            rounds=rounds,
        )

    # What follows runs in the thread.

    def _drive(self) -> None:
        try:
            while not self._closing:
                self._step()
        except Exception as error:
            # Raised again in the thread that waits for a measurement, or submits.
            self._broken = error
            for trial in self._drop():
                trial.answer.set_exception(error)
        while not self._closing:
            self._handle()
        for trial in self._drop():
            trial.answer.cancel()

    def _step(self) -> None:
        self._handle()
        cards, compilers = self._roster.joined()
        for card in cards:
            self._cards.join(card)
        for compiler in compilers:
            self._compilers.join(compiler)
        if compilers:
            self._take(self._cards.cancel_waiting())
        now = time.monotonic()
        if self._cards.places:
            self._alone_since = now
        elif now - self._alone_since > self._patience_s:
            why = self._roster.complaints or "it has no node with such a card"
            raise TargetUnavailableError(f"no {self._target.device} in the fleet for {self._patience_s:.0f} s: {why}")
        self._start(now)

    def _handle(self) -> None:
        """Handle the events so far, once there is any or the time has come to look at the roster."""
        with suppress(Empty):
            self._events.get(timeout=_TICK_S)()
            while True:
                self._events.get_nowait()()

    def _take(self, trials: Sequence[_Trial]) -> None:
        """Send each to where it goes next. Cards compile finalists themselves: they have the binaries of most."""
        for trial in trials:
            if self._broken is not None:
                trial.answer.set_exception(self._broken)
            elif self._compilers.places and not trial.rounds and trial.compiled is None:
                self._compilers.submit(_Compilation(trial=trial))
            else:
                self._cards.submit(trial)

    def _start(self, now: float) -> None:
        for compiler, compilation in self._compilers.starts(now):
            made = compiler.compile(compilation.trial.task, compilation.trial.schedules)
            made.add_done_callback(self._later(self._compiled, compiler, compilation))
        for card, trial in self._cards.starts(now):
            if trial.rounds:
                found = card.hold_finals(trial.search, trial.task, trial.schedules, trial.rounds, trial.seed)
            else:
                found = card.measure(trial.search, trial.task, trial.schedules, trial.seed, trial.compiled)
            found.add_done_callback(self._later(self._measured, card, trial))

    def _later(self, handle: Callable[[P, J, Future[R]], None], place: P, job: J) -> Callable[[Future[R]], None]:
        """Has the thread handle the reply of a place."""
        return lambda reply: self._events.put(partial(handle, place, job, reply))

    def _compiled(
        self, compiler: Compiler, compilation: _Compilation, reply: Future[tuple[str, Packed | None]]
    ) -> None:
        if reply.exception() is not None:
            self._lost(self._compilers, compiler, reply.exception())
            return
        text, made = reply.result()
        if not self._compilers.answer(compiler, compilation, time.monotonic()):
            return
        if made is None:
            self._finish(compilation.trial, text)
        else:
            compilation.trial.compiled = made
            self._cards.submit(compilation.trial)

    def _measured(self, card: Card, trial: _Trial, reply: Future[str]) -> None:
        if reply.exception() is not None:
            self._lost(self._cards, card, reply.exception())
        elif self._cards.answer(card, trial, time.monotonic()):
            self._finish(trial, reply.result())

    def _finish(self, trial: _Trial, message: str) -> None:
        try:
            answer = Answer.from_text(message)
        except DataError as error:
            trial.answer.set_exception(error)
            return
        if answer.library_s is not None:
            self._library_s[trial.key] = answer.library_s
        trial.answer.set_result(answer)

    def _lost(self, crew: Crew[Any, Any], place: Card | Compiler, error: BaseException | None) -> None:
        if self._broken is not None or place not in crew.places:
            return
        why = self._roster.why_lost(error) if error is not None else None
        if why is None:
            raise error or AssertionError("a place is lost without an error")
        self._losses.append(f"{place.name}: {why}")
        guilty = crew.leave(place)
        self._roster.lost(place)
        if crew is self._compilers and not crew.places:
            # Cards compile themselves until there is one again.
            self._take([compilation.trial for compilation in crew.cancel_waiting()])
        for job in guilty:
            self._give_up(job, why)

    def _give_up(self, job: _Trial | _Compilation, why: str) -> None:
        """A candidate that ended two places failed; finals that did so could not be held."""
        trial = job if isinstance(job, _Trial) else job.trial
        detail = f"two nodes of the fleet were lost with it: {why}"
        failed = Measurement("run_crash" if trial is job else "compile_crash", detail=detail)
        trial.answer.set_result(Answer() if trial.rounds else Answer((failed,)))

    def _cancel(self) -> None:
        for compilation in self._compilers.cancel_waiting():
            compilation.trial.answer.cancel()
        for trial in self._cards.cancel_waiting():
            trial.answer.cancel()
        for card in self._cards.places:
            card.cancel()

    def _end_search(self) -> None:
        self._cancel()
        for trial in self._drop():
            trial.answer.cancel()

    def _drop(self) -> list[_Trial]:
        """All trials without an answer."""
        return [*(compilation.trial for compilation in self._compilers.drop()), *self._cards.drop()]


def _deliver(future: Future[Measurement], answered: Future[Answer]) -> None:
    """Hand on the measurement of one schedule."""
    if answered.cancelled():
        future.cancel()
    elif (error := answered.exception()) is not None:
        future.set_exception(error)
    elif (answer := answered.result()).unfit:
        future.set_exception(UnfitWorkloadError(answer.unfit))
    elif answer.measurements:
        future.set_result(answer.measurements[0])
    else:
        future.cancel()
