"""Trials of configurations on a call's own arguments: compiled, run, compared with each other, timed, restored."""

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

# Calls in a configuration's first timing, and in the further ones unless it is clearly slower than the best: so few at
# once that the device never waits for the next launch.
FIRST_CALLS = 3
_MORE_CALLS, _MORE_TIMES = 5, 2
_CLEARLY_SLOWER = 1.25


class LostDeviceError(AutoschedError):
    """A configuration broke the device for this process: nothing can be run, or restored, any more."""


@dataclass(frozen=True)
class Tried:
    """The measurement of a configuration, and the number of the result that it agreed with."""

    measurement: Measurement
    result: int = 0


class Trials:
    """Tries configurations of one call, one after the other. `outputs`: the tensors to compare."""

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
        # Configurations of the next runs, in order: the timer decides when they run, and not which.
        self._next: Iterator[Configuration] = iter(())
        self._timer = make_timer(self._reset)
        self._best_s = math.inf
        self._lost = False
        self._compilers = ThreadPoolExecutor(MOST_THREADS)
        self._agreement = Agreement(lambda name: saved.original(outputs[name]))

    @staticmethod
    def of(call: Call, target: Target, settings: TuningSettings) -> Trials:
        """Trials on a device, before any run; the arguments are copied."""
        mine = call.tensors if settings.restored is None else call.tensors_of({*settings.restored, *settings.zeroed})
        outputs = mine if settings.outputs is None else call.tensors_of(settings.outputs)
        saved = SavedTensors(mine, call.tensors_of(settings.zeroed))
        timer = partial(BenchTimer, settings.do_bench) if settings.do_bench else partial(cold_timer, target)
        return Trials(call, saved, compared(outputs), timer, settings.hooks)

    def end(self) -> None:
        """Restore the arguments, unless nothing can be run any more.

        No further compilation begins; those under way end by themselves, and stay in Triton's cache.
        """
        self._compilers.shutdown(wait=False, cancel_futures=True)
        if not self._lost:
            self._saved.restore()

    def reset_for_call(self) -> None:
        """Announce to the user's hook that the call itself comes next, after a successful search."""
        self._hooks.reset()

    def _reset(self) -> None:
        """Restore the arguments; before every single run of the kernel."""
        self._hooks.close()
        self._saved.restore()
        self._hooks.open(next(self._next))

    def _sample(self, configurations: Sequence[Configuration]) -> list[float]:
        """Seconds of a run of each, in this order."""
        self._next = iter(configurations)
        return self._timer.sample([partial(self._call.launch, c) for c in configurations])

    def measurement(self, tried: Tried) -> Measurement:
        """The measurement as known now: the result of the majority is right."""
        found = tried.measurement
        if not found.ok or tried.result == self._agreement.winner:
            return found
        detail = "most configurations compute something else"
        return replace(found, status="wrong_result", detail=detail, latencies_s=(), timing="full")

    def compile(self, configurations: Sequence[Configuration]) -> list[Future[object]]:
        """Begin to compile these, in threads: futures of their ends."""
        begun = launching.begin_compiling(self._call, configurations, self._compilers)
        if any(c.pre_hook for c in configurations):
            # It was called, since it may change what is compiled for; its other changes are undone.
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
        """Run it once on the original arguments: the number of the result it agrees with, and the compile facts."""
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
        """Latencies of configurations that have run before, in interleaved rounds that each begin with another one."""
        count = len(configurations)
        taken: list[list[float]] = [[] for _ in configurations]
        for first in range(rounds):
            order = [(first + n) % count for n in range(count)]
            for number, seconds in zip(order, self._sample([configurations[n] for n in order]), strict=True):
                taken[number].append(seconds)
        self._hooks.close()
        return [tuple(latencies) for latencies in taken]

    def _refuse_lost_device(self, detail: str, configuration: Configuration) -> None:
        """Raise LostDeviceError if a launch left an error that stays until the process ends."""
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
