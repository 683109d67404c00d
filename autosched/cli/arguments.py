"""Arguments that commands share, such as those that name an operator, and the display of errors."""

from __future__ import annotations

import errno
import io
import sys
import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from rich.console import Console
from typer.core import TyperGroup

import cost_models
from autosched import strategies
from autosched.baselines.names import BASELINES, BaselineName, check_baselines
from autosched.machine.policies import Policy
from autosched.tuning.terminal import say
from search_spaces import AutoschedError, InputError, Target, Workload, ops
from search_spaces.ops.conv import LAYOUTS as CONV_LAYOUTS
from search_spaces.ops.conv import WEIGHT_LAYOUTS
from search_spaces.ops.matmul import LAYOUTS, OPERANDS
from search_spaces.workloads.activations import CHAIN_LINKS
from search_spaces.workloads.dtypes import FLOATS

if TYPE_CHECKING:
    from autosched.measuring.fleet.fleet import Fleet
    from autosched.tuning.searching.preparation import Trials
    from autosched.tuning.searching.sources import OtherLogs

# Exit status of usage errors, by the convention of shells.
_USAGE_ERROR = 2
# Exit status of a command that Ctrl-C ended, by the convention of shells: 128 + SIGINT.
INTERRUPTED = 130

# Width left of 80 columns within the frame.
_WIDTH = 76
_OPERATORS = "\n".join(
    textwrap.fill(ops.usage(name), _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    for name in sorted(ops.CONSTRUCTORS)
)
_VALUES = f"""\
dtype            {", ".join(FLOATS)}
  of products    these, {", ".join(name for name in OPERANDS if name not in FLOATS)}
out_dtype        a dtype; by default that of the operands, bfloat16 for
                 8-bit floats, int32 for int8; int8 with an epilogue
                 has none: float32, float16 or bfloat16
layout           {", ".join(LAYOUTS)}
  of conv        {", ".join(CONV_LAYOUTS)}
weight_layout    {", ".join(WEIGHT_LAYOUTS)}
size, kernel …   of one to three dimensions: 56x56; or, but for size, one
                 number for all of them; padding also same
epilogue, chain  joined by "_": {", ".join(CHAIN_LINKS[:5])},
                 {", ".join(CHAIN_LINKS[5:])}"""
# Text below the help of every command that takes an operator.
OPERATORS_EPILOG = f"""
Operators and their arguments:

```
{_OPERATORS}
```

Values of some of these:

```
{_VALUES}
```
"""

Operator = Annotated[str, typer.Argument(help="The operator: " + ", ".join(sorted(ops.CONSTRUCTORS)) + ".")]
Sizes = Annotated[
    list[str],
    # Without any, the error says which sizes the operator has, or that there is no such operator.
    typer.Argument(
        metavar="NAME=VALUE…",
        help="Its sizes and options, such as m=512 n=512 k=512 dtype=float32.",
        default_factory=list,
        show_default=False,
    ),
]
TargetName = Annotated[
    str | None,
    typer.Option(
        "--target", help="Such as cpu, cuda or h200 (see `autosched targets`); by default the GPU or CPU that is here."
    ),
]
FleetAddress = Annotated[
    str | None,
    typer.Option(
        "--fleet", metavar="ADDRESS", help="Measure on a Ray cluster: its address, or auto for the one that is here."
    ),
]
Threads = Annotated[int | None, typer.Option(help="Threads that a CPU kernel uses; by default one.")]
LogPath = Annotated[
    Path | None,
    typer.Option(
        "--log", help="The tuning log; by default autosched/tuning.jsonl under XDG_DATA_HOME, or else ~/.local/share."
    ),
]
Cubins = Annotated[
    bool,
    typer.Option(
        "--cubins", help="Compiled kernels in the file, for the target's compute capability: no compiler later."
    ),
]
StrategyName = Annotated[str, typer.Option("--strategy", help=f"The search strategy: {', '.join(strategies.names())}.")]
CostModelName = Annotated[
    str, typer.Option("--cost-model", help=f"The cost model that ranks candidates: {', '.join(cost_models.names())}.")
]
BackendName = Annotated[
    str | None,
    typer.Option(
        "--backend", help="The backend of the kernels: triton, cuda or llvm; by default all that can be used."
    ),
]
PolicyName = Annotated[
    Policy,
    typer.Option(
        "--policy",
        help="Time with cold caches (as amid other work), with hot ones (repeated calls), launched by a CUDA graph, or "
        "with activations in the caches and weights in memory (as within a model).",
    ),
]
TrialsText = Annotated[
    str,
    typer.Option(
        metavar="NUMBER|auto",
        help="Schedules that the log has in the end, earlier runs included; auto: as many as are worth it.",
    ),
]
HistoryPaths = Annotated[
    list[Path] | None,
    typer.Option(
        "--history", help="A further tuning log for a warm start, a colleague's or another machine's; may be repeated."
    ),
]
Cold = Annotated[
    bool,
    typer.Option(
        "--cold",
        help="No warm start from other logs, not even shipped ones; similar kernels of one call still share records.",
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of every random choice.")]
Only = Annotated[
    list[str] | None, typer.Option(metavar="NAME,…", help="Only these of the suite, by name; may be repeated.")
]
Rounds = Annotated[
    int | None,
    typer.Option(help="Interleaved rounds of timing all contenders; by default as many as fit two seconds, 30 to 200."),
]
Baselines = Annotated[str | None, typer.Option(metavar="NAME,…", help="Among " + ", ".join(BASELINES) + ".")]

Seconds = Annotated[
    float | None,
    typer.Option("--seconds", help="Limit of the time, finals included; a kernel without any success goes on."),
]


def chosen_trials(text: str) -> Trials:
    """The number of trials of `200`, or `auto`.

    Raises:
        InputError: it is neither.
    """
    if text == "auto":
        return "auto"
    try:
        return int(text)
    except ValueError:
        raise InputError(f"--trials {text}: expected a number, or auto") from None


def chosen_history(history: list[Path] | None, cold: bool) -> OtherLogs:
    """The argument `history` of `tune`.

    Raises:
        InputError: both are given.
    """
    if cold and history:
        raise InputError("--cold starts from no other log; expected it without --history")
    return () if cold else history or None


def chosen_baselines(text: str | None, default: tuple[BaselineName, ...]) -> tuple[BaselineName, ...]:
    """The baselines of `library,cublaslt`.

    Raises:
        InputError: one is unknown, or named twice.
    """
    return default if text is None else check_baselines(name.strip() for name in text.split(","))


def chosen_names(only: list[str] | None) -> list[str]:
    """The names of `["square-512,odd-1000", "tall"]`."""
    return [name for names in only or () for name in names.split(",")]


def chosen_target(name: str | None, threads: int | None) -> Target:
    """The target of that name, or the default one; a CPU with that many threads.

    Raises:
        InputError: no such target, or threads are given for a GPU, or more than there are.
        TargetUnavailableError: it is not on this machine.
    """
    from autosched.machine import devices

    target = devices.resolve(name)
    if threads is None:
        return target
    if target.kind != "cpu":
        raise InputError(f"--threads {threads} is for CPUs; the target is {target.device}")
    return devices.cpu_target(threads)


def chosen_fleet(address: str | None) -> Fleet | None:
    """The fleet at an address; None to measure on this machine.

    Raises:
        InputError: there is no cluster.
    """
    if address is None:
        return None
    from autosched.measuring.fleet.fleet import fleet

    return fleet(address)


def printed_target(name: str | None, threads: int | None) -> Target:
    """A target for printing only: a GPU need not be here."""
    from autosched.machine import devices

    return devices.described(name) if threads is None else chosen_target(name, threads)


def workload(operator: str, sizes: list[str]) -> Workload:
    """The workload of `matmul` and `["m=512", "n=512", "k=512"]`.

    Raises:
        InputError: no such operator, or an argument is unknown, missing, repeated or not of the form NAME=VALUE.
    """
    arguments: dict[str, str] = {}
    for size in sizes:
        name, equals, value = size.partition("=")
        if not (name and equals and value):
            raise InputError(f"got {size!r}; expected NAME=VALUE, such as m=512")
        if name in arguments:
            raise InputError(f"{name} is given twice: {arguments[name]} and {value}")
        arguments[name] = value
    return ops.construct(operator, arguments)


def console(stderr: bool = False) -> Console:
    """Output of a command."""
    return Console(stderr=stderr, highlight=False)


class Commands(TyperGroup):
    """Commands whose AutoschedErrors end in one red line and exit status 2, without a traceback."""

    # Typer's versions declare contexts of different classes, all of them bases of this one.
    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        _print_whatever_the_encoding()
        return super().parse_args(ctx, args)

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except AutoschedError as error:
            raise _ended(str(error)) from None
        except OSError as error:
            # A closed pipe is Typer's to handle: a reader that stops early ends a command silently.
            if error.errno != errno.ENOSPC:
                raise
            raise _ended(f"cannot write: {error}") from None


def _ended(reason: str) -> typer.Exit:
    say(console(stderr=True), f"error: {reason}", style="red")
    return typer.Exit(_USAGE_ERROR)


def _print_whatever_the_encoding() -> None:
    """Print a question mark, instead of failing, for a character that the encoding lacks (µ, in ASCII)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    say(console(stderr=True), f"warning: {message}", style="yellow")
