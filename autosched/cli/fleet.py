"""`autosched fleet status | check`: the machines of a Ray cluster that measure for searches."""

from __future__ import annotations

from typing import Annotated

import typer

from autosched.cli.arguments import Commands, TargetName, console, printed_target
from autosched.tuning.terminal import say
from tuning_logs.text import duration_text, table_lines

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="The machines of a Ray cluster, on which `autosched tune --fleet` measures.",
)

Address = Annotated[
    str, typer.Argument(metavar="[ADDRESS]", help="Such as 10.0.0.1:6379; by default the cluster of this machine.")
]


@app.command("status")
def status_command(address: Address = "auto", target: TargetName = None) -> None:
    """List the nodes with their devices, and why some are refused: their versions must be those that are here.

    The exit status is 1 if a node is refused.

    ```
    autosched fleet status
    ```
    """
    from autosched.measuring.fleet.fleet import check_installed

    check_installed()
    from autosched.measuring.fleet.inspection import status

    found = status(address, printed_target(target, None))
    rows = [("node", "GPUs", "cores", "devices", "")]
    rows += [(n.name, str(n.gpus), str(n.cpus), ", ".join(n.devices), n.why_refused or "ready") for n in found]
    say(console(), *table_lines(rows, right=(1, 2)))
    if any(node.why_refused and node.cpus for node in found):
        raise typer.Exit(1)


@app.command("check")
def check_command(address: Address = "auto", target: TargetName = None) -> None:
    """Measure a small product on every card of the target. The exit status is 1 if one fails.

    The standard error has what it waits for.

    ```
    autosched fleet check --target h200
    ```
    """
    from autosched.measuring.fleet.fleet import check_installed

    check_installed()
    from autosched.measuring.fleet.inspection import check

    failed = False

    def waiting(text: str) -> None:
        typer.echo(f"waiting {text}", err=True)

    for card in check(address, printed_target(target, None), waiting=waiting):
        measured = card.measurement
        failed |= not measured.ok
        result = duration_text(measured.latency_s) if measured.ok else f"{measured.status}: {measured.detail}"
        say(console(), f"{card.card or 'a card'}: {result}")
    if failed:
        raise typer.Exit(1)
