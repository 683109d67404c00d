"""`autosched tune-model | export-model`: the kernels of a model, tuned into a log, and the model as a file."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any, cast

import typer

import autosched
from autosched.cli.arguments import (
    Cubins,
    FleetAddress,
    LogPath,
    Seconds,
    TargetName,
    TrialsText,
    chosen_fleet,
    chosen_target,
    chosen_trials,
    console,
)
from autosched.cli.tune_many import show_tuning
from autosched.torch_compile.user_models import Model, model_and_inputs
from autosched.tuning.terminal import say
from search_spaces import InputError

ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FUNCTION",
        help="A function without arguments, of a Python module on the path or in this folder, which is executed. It "
        "returns a model and its inputs: a callable and a sequence.",
    ),
]


def tune_model_command(
    model: ModelName,
    trials: TrialsText = "2000",
    seconds: Seconds = None,
    target: TargetName = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads that CPU kernels use; by default as many as PyTorch has.")
    ] = None,
    fleet_address: FleetAddress = None,
    log: LogPath = None,
    backward: Annotated[bool, typer.Option("--backward", help="The graphs of training instead of inference.")] = False,
    numerics: Annotated[
        str, typer.Option(help="The algebra that may take the place of what is written: eager, reassociate or fold.")
    ] = "reassociate",
) -> None:
    """Tune the kernels of every graph of a model together: where it is compiled with that log, nothing is searched.

    The model is called once, on the device of its inputs. Each trial goes where it should take most off the sum of all
    kernels' times; with auto each kernel has as many as are worth it.

    ```
    autosched tune-model models:bert --trials 4000 --log bert.jsonl
    ```
    """
    device = target if threads is None else chosen_target(target, threads)
    called, inputs = _made(model)
    show_tuning(
        lambda show: autosched.tune_model(
            called,
            *inputs,
            target=device,
            trials=chosen_trials(trials),
            seconds=seconds,
            log=log,
            measurer=chosen_fleet(fleet_address),
            backward=backward,
            numerics=cast(Any, numerics),
            on_progress=show,
        )
    )


def export_model_command(
    model: ModelName,
    to: Annotated[Path, typer.Option(help="The Python file to write.")],
    target: TargetName = None,
    log: LogPath = None,
    cubins: Cubins = False,
) -> None:
    """Write a model, by the kernels of a log, to a Python file that needs PyTorch, and not autosched.

    The file has no weights: its class takes a state dict, and is called as the model. What has no kernels in the log is
    left to PyTorch's operators.

    ```
    autosched export-model models:bert --target h200 --log bert.jsonl --to bert.py
    ```
    """
    called, inputs = _made(model)
    path = autosched.export_model(called, *inputs, path=to, target=target, log=log, cubins=cubins)
    say(console(), f"{path}; run it to check and time it")


def _made(name: str) -> tuple[Model, list[Any]]:
    """The model and the inputs that a function returns.

    Raises:
        InputError: there is no such function, or it returns something else. And what it raises.
    """
    module, _, function = name.partition(":")
    # Its functions may import more while they run.
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), function)
    except (ModuleNotFoundError, AttributeError, ValueError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name != module:
            raise
        raise InputError(f"{name}: {error}; expected MODULE:FUNCTION") from None
    if not callable(found):
        raise InputError(f"{name}: {type(found).__name__}; expected a function without arguments")
    return model_and_inputs(name, found())
