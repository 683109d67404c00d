"""`autosched certificate | verify`: the evidence for the winners of a log, and its repetition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from autosched.cli.arguments import console
from autosched.tuning.terminal import say
from search_spaces import InputError
from search_spaces.errors import unknown_name

LogArgument = Annotated[Path, typer.Argument(metavar="LOG", help="A log, or a folder of compressed ones.")]
Select = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        metavar="TEXT",
        help="Only kernels with this in their name, such as softmax or h200, or with this key; may be repeated.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def certificate_command(log: LogArgument, select: Select = None, as_json: AsJson = False) -> None:
    """Print the certificate of every winner in a log: everything needed to judge and repeat that it won.

    Searches write one with their finals. docs/trust.md explains its parts, and has the schema of the JSON.

    ```
    autosched certificate tuning.jsonl --select softmax
    ```
    """
    from autosched.reporting.certificates import certificate_text
    from autosched.reporting.winners import winners

    found = winners(log, select or ())
    if not found:
        raise InputError(f"{log} holds no kernel{_selected(select)}")
    if as_json:
        held = [r.measurement.certificate for r in found]
        typer.echo(json.dumps([certificate.to_json() for certificate in held if certificate]))
        return
    say(console(), *"\n\n".join(map(certificate_text, found)).split("\n"))


def verify_command(
    log: LogArgument,
    select: Select = None,
    against: Annotated[
        str, typer.Option(metavar="recorded|library", help="Compare with the recorded speed-up, or with the library.")
    ] = "recorded",
    as_json: AsJson = False,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a JUnit file, too.")] = None,
    no_device: Annotated[
        bool, typer.Option("--no-device", help="Rebuild and compare only; GPUs need not be here.")
    ] = False,
) -> None:
    """Rebuild the winners of a log, check their results, and time them again in pairs with the library.

    Verdicts: same, faster, slower, ambiguous (the rounds do not tell), broken (not built, wrong, or crashed), unfit
    (not for this machine). The exit status is 1 if a kernel is slower or broken, and 2 if none matched, or none could
    be verified. The log is only read.

    ```
    autosched verify tuning.jsonl --junit verified.xml
    autosched verify tuning.jsonl --no-device
    ```
    """
    from autosched.reporting.junit import junit_xml
    from autosched.reporting.verify import AGAINST, Verification, verified

    chosen = next((name for name in AGAINST if name == against), None)
    if chosen is None:
        raise unknown_name("comparison", against, AGAINST)
    if junit and not junit.parent.is_dir():
        raise InputError(f"no folder {junit.parent} for {junit.name}; expected one")
    out, found = console(), []
    for kernel in verified(log, select=select or (), against=chosen, device=not no_device):
        found.append(kernel)
        if not as_json:
            say(out, str(kernel))
    done = Verification(tuple(found))
    if junit:
        try:
            junit.write_bytes(junit_xml(done))
        except OSError as error:
            raise InputError(f"cannot write {junit}: {error.strerror}") from error
    if as_json:
        typer.echo(json.dumps(done.to_json()))
    else:
        say(out, done.counts)
    raise typer.Exit(done.exit_status)


def _selected(select: list[str] | None) -> str:
    return f" with {' or '.join(map(repr, select))} in its name" if select else " that succeeded"
