"""`autosched log pull | push`: a shared store of records, in a folder or in an object store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autosched.cli.arguments import LogPath, console
from autosched.replaying.arguments import log_path
from autosched.tuning.terminal import say
from search_spaces import InputError
from tuning_logs import TuningLog
from tuning_logs.several.shared_store import SharedStore
from tuning_logs.text import records_text

Place = Annotated[
    str,
    typer.Argument(metavar="STORE", help="A folder, or an address such as s3://bucket/records, which fsspec opens."),
]


def pull_command(store: Place, log: LogPath = None) -> None:
    """Add to a log what others have pushed to a shared store: every measurement once.

    ```
    autosched log pull s3://bucket/records --log tuning.jsonl
    ```
    """
    if "://" not in store and not Path(store).is_dir():
        raise InputError(f"no store at {store}; expected a folder, which a push makes, or an address")
    into = TuningLog(log_path(log))
    say(console(), f"{into.path}: {records_text(SharedStore(store).pull(into))} added")


def push_command(store: Place, log: LogPath = None) -> None:
    """Put the records of a log into a shared store, in the place of what it pushed before.

    ```
    autosched log push s3://bucket/records --log tuning.jsonl
    ```
    """
    given = TuningLog(log_path(log))
    if not given.path.exists():
        raise InputError(f"no log at {given.path}; expected one: nothing was pushed")
    say(console(), f"{store}: {records_text(SharedStore(store).push(given))} of {given.path}")
