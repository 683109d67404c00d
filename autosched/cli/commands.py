"""All commands: `demo`, `tune`, `ask-tell` and `targets`, and those of the other modules.

As in the other modules of commands, each command imports PyTorch itself if it needs it: help, usage errors and commands
that only read files take a fraction of the time of that import.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import autosched
from autosched.cli import bench, fleet, kernels, logs, models, trust
from autosched.cli.arguments import (
    INTERRUPTED,
    OPERATORS_EPILOG,
    BackendName,
    Cold,
    Commands,
    CostModelName,
    FleetAddress,
    HistoryPaths,
    LogPath,
    Operator,
    PolicyName,
    Seconds,
    Seed,
    Sizes,
    StrategyName,
    TargetName,
    Threads,
    TrialsText,
    chosen_fleet,
    chosen_history,
    chosen_target,
    chosen_trials,
    console,
    workload,
)
from autosched.cli.ask_tell import serve
from autosched.cli.predict import model_app, predict_command
from autosched.cli.reports import report_command, watch_command
from autosched.cli.simulate import simulate_command
from autosched.cli.stability import stability_command
from autosched.cli.tune_many import tune_many_command
from autosched.replaying.arguments import log_path
from autosched.tuning.progress import progress_display
from autosched.tuning.terminal import say

_EPILOG = f"""{OPERATORS_EPILOG}
A first session:

```
autosched demo
autosched tune matmul m=512 n=512 k=512 --trials 200
autosched compare matmul m=512 n=512 k=512
autosched replay matmul m=512 n=512 k=512 --source
```
"""

app = typer.Typer(
    cls=Commands,
    name="autosched",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Search for fast GPU and CPU kernels: tune an operator, keep every trial in a log, replay the best kernel.",
    epilog=_EPILOG,
)
app.add_typer(bench.app, name="bench")
app.add_typer(logs.app, name="log")
app.add_typer(model_app, name="model")
app.add_typer(fleet.app, name="fleet")


def _print_version(wanted: bool) -> None:
    if wanted:
        say(console(), f"autosched {autosched.__version__}")
        raise typer.Exit


@app.callback()
def root_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options before a command."""


@app.command("demo")
def demo_command(log: LogPath = None) -> None:
    """Tune, compare and show three operators on the device that is here, within two minutes."""
    from autosched.cli.demo import run_demo

    run_demo(console(), log_path(log))


@app.command("tune", epilog=OPERATORS_EPILOG)
def tune_command(
    operator: Operator,
    sizes: Sizes,
    trials: TrialsText = "1000",
    seconds: Seconds = None,
    target: TargetName = None,
    threads: Threads = None,
    fleet_address: FleetAddress = None,
    strategy: StrategyName = "evolutionary",
    cost_model: CostModelName = "xgboost",
    seed: Seed = 0,
    log: LogPath = None,
    policy: PolicyName = "cold",
    backend: BackendName = None,
    history: HistoryPaths = None,
    cold: Cold = False,
) -> None:
    """Search for the fastest kernel of an operator and write every trial to the log.

    Run it again to resume: schedules in the log are never measured again. Ctrl-C ends the search when
    the present measurements have ended, and keeps everything; a second one stops it at once.

    ```
    autosched tune matmul m=512 n=512 k=512 epilogue=bias_gelu --trials 200
    ```
    """
    from autosched.machine.deadline import Deadline
    from autosched.tuning.searching.preparation import prepare
    from autosched.tuning.searching.sources import Sources
    from autosched.tuning.searching.time_limit import check_seconds
    from autosched.tuning.tuner import run

    check_seconds(seconds)
    deadline = Deadline.after(seconds)
    out = console()
    op = workload(operator, sizes)
    measurer = chosen_fleet(fleet_address)
    device = chosen_target(target, threads) if threads is not None else target
    search = prepare(
        op,
        device,
        chosen_trials(trials),
        strategy=strategy,
        cost_model=cost_model,
        seed=seed,
        log=log,
        policy=policy,
        backend=backend,
        measured_elsewhere=measurer is not None,
        sources=Sources.of(chosen_history(history, cold)),
    )
    say(out, *search.space.remarks)
    try:
        with progress_display(out) as search.on_progress:
            result = run(search, measurer, deadline)
    except KeyboardInterrupt:
        say(out, f"stopped; every trial that had ended is in {search.log.path}")
        raise typer.Exit(INTERRUPTED) from None
    print_result(result)
    if result.ending == "interrupted":
        raise typer.Exit(INTERRUPTED)
    if result.best is None:
        raise typer.Exit(1)


app.command("tune-many")(tune_many_command)
app.command("tune-model")(models.tune_model_command)
app.command("export-model")(models.export_model_command)
app.command("predict", epilog=OPERATORS_EPILOG)(predict_command)
app.command("replay", epilog=OPERATORS_EPILOG)(kernels.replay_command)
app.command("export", epilog=OPERATORS_EPILOG)(kernels.export_command)
app.command("compare", epilog=OPERATORS_EPILOG)(kernels.compare_command)
app.command("repro")(kernels.repro_command)
app.command("certificate")(trust.certificate_command)
app.command("verify")(trust.verify_command)
app.command("simulate")(simulate_command)
app.command("stability")(stability_command)
app.command("report")(report_command)
app.command("watch")(watch_command)


@app.command("ask-tell")
def ask_tell_command() -> None:
    """Serve the search engine to another program, as lines of JSON on standard input and output.

    The program names the knobs and their values, asks for configurations, measures them, and reports their times:

    ```
    {"op": "init", "names": ["tile"], "values": [[16, 32]], "seed": 0}
    {"op": "ask", "n": 2}
    {"op": "tell", "configs": [[16], [32]], "times": [1.5, null]}
    ```

    Times are milliseconds, null for a failure. Further arguments of a search, and the answers, are described in
    docs/other-tuners.md. A line that cannot be served is answered with {"error": "…"}, and changes nothing.
    """
    serve(sys.stdin, sys.stdout)


@app.command("targets")
def targets_command() -> None:
    """List the targets, which of them is here, and why the others are not usable."""
    from autosched.cli.targets import target_lines

    say(console(), *target_lines())


def print_result(result: autosched.TuneResult) -> None:
    """Print the result of a search, its time by activity, and the next step."""
    out = console()
    say(out, str(result), style="bold" if result.best else "red")
    if result.trials_done:
        for line in result.report.splitlines():
            say(out, f"  {line}")
    if result.best:
        say(out, f"  {result.best.backend}: {result.best.schedule.one_line}")
    say(out, f"  log {result.log}")
