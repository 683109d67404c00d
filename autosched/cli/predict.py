"""`autosched predict`: schedules for a device that need not be here. `autosched model report`: quality of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

import autosched
from autosched.cli.arguments import (
    BackendName,
    LogPath,
    Operator,
    PolicyName,
    Seed,
    Sizes,
    TargetName,
    console,
    workload,
)
from autosched.replaying.arguments import check_integer, log_path
from autosched.tuning.terminal import say
from search_spaces import InputError
from tuning_logs import shipped_logs

model_app = typer.Typer(no_args_is_help=True, help="Quality of the cost model that guides a search.")


def predict_command(
    operator: Operator,
    sizes: Sizes,
    target: TargetName = None,
    count: Annotated[int, typer.Option("--count", help="How many schedules to show and keep.")] = 10,
    history: Annotated[
        list[Path] | None,
        typer.Option("--history", help="A further tuning log to learn from; may be given several times."),
    ] = None,
    log: LogPath = None,
    policy: PolicyName = "cold",
    seed: Seed = 0,
    backend: BackendName = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of a table.")] = False,
) -> None:
    """Rank the schedules of an operator for a device that need not be here; nothing is measured.

    A cost model learns from the logs of other devices and shapes: the user's, those of --history, and those that come
    with autosched. The best schedules are compiled for the target: registers, spills and shared memory are the
    compiler's figures; times are predicted, each with the interval of held-out kernels with such a prediction. The
    result is stored next to the log, in LOG.predictions; `autosched replay … --predicted` builds it on a machine with
    the device.

    ```
    autosched predict matmul m=4096 n=4096 k=4096 dtype=float16 --target v100
    ```
    """
    found = autosched.predict(
        workload(operator, sizes),
        target,
        count=count,
        history=history or (),
        log=log,
        policy=policy,
        seed=seed,
        backend=backend,
    )
    text = json.dumps(found.to_json(), allow_nan=False) if as_json else str(found)
    say(console(), text)


@model_app.command("report")
def report_command(
    logs: Annotated[
        list[Path] | None, typer.Argument(metavar="[LOG]…", help="Tuning logs; by default those that ship.")
    ] = None,
    most: Annotated[
        int, typer.Option(help="Of each kernel so many of the fastest, and a quarter of slower ones.")
    ] = 100,
    seed: Seed = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON, with every kernel, instead.")
    ] = False,
) -> None:
    """Judge the cost model of a search on unseen data: held-out schedules, shapes and devices.

    Both before compiling, and, where records have them, with registers, spills and shared memory. The shipped logs take
    a minute.

    ```
    autosched model report tuning.jsonl
    ```
    """
    from autosched.tuning.model_report import model_report

    check_integer("--most", most, 1)
    check_integer("--seed", seed, 0)
    for log in logs or ():
        if not log_path(log).is_file():
            raise InputError(f"there is no file {log}; expected a tuning log")
    report = model_report(logs or shipped_logs(), most, seed)
    say(console(), json.dumps(report.to_json()) if as_json else str(report))
