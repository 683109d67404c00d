"""Replacement of the user's kernel: launches it with the best known configuration, and tunes if there is none.

The choice for a key is made once in a process. A key is the values of the arguments that the user names, the element
types of all tensors, their alignment, and the device.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from functools import cached_property, partial
from itertools import islice
from typing import Any

import torch

from autosched.kernels.strict import is_strict
from autosched.machine.devices import cpu_target, gpu_target
from autosched.tuning.autotune.calls.call import Call, Keys, own_kernel
from autosched.tuning.autotune.calls.call_checks import (
    check_devices,
    check_given,
    check_key,
    check_known,
    check_tensors_named,
)
from autosched.tuning.autotune.calls.fingerprint import source_fingerprint
from autosched.tuning.autotune.calls.jit_kernel import Grid, JitKernel, Parameters, function_of
from autosched.tuning.autotune.configurations import Choices, Configuration
from autosched.tuning.autotune.kernel_records import KernelRecords, tables_of_kernel
from autosched.tuning.autotune.settings import TuningSettings
from autosched.tuning.autotune.task import TuningTask
from search_spaces import InputError
from search_spaces.schedules.plain_space import PlainSpace, Point
from tuning_logs import Measurement

# Kernels are tuned one after the other, whichever threads call them: concurrent work would be timed with a trial.
_TUNING = threading.RLock()
# Configurations tried where nothing may be measured: each is compiled before the call goes on.
_MOST_GUESSES = 8
# Message of torch.compile for a call that it must not trace into.
_BREAKS_GRAPHS = "a kernel under autosched.autotune is called as it stands"


class TunedKernel:
    """A Triton kernel that is called as before: `kernel[grid](…)`. `fn` is the kernel itself."""

    def __init__(self, kernel: JitKernel, choices: Choices, settings: TuningSettings) -> None:
        """Raises LogError: a file of the history cannot be read, or is no recorded table."""
        self.fn = kernel
        self.arg_names = kernel.arg_names
        self._choices = choices
        self._settings = settings
        self._keys = Keys(kernel.arg_names, settings.key)
        self._tables = tables_of_kernel(settings.history, self.__name__)
        self._chosen: dict[tuple[Any, ...], Configuration] = {}
        # Keys for which every configuration failed, and the reason.
        self._failed: dict[tuple[Any, ...], str] = {}
        self._last: Configuration | None = None
        self._warned: set[str] = set()

    def __getitem__(self, grid: Grid) -> Callable[..., Any]:
        return partial(self.run, grid=grid, warmup=False)

    @cached_property
    def __name__(self) -> str:
        return function_of(self.fn).__name__

    @property
    def best_config(self) -> Any:
        """The configuration of the last call, as a `triton.Config`; None before the first."""
        return None if self._last is None else self._last.as_config()

    @cached_property
    def _fingerprint(self) -> str:
        return source_fingerprint(self.fn)

    @cached_property
    def _parameters(self) -> Parameters:
        return Parameters.of(self.fn)

    @cached_property
    def _records(self) -> KernelRecords:
        return KernelRecords(self._settings.log)

    def run(self, *arguments: Any, grid: Grid, warmup: bool = False, **keywords: Any) -> Any:
        """Launch (or with `warmup` compile) the kernel, with the configuration for these arguments.

        Raises:
            InputError: the arguments do not fit the kernel, or no configuration is legal; nothing was tried.
            AutoschedError: no configuration works.
        """
        run = self._run_uncompiled if "torch._dynamo" in sys.modules else self._run
        return run(*arguments, grid=grid, warmup=warmup, **keywords)

    # A call breaks the graph of a compiled caller. As torch.compiler.disable does, which loads the whole compiler
    # first; where that is loaded, it hides nested calls from it.
    vars(run).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=_BREAKS_GRAPHS)

    @cached_property
    def _run_uncompiled(self) -> Callable[..., Any]:
        hidden: Callable[..., Any] = torch.compiler.disable(self._run)
        return hidden

    def _run(self, *arguments: Any, grid: Grid, warmup: bool, **keywords: Any) -> Any:
        key = (_device(), *self._keys.of(arguments, keywords))
        configuration = self._chosen.get(key)
        if configuration is None:
            with _TUNING:
                call = Call(self.fn, arguments, keywords, grid)
                configuration = self._chosen.get(key) or self._choose(call, key, measure=not warmup)
        self._last = configuration
        if configuration.pre_hook is not None:
            Call(self.fn, arguments, keywords, grid).prepare(configuration)
        return self.fn.run(*arguments, grid=grid, warmup=warmup, **keywords, **configuration.keywords)

    def warmup(self, *arguments: Any, grid: Grid, **keywords: Any) -> Any:
        """Compile for arguments, or element types in their place, with the best known configuration."""
        from autosched.tuning.autotune.trials.launching import mocked

        call = Call(self.fn, mocked(arguments), keywords, grid)
        return call.compile(self._choose(call, None, measure=False))

    def forget_failures(self) -> None:
        """Let the next call try again where all configurations had failed; until then it raises the same error."""
        self._failed.clear()

    def _choose(self, call: Call, key: tuple[Any, ...] | None, measure: bool) -> Configuration:
        """The configuration for a call, from the log or by a search; kept for the next calls unless it is a guess.

        Raises:
            InputError: `strict` refuses a search and a guess.
        """
        self._check(call)
        space = self._choices.space(call.positional, {**call.keywords, "grid": call.grid})
        found = self._only(space)
        if found is None:
            task = self._task(call, space)
            found = self._replay(call, task)
            if found is None and is_strict(self._settings.strict):
                raise InputError(
                    f"strict: {task.kernel.label}: {task.why_unfinished}; without strict the call tunes it"
                )
            if found is None and (not measure or self._captured(task)):
                return self._guess(call, task)
            if found is None:
                found = self._search(call, task, key)
        configuration = self._choices.configuration(found)
        if key is not None:
            self._chosen[key] = configuration
        return configuration

    @cached_property
    def _compiles(self) -> bool:
        """True if it runs on the GPU; otherwise it is interpreted, on the processor."""
        # Loads Triton, which is installed where there is a kernel to tune.
        from autosched.tuning.autotune.trials.launching import compiles

        return compiles(self.fn)

    def _check(self, call: Call) -> None:
        """Raise InputError if a call is wrong with every configuration."""
        from autosched.tuning.autotune.trials.launching import launch_options

        settings = self._settings
        check_given(call, self._parameters, self._choices.names)
        check_key(call, settings.key)
        named = {"reset_to_zero": settings.zeroed, "restore_value": settings.restored, "outputs": settings.outputs}
        check_tensors_named(call, named)
        if self._compiles:
            check_devices(call.tensors, _current_gpu())
            check_known(call, self._parameters, self._choices.names, launch_options())

    def _only(self, space: PlainSpace) -> Point | None:
        """The only point, if there is just one; InputError if there is none."""
        if space.points is None or len(space.points) > 1:
            return None
        if not space.points:
            raise InputError(f"{self.__name__}: no configuration is legal, or left by pruning, for these arguments")
        return space.points[0]

    def _task(self, call: Call, space: PlainSpace) -> TuningTask:
        settings = self._settings
        kernel = own_kernel(self.__name__, self._fingerprint, call.named, settings.key)
        return TuningTask(
            kernel,
            gpu_target() if self._compiles else cpu_target(),
            space,
            self._choices,
            self._records,
            trials=settings.trials,
            seed=settings.seed,
            tables=self._tables,
        )

    def _replay(self, call: Call, task: TuningTask) -> Point | None:
        """The result of a finished search, without configurations that a newer Triton or driver refuses."""
        from autosched.tuning.autotune.trials.launching import why_unusable

        while (found := task.found) is not None:
            failure = why_unusable(call, self._choices.configuration(found))
            if failure is None:
                return found
            status, detail = failure
            self._records.append(task.record(found, Measurement(status, detail=detail)))
        return None

    def _guess(self, call: Call, task: TuningTask) -> Configuration:
        """The first of the best guesses that compiles; if none does, the best, which will raise the reason."""
        from autosched.tuning.autotune.trials.launching import why_unusable

        some = [self._choices.configuration(point) for point in islice(task.guesses(), _MOST_GUESSES)]
        return next((configuration for configuration in some if why_unusable(call, configuration) is None), some[0])

    def _search(self, call: Call, task: TuningTask, key: tuple[Any, ...] | None) -> Point:
        from autosched.tuning.autotune.search import NoneWorksError, search
        from autosched.tuning.autotune.trials.trials import Trials

        if key in self._failed:
            raise NoneWorksError(f"{self._failed[key]} (nothing is tried again before forget_failures() is called)")
        trials = Trials.of(call, task.target, self._settings)
        try:
            with torch.no_grad():
                found = search(task, trials)
        except NoneWorksError as error:
            if key is not None:
                self._failed[key] = str(error)
            raise
        finally:
            trials.end()
        trials.reset_for_call()
        return found

    def _captured(self, task: TuningTask) -> bool:
        """True if the call is captured in a CUDA graph; warns once for every key."""
        capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
        if capturing and task.kernel.key not in self._warned:
            self._warned.add(task.kernel.key)
            warnings.warn(
                f"{task.kernel.label} is captured in a CUDA graph before it was tuned, and nothing is measured then: "
                "it takes the best configuration that is known; call it once before the capture",
                stacklevel=5,
            )
        return capturing


def _current_gpu() -> torch.device | None:
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else None


def _device() -> int:
    """The number of the GPU that kernels run on; -1 while there is none."""
    return torch.cuda.current_device() if torch.cuda.is_initialized() else -1
