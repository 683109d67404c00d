"""`autosched report | watch`: a log as an HTML file, and a search under way in a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autosched.cli.arguments import console
from autosched.cli.trust import LogArgument, Select
from autosched.replaying.arguments import log_path
from autosched.tuning.terminal import say


def report_command(
    log: LogArgument,
    to: Annotated[Path, typer.Option("--to", "-o", metavar="FILE", help="The HTML file to write.")],
    select: Select = None,
) -> None:
    """Write a log as one HTML file, which needs no network: an overview, and for every kernel what its trials tell.

    ```
    autosched report tuning.jsonl -o run.html --select matmul
    ```
    """
    from autosched.reporting.html.report import report

    path = report(log, to, select=select or ())
    say(console(), f"{path}; open it in a browser")


def watch_command(
    log: Annotated[
        Path | None, typer.Argument(metavar="LOG", help="The log of the search; by default the user's.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show it once, and end.")] = False,
) -> None:
    """Show a search under way, from its log: the best so far of every kernel, trials, failures and pace.

    The search runs in another process, and is not disturbed. Ctrl-C ends the display.

    ```
    autosched watch tuning.jsonl
    ```
    """
    from autosched.reporting.watch import watch

    watch(log_path(log), console(), once=once)
