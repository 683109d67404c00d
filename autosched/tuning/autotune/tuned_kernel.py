"""What stands in the place of the user's kernel: launches it with the best known configuration, tuning where none is.

The choice for a key is made once in a process. A key is the values of the arguments that the user names, the element
types of all tensors, whether they are aligned, and the device.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import torch

from autosched.machine.devices import cpu_target, gpu_target
from autosched.tuning.autotune.call import Call, Grid, JitKernel, Keys, own_kernel
from autosched.tuning.autotune.configurations import Choices, Configuration
from autosched.tuning.autotune.fingerprint import source_fingerprint
from autosched.tuning.autotune.kernel_records import KernelRecords
from autosched.tuning.autotune.other_tables import read_history
from autosched.tuning.autotune.plan import Plan
from autosched.tuning.autotune.task import Task
from search_spaces import InputError, Target
from search_spaces.schedules.plain_space import PlainSpace, Point
from tuning_logs import Measurement

# What torch.compile says of a call that it must not look into.
_BREAKS_GRAPHS = "a kernel under autosched.autotune is called as it stands"


class TunedKernel:
    """A kernel of Triton's that is called as before: `kernel[grid](…)`. `fn` is the kernel itself."""

    def __init__(
        self, kernel: JitKernel, choices: Choices, plan: Plan, history: Sequence[str | os.PathLike[str]] = ()
    ) -> None:
        """Raises LogError: a file of `history` cannot be read, or is no recorded table."""
        self.fn = kernel
        self.arg_names = kernel.arg_names
        self._choices = choices
        self._plan = plan
        self._keys = Keys(kernel.arg_names, plan.key)
        self._history = read_history(history, self.__name__)
        self._chosen: dict[tuple[Any, ...], Configuration] = {}
        self._last: Configuration | None = None
        self._warned: set[str] = set()
        # Two threads that meet a key at once tune it once.
        self._lock = threading.RLock()

    def __getitem__(self, grid: Grid) -> Callable[..., Any]:
        return partial(self.run, grid=grid, warmup=False)

    @cached_property
    def __name__(self) -> str:
        found: Any = self.fn
        while not hasattr(found, "__name__"):
            found = found.fn
        return str(found.__name__)

    @property
    def best_config(self) -> Any:
        """What the last call was launched with, as a `triton.Config`; None before the first."""
        return None if self._last is None else self._last.as_config()

    @cached_property
    def _fingerprint(self) -> str:
        return source_fingerprint(self.fn)

    @cached_property
    def _records(self) -> KernelRecords:
        return KernelRecords(self._plan.log)

    def run(self, *arguments: Any, grid: Grid, warmup: bool = False, **keywords: Any) -> Any:
        """Launch (or with `warmup` compile) the kernel, with the configuration for these arguments.

        Raises:
            AutoschedError: no configuration works.
            InputError: none is legal.
        """
        run = self._run_uncompiled if "torch._dynamo" in sys.modules else self._run
        return run(*arguments, grid=grid, warmup=warmup, **keywords)

    # A call breaks the graph of what compiles a caller. As torch.compiler.disable does, which loads the whole compiler
    # first; where that is loaded, it hides from it what is called in turn.
    vars(run).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=_BREAKS_GRAPHS)

    @cached_property
    def _run_uncompiled(self) -> Callable[..., Any]:
        hidden: Callable[..., Any] = torch.compiler.disable(self._run)
        return hidden

    def _run(self, *arguments: Any, grid: Grid, warmup: bool, **keywords: Any) -> Any:
        key = (_device(), *self._keys.of(arguments, keywords))
        configuration = self._chosen.get(key)
        if configuration is None:
            with self._lock:
                call = Call(self.fn, arguments, keywords, grid)
                configuration = self._chosen.get(key) or self._choose(call, key, measure=not warmup)
        self._last = configuration
        if configuration.pre_hook is not None:
            Call(self.fn, arguments, keywords, grid).prepare(configuration)
        return self.fn.run(*arguments, grid=grid, warmup=warmup, **keywords, **configuration.keywords)

    def warmup(self, *arguments: Any, grid: Grid, **keywords: Any) -> Any:
        """Compile for arguments, or element types in their place, with the best configuration that is known."""
        configuration = self._choose(Call(self.fn, arguments, keywords, grid), None, measure=False)
        warm: Any = self.fn
        return warm.warmup(*arguments, grid=grid, **keywords, **configuration.keywords)

    def _choose(self, call: Call, key: tuple[Any, ...] | None, measure: bool) -> Configuration:
        """The configuration for a call, from the log or by a search; kept for the next calls unless it is a guess."""
        space = self._choices.space(call.positional, {**call.keywords, "grid": call.grid})
        found = self._only(space)
        if found is None:
            task = self._task(call, space)
            capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
            found = self._replay(call, task) or (self._search(call, task) if measure and not capturing else None)
            if found is None:
                if capturing:
                    self._warn_of_capture(task)
                return self._choices.configuration(task.guess)
        configuration = self._choices.configuration(found)
        if key is not None:
            self._chosen[key] = configuration
        return configuration

    def _only(self, space: PlainSpace) -> Point | None:
        """The one point that there is; InputError where there is none."""
        if space.points is None or len(space.points) > 1:
            return None
        if not space.points:
            raise InputError(f"{self.__name__}: no configuration is legal, or left by pruning, for these arguments")
        return space.points[0]

    def _task(self, call: Call, space: PlainSpace) -> Task:
        plan = self._plan
        kernel = own_kernel(self.__name__, self._fingerprint, call.named, plan.key)
        return Task(kernel, _target(call), space, self._choices, self._records, plan.trials, plan.seed, self._history)

    def _replay(self, call: Call, task: Task) -> Point | None:
        """What a search has ended with; what another version of Triton or the driver refuses is left out then."""
        # Loads Triton, which is there where there is a kernel to tune.
        from autosched.tuning.autotune.trials.launching import why_unusable

        while (found := task.found) is not None:
            failure = why_unusable(call, self._choices.configuration(found))
            if failure is None:
                return found
            status, detail = failure
            self._records.append(task.record(found, Measurement(status, detail=detail)))
        return None

    def _search(self, call: Call, task: Task) -> Point:
        from autosched.tuning.autotune.search import Search
        from autosched.tuning.autotune.trials.trials import Trials

        trials = Trials.of(call, task.target, self._plan)
        try:
            with torch.no_grad():
                return Search(task, trials).run()
        finally:
            trials.end()

    def _warn_of_capture(self, task: Task) -> None:
        """Once for every key."""
        if task.kernel.key not in self._warned:
            self._warned.add(task.kernel.key)
            warnings.warn(
                f"{task.kernel.label} is captured in a CUDA graph before it was tuned, and nothing is measured then: "
                "it takes the best configuration that is known; call it once before the capture",
                stacklevel=5,
            )


def _device() -> int:
    """The number of the GPU that kernels run on; -1 while there is none."""
    return torch.cuda.current_device() if torch.cuda.is_initialized() else -1


def _target(call: Call) -> Target:
    on_gpu = any(tensor.is_cuda for tensor in call.tensors.values())
    return gpu_target() if on_gpu else cpu_target()
