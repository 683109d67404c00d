"""The certificate of the winner of finals: more rounds in pairs, repeated checks, and the state of the device."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autosched.machine.devices import processor_digest
from autosched.measuring.local.finals import Finals
from autosched.measuring.local.jobs import Contest, Examination, Standings, Trial
from search_spaces import Target
from tuning_logs import Certificate, DeviceState, Measurement, Versions
from tuning_logs.certificate import Device, Pairs, Results
from tuning_logs.intervals import LEAST_ROUNDS

# A certificate costs a search less than two seconds: these for the rounds with each of two kernels, and a check.
_PAIRS_S = 0.6
# Calls of each kernel in the fewest rounds that give an interval, and before them at three placements.
_FEWEST_CALLS = LEAST_ROUNDS + 3
# Rounds of winner against another kernel for each of a contest: from thirty on, an interval of the median depends on
# noise and no longer on luck.
_MATCH_PART = 2


@dataclass(frozen=True)
class Session:
    """The session of finals: the device, and jobs for its measuring worker.

    `cores` are those of the worker on a CPU, `uuid` is a card's. `examine` returns a failed measurement for a kernel
    that is not right. `calibration` is the device's calibration kernel, compiled; None where there is none.
    """

    target: Target
    versions: Versions
    cores: tuple[int, ...]
    uuid: str | None
    contest: Callable[[Contest], Standings]
    examine: Callable[[Examination], Results | Measurement]
    state: Callable[[], DeviceState | None]
    calibration: Callable[[], Trial | None]


def certified(
    finals: Finals, trials: Sequence[Trial], measurement: Measurement, rounds: int, session: Session
) -> Measurement:
    """The winner's measurement with the rounds against the library, and its certificate; a failure if it is wrong now.

    Among many others, a small call of the library finds its code and scratch memory evicted from the caches: the winner
    meets each other kernel alone.
    """
    winner, latency_s = trials[finals.winner], statistics.median(finals.latencies_s[finals.winner])
    states = [session.state()]
    results = session.examine(Examination(winner.task, winner))
    if isinstance(results, Measurement):
        return results
    against = Contest(winner.task, [winner], _MATCH_PART * rounds)
    match = session.contest(dataclasses.replace(against, library=True))
    states.append(session.state())

    def paired(name: str, other: Trial, other_s: float) -> Pairs | None:
        if _FEWEST_CALLS * (latency_s + other_s) > _PAIRS_S:
            return None
        found = session.contest(dataclasses.replace(against, trials=[winner, other], seconds=_PAIRS_S))
        states.append(session.state())
        return _pairs(name, found.latencies_s[0], found.latencies_s[1], found) if found.latencies_s else None

    second = finals.runner_up
    runner_up = None
    if second is not None:
        name = _fingerprint(trials[second])
        runner_up = paired(name, trials[second], statistics.median(finals.latencies_s[second]))
    itself = paired("itself", winner, latency_s)
    calibration = session.calibration()
    certificate = Certificate(
        workload=winner.task.workload.key,
        schedule=winner.schedule.key,
        source=measurement.source,
        binary=winner.compiled.binary_hash,
        policy=winner.task.policy,
        unix_s=time.time(),
        library=_pairs("library", match.latencies_s[0], match.library_s, match) if match.library_s else None,
        runner_up=runner_up,
        itself=itself,
        results=results,
        device=_device(session, states),
        versions=session.versions,
        # Its calls are short: the winner's decide whether there is time.
        calibration=paired(_fingerprint(calibration), calibration, 0.0) if calibration else None,
    )
    library = (match.library_s, match.latencies_s[0]) if match.library_s else ((), ())
    return dataclasses.replace(measurement, library_s=library[0], beside_library_s=library[1], certificate=certificate)


def _fingerprint(trial: Trial) -> str:
    return trial.compiled.facts.source or trial.schedule.key


def _pairs(name: str, winner: Sequence[float], other: Sequence[float], rounds: Standings) -> Pairs | None:
    return Pairs.of(name, winner, other, [first == 0 for first in rounds.begun_by])


def _device(session: Session, states: Sequence[DeviceState | None]) -> Device:
    return Device(
        name=session.target.device,
        uuid=session.uuid,
        cores=session.cores or None,
        processor=processor_digest(session.target),
        states=tuple(state for state in states if state is not None),
    )
