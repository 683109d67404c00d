"""Trying configurations on a call's own arguments: compiled, run, compared with each other, timed, and put back."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import torch

from autosched.machine.timing import Run, Timer, cold_timer
from autosched.tuning.autotune.calls.call import Call
from autosched.tuning.autotune.configurations import Configuration
from autosched.tuning.autotune.settings import Hooks, TuningSettings
from autosched.tuning.autotune.trials import launching
from autosched.tuning.autotune.trials.agreement import Agreement, compared
from autosched.tuning.autotune.trials.callbacks import BenchTimer, PairedHooks
from autosched.tuning.autotune.trials.launching import MOST_THREADS
from autosched.tuning.autotune.trials.saved_tensors import SavedTensors
from search_spaces import AutoschedError, Target
from tuning_logs import CompileFacts, Measurement

# Calls that a configuration is first timed with, and with which it is timed again unless it is clearly slower than the
# best: so few at once that the device never waits for the next launch.
FIRST_CALLS = 3
_MORE_CALLS, _MORE_TIMES = 5, 2
_CLEARLY_SLOWER = 1.25


class LostDeviceError(AutoschedError):
    """A configuration broke what all kernels of this process run in; nothing can be run, or put back, any more."""


@dataclass(frozen=True)
class Tried:
    """What was measured of a configuration, and the number of the result that it agreed with."""

    measurement: Measurement
    result: int = 0


class Trials:
    """Tries configurations of one call, one after the other. `outputs`: what of its tensors is compared."""

    def __init__(
        self,
        call: Call,
        saved: SavedTensors,
        outputs: Mapping[str, torch.Tensor],
        make_timer: Callable[[Run], Timer],
        hooks: Hooks,
    ) -> None:
        self._call, self._saved, self._outputs = call, saved, outputs
        self._hooks = PairedHooks(hooks, call)
        # What runs next, one after the other: the timer says when, and not which.
        self._next: Iterator[Configuration] = iter(())
        self._timer = make_timer(self._reset)
        self._best_s = math.inf
        self._lost = False
        self._compilers = ThreadPoolExecutor(MOST_THREADS)
        self._agreement = Agreement(lambda name: saved.original(outputs[name]))

    @staticmethod
    def of(call: Call, target: Target, settings: TuningSettings) -> Trials:
        """Trials on a device, of which nothing is run yet; the arguments are copied."""
        mine = call.tensors if settings.restored is None else call.tensors_of({*settings.restored, *settings.zeroed})
        outputs = mine if settings.outputs is None else call.tensors_of(settings.outputs)
        saved = SavedTensors(mine, call.tensors_of(settings.zeroed))
        timer = partial(BenchTimer, settings.do_bench) if settings.do_bench else partial(cold_timer, target)
        return Trials(call, saved, compared(outputs), timer, settings.hooks)

    def end(self) -> None:
        """Put the arguments back, unless nothing can be run any more.

        No more is begun to be compiled; what is under way ends by itself, and is kept in Triton's cache.
        """
        self._compilers.shutdown(wait=False, cancel_futures=True)
        if not self._lost:
            self._saved.restore()

    def reset_for_call(self) -> None:
        """Tell the user's hook that the call itself comes next: after a search that found what to launch it with."""
        self._hooks.reset()

    def _reset(self) -> None:
        """Make the arguments what they were; before every single run of the kernel."""
        self._hooks.close()
        self._saved.restore()
        self._hooks.open(next(self._next))

    def _sample(self, configurations: Sequence[Configuration]) -> list[float]:
        """Seconds of a run of each, in this order."""
        self._next = iter(configurations)
        return self._timer.sample([partial(self._call.launch, c) for c in configurations])

    def measurement(self, tried: Tried) -> Measurement:
        """What is known now: the result of the majority is right."""
        found = tried.measurement
        if not found.ok or tried.result == self._agreement.winner:
            return found
        detail = "most configurations compute something else"
        return replace(found, status="wrong_result", detail=detail, latencies_s=(), timing="full")

    def compile(self, configurations: Sequence[Configuration]) -> list[Future[object]]:
        """Begin to compile these, in threads: what tells that each has ended."""
        begun = launching.begin_compiling(self._call, configurations, self._compilers)
        if any(c.pre_hook for c in configurations):
            # It was called, since it may change what is compiled for; what else it changed is put back.
            self._saved.note_changes()
        return begun

    def run(self, configuration: Configuration, compile_s: float) -> Tried:
        """Try one.

        Raises:
            LostDeviceError: nothing can be run any more.
        """
        begin = perf_counter()
        try:
            launching.compiled(self._call, configuration)
        except Exception as error:
            status, detail = launching.failure_of(error, compiling=True)
            tried = Tried(Measurement(status, detail=detail))
        else:
            tried = self._run(configuration, compile_s)
        self._hooks.close()
        return replace(tried, measurement=replace(tried.measurement, seconds=perf_counter() - begin))

    def _run(self, configuration: Configuration, compile_s: float) -> Tried:
        try:
            result, facts = self._checked(configuration, compile_s)
            return Tried(replace(self._timed(configuration, result), facts=facts), result)
        except Exception as error:
            status, detail = launching.failure_of(error, compiling=False)
            self._hooks.close(error)
            self._refuse_lost_device(detail, configuration)
            self._saved.note_changes()
            return Tried(Measurement(status, detail=detail))

    def _checked(self, configuration: Configuration, compile_s: float) -> tuple[int, CompileFacts | None]:
        """Run it once on the arguments as they were: with which result it agrees, and what the compiler said."""
        self._next = iter([configuration])
        self._reset()
        kernel = self._call.launch(configuration)
        _wait()
        self._saved.note_changes()
        made = {name: t for name, t in self._outputs.items() if self._saved.changed(t)}
        return self._agreement.vote(made), launching.facts_of(kernel, compile_s)

    def _timed(self, configuration: Configuration, result: int) -> Measurement:
        begin = perf_counter()
        latencies = self._sample([configuration] * FIRST_CALLS)
        short = statistics.median(latencies) > _CLEARLY_SLOWER * self._best_s
        if not short:
            for _ in range(_MORE_TIMES):
                latencies += self._sample([configuration] * _MORE_CALLS)
            if result == self._agreement.winner:
                self._best_s = min(self._best_s, statistics.median(latencies))
        timing_s = perf_counter() - begin
        return Measurement("ok", tuple(latencies), timing="short" if short else "full", timing_s=timing_s)

    def finals(self, configurations: Sequence[Configuration], rounds: int) -> list[tuple[float, ...]]:
        """Latencies of all of these, which have run before, in rounds that each begin with another one."""
        count = len(configurations)
        taken: list[list[float]] = [[] for _ in configurations]
        for turn in range(rounds):
            order = [(turn + n) % count for n in range(count)]
            for number, seconds in zip(order, self._sample([configurations[n] for n in order]), strict=True):
                taken[number].append(seconds)
        self._hooks.close()
        return [tuple(latencies) for latencies in taken]

    def _refuse_lost_device(self, detail: str, configuration: Configuration) -> None:
        """Raise LostDeviceError where a launch left an error that stays until the process ends."""
        try:
            _wait()
        except Exception as error:
            self._lost = True
            raise LostDeviceError(
                f"the configuration {_text(configuration)} broke the device for this process: {detail}. The log names "
                "it, and the next start leaves it out; a rule `legal=` keeps others like it out"
            ) from error


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _text(configuration: Configuration) -> str:
    return " ".join(f"{name}={value}" for name, value in configuration.keywords.items())
