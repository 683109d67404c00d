"""`autotune`: the decorator, and the checks of its arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autosched.replaying.arguments import check_integer, written_log_path
from autosched.tuning.autotune.calls.jit_kernel import JitKernel, Parameters, layers
from autosched.tuning.autotune.configurations import (
    LAUNCH_OPTIONS,
    KnobChoices,
    Legal,
    ListChoices,
    ListedConfig,
    check_names,
)
from autosched.tuning.autotune.settings import DoBench, Hooks, TuningSettings
from autosched.tuning.autotune.tuned_kernel import TunedKernel
from search_spaces import InputError


def autotune(
    configs: Sequence[ListedConfig] | None = None,
    key: Sequence[str] = (),
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Collection[str] | None = None,
    restore_value: Collection[str] | None = None,
    pre_hook: Callable[..., object] | None = None,
    post_hook: Callable[..., object] | None = None,
    warmup: int | None = None,
    rep: int | None = None,
    use_cuda_graph: bool = False,
    do_bench: DoBench | None = None,
    cache_results: bool = False,
    *,
    space: Mapping[str, Sequence[Any]] | None = None,
    legal: Legal | None = None,
    trials: int = 64,
    outputs: Collection[str] | None = None,
    log: str | os.PathLike[str] | None = None,
    seed: int = 0,
    history: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    strict: bool = False,
) -> Callable[[Any], TunedKernel]:
    """Tune a kernel of your own, in the place of `triton.autotune`: above `@triton.jit`, with the same arguments.

    @autosched.autotune(space={"BLOCK": [64, 128, 256], "num_warps": [2, 4, 8]}, key=["n"])
    @triton.jit
    def kernel(x, y, n, BLOCK: tl.constexpr): ...

    `space` gives every knob its values, and `legal` is a rule: a function of a dictionary of the call's arguments and
    the knobs' values. The first call with new values of `key`, element types or alignment tries up to `trials`
    configurations on its own arguments, all of which are restored, and writes each trial to `log` (by default the
    user's); the next process takes the winner from there. Configurations with other results than most are never chosen:
    `outputs` names the arguments to compare. `history` names files with others' measurements of this kernel, for a warm
    start. `strict`, or `AUTOSCHED_STRICT=1` in the environment, refuses calls whose winner the log does not have,
    instead of searching or guessing. docs/autotune.md describes all of it, and Triton's arguments: `warmup`, `rep`,
    `use_cuda_graph` and `cache_results` have no effect here.

    Raises:
        InputError: an argument is not allowed, or names something that the kernel lacks.
        LogError: the log is out of reach, or a file of `history` is none.
    """
    check_integer("trials", trials, 1)
    check_integer("seed", seed, 0)
    _check_choices(configs, space, legal, prune_configs_by)
    named = {"key": key, "reset_to_zero": reset_to_zero, "restore_value": restore_value, "outputs": outputs}
    _check_lists(named)
    settings = TuningSettings(
        key=tuple(key or ()),
        trials=trials,
        seed=seed,
        log=written_log_path(log),
        outputs=outputs,
        zeroed=tuple(reset_to_zero or ()),
        restored=restore_value,
        hooks=Hooks(pre_hook, post_hook),
        do_bench=do_bench,
        history=_files(history),
        strict=strict,
    )

    def decorate(kernel: JitKernel) -> TunedKernel:
        _check_kernel(kernel)
        parameters = Parameters.of(kernel)
        _check_arguments(parameters, named, space or {})
        if space is None:
            return TunedKernel(kernel, ListChoices(configs or (), prune_configs_by), settings)
        return TunedKernel(kernel, KnobChoices(space, legal, parameters.defaults), settings)

    return decorate


def _files(history: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None) -> tuple[Path, ...]:
    if history is None:
        return ()
    some = [history] if isinstance(history, str | os.PathLike) else history
    if not isinstance(some, list | tuple) or not all(isinstance(path, str | os.PathLike) for path in some):
        raise InputError(f"history={history!r}; expected the path of a file, or a list of paths")
    return tuple(map(Path, some))


def _check_lists(named: Mapping[str, Iterable[str] | None]) -> None:
    for what, names in named.items():
        if isinstance(names, str):
            raise InputError(f'{what}="{names}"; expected a list of names, such as ["{names}"]')


def _check_arguments(
    parameters: Parameters, named: Mapping[str, Iterable[str] | None], space: Mapping[str, object]
) -> None:
    """Raise InputError unless every name is an argument of the kernel, or a launch option."""
    for what, names in named.items():
        check_names(what, list(names or ()), parameters.names)
    check_names("space", list(space), [*parameters.names, *sorted(LAUNCH_OPTIONS)])
    if computed := sorted(parameters.computed & set(space)):
        raise InputError(f"{', '.join(computed)}: computed by triton.heuristics, whatever is chosen; no knob of space=")
    if both := sorted(set(space) & set(named["key"] or ())):
        raise InputError(f"{', '.join(both)}: a knob of space= is chosen for a key, and cannot be a part of it")


def _check_choices(configs: object, space: object, legal: object, prune_configs_by: object) -> None:
    """Raise InputError unless there is a space, with a rule or without, or a list of configurations."""
    if callable(configs) or hasattr(configs, "arg_names"):
        raise InputError("expected @autosched.autotune(space={…}, key=[…]) above a kernel; got it without arguments")
    if (configs is None) == (space is None):
        raise InputError("expected either space={knob: values, …} or configs=[triton.Config(…), …], and not both")
    if legal is not None and (space is None or not callable(legal)):
        raise InputError("legal= is a function, and a rule over space=; a list of configs has prune_configs_by=")
    if prune_configs_by is not None and space is not None:
        raise InputError("prune_configs_by= prunes configs=; a rule over space= is legal=")
    if space is None:
        if not isinstance(configs, list | tuple) or not configs or not all(hasattr(c, "all_kwargs") for c in configs):
            raise InputError(f"configs={configs!r}; expected a list of triton.Config, at least one")
    elif (
        not isinstance(space, Mapping)
        or not space
        or not all(isinstance(v, list | tuple | range) for v in space.values())
    ):
        raise InputError(f'space={space!r}; expected the values of every knob, such as {{"BLOCK": [64, 128]}}')


def _check_kernel(kernel: object) -> None:
    if not hasattr(kernel, "arg_names") or not hasattr(kernel, "run"):
        raise InputError(f"got {type(kernel).__name__}; expected a kernel: a function under @triton.jit")
    if any(hasattr(layer, "prune_configs") or isinstance(layer, TunedKernel) for layer in layers(kernel)):
        raise InputError("the kernel is under another autotune; expected one of them, in the place of the other")
