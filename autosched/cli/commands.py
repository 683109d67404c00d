"""The commands that tune and use kernels.

Here as in the other modules of commands, what takes PyTorch is imported by the commands that need it: help, errors of
usage and all that only reads files are there in a fraction of its time.
"""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

import autosched
from autosched.baselines.names import USUAL_BASELINES
from autosched.cli import bench, logs
from autosched.cli.arguments import (
    INTERRUPTED,
    OPERATORS_EPILOG,
    BackendName,
    Baselines,
    Cold,
    Commands,
    CostModelName,
    HistoryPaths,
    LogPath,
    Operator,
    PolicyName,
    Sizes,
    StrategyName,
    TargetName,
    Threads,
    TrialsText,
    chosen_baselines,
    chosen_history,
    chosen_target,
    chosen_trials,
    console,
    printed_target,
    workload,
)
from autosched.cli.ask_tell import serve
from autosched.cli.predict import model_app, predict_command
from autosched.cli.simulate import simulate_command
from autosched.cli.tune_many import tune_many_command
from autosched.machine.policies import Policy, policy_text
from autosched.replaying.arguments import log_path
from autosched.tuning.progress import progress_display
from search_spaces import Target, Workload
from tuning_logs.text import duration_text

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


def _print_version(wanted: bool) -> None:
    if wanted:
        console().print(Text(f"autosched {autosched.__version__}"))
        raise typer.Exit


@app.callback()
def root_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What stands before a command."""


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
    target: TargetName = None,
    threads: Threads = None,
    strategy: StrategyName = "evolutionary",
    cost_model: CostModelName = "xgboost",
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    log: LogPath = None,
    policy: PolicyName = "cold",
    backend: BackendName = None,
    history: HistoryPaths = None,
    cold: Cold = False,
) -> None:
    """Search for the fastest kernel of an operator and write every trial to the log.

    Run it again to go on where it stopped: what the log knows is never measured again. Ctrl-C ends the search when
    what is being measured has ended, and keeps everything; a second one stops it at once.

    ```
    autosched tune matmul m=512 n=512 k=512 epilogue=bias_gelu --trials 200
    ```
    """
    from autosched.tuning.searching.preparation import prepare
    from autosched.tuning.searching.sources import Sources
    from autosched.tuning.tuner import run

    out = console()
    op = workload(operator, sizes)
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
        sources=Sources.of(chosen_history(history, cold)),
    )
    for remark in search.space.remarks:
        out.print(Text(remark), soft_wrap=True)
    try:
        with progress_display(out) as search.on_progress:
            result = run(search)
    except KeyboardInterrupt:
        out.print(Text(f"stopped; every trial that had ended is in {search.log.path}"), soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    print_result(result)
    if result.ending == "interrupted":
        raise typer.Exit(INTERRUPTED)
    if result.best is None:
        raise typer.Exit(1)


app.command("tune-many")(tune_many_command)
app.command("predict", epilog=OPERATORS_EPILOG)(predict_command)


@app.command("replay", epilog=OPERATORS_EPILOG)
def replay_command(
    operator: Operator,
    sizes: Sizes,
    target: TargetName = None,
    threads: Threads = None,
    log: LogPath = None,
    policy: PolicyName = "cold",
    source: Annotated[bool, typer.Option("--source", help="Print the generated source text only.")] = False,
    allow_stale: Annotated[
        bool, typer.Option("--allow-stale", help="Also when this version makes another kernel of its schedule.")
    ] = False,
    predicted: Annotated[
        bool, typer.Option("--predicted", help="What `autosched predict` ranked first, instead of what was measured.")
    ] = False,
) -> None:
    """Rebuild the best kernel of an operator from the log, without searching, and check its results.

    With --source nothing is compiled, and a GPU need not be here.

    ```
    autosched replay matmul m=512 n=512 k=512 --source
    ```
    """
    from autosched.replaying.replay import why_wrong_now

    out, op = console(), workload(operator, sizes)
    if source:
        out.print(
            Text(_source(op, printed_target(target, threads), log, policy, allow_stale, predicted)), soft_wrap=True
        )
        return
    device = chosen_target(target, threads) if threads is not None else target
    kernel = autosched.replay(op, device, log=log, policy=policy, allow_stale=allow_stale, predicted=predicted)
    taken = duration_text(kernel.record.measurement.latency_s)
    out.print(Text(f"{kernel.workload.label} on {kernel.target.label}"), soft_wrap=True)
    how = "predicted, not tuned; its trial here took" if predicted else "tuned to"
    out.print(Text(f"{how} {taken} with {policy_text(policy)}", style="bold"))
    out.print(Text(str(kernel.schedule)), soft_wrap=True)
    wrong = why_wrong_now(kernel, seed=secrets.randbits(32))
    if wrong:
        out.print(Text(f"wrong results: {wrong}", style="red"))
        raise typer.Exit(1)
    out.print(Text("results agree with the float64 reference on fresh inputs", style="green"))


def _source(op: Workload, target: Target, log: Path | None, policy: Policy, allow_stale: bool, predicted: bool) -> str:
    from autosched.backends.reproduction import printed
    from autosched.replaying.predicted_kernel import predicted_source
    from autosched.replaying.replay import find_best, log_paths

    if predicted:
        return predicted_source(op, target, log_path(log), policy)
    return printed(find_best(op, target, log_paths(log), policy, allow_stale))


@app.command("export", epilog=OPERATORS_EPILOG)
def export_command(
    operator: Operator,
    sizes: Sizes,
    to: Annotated[Path, typer.Option(help="The Python file to write.")],
    target: TargetName = None,
    log: LogPath = None,
    policy: PolicyName = "cold",
    allow_stale: Annotated[
        bool, typer.Option("--allow-stale", help="Also when this version makes another kernel of its schedule.")
    ] = False,
    predicted: Annotated[
        bool, typer.Option("--predicted", help="What `autosched predict` ranked first, instead of what was measured.")
    ] = False,
) -> None:
    """Write the best GPU kernel of an operator to a Python file that needs PyTorch, and not autosched.

    ```
    autosched export matmul m=4096 n=4096 k=4096 dtype=bfloat16 --target h200 --to matmul_4096.py
    ```
    """
    found = workload(operator, sizes)
    path = autosched.export(found, to, target, log=log, policy=policy, allow_stale=allow_stale, predicted=predicted)
    console().print(Text(f"{path}; run it to check and time it"), soft_wrap=True)


@app.command("compare", epilog=OPERATORS_EPILOG)
def compare_command(
    operator: Operator,
    sizes: Sizes,
    target: TargetName = None,
    threads: Threads = None,
    log: LogPath = None,
    policy: PolicyName = "cold",
    rounds: Annotated[int, typer.Option(help="How often each contender is timed, in turn.")] = 30,
    baselines: Baselines = None,
) -> None:
    """Time the best kernel against PyTorch, torch.compile and the vendor's library, interleaved in one run.

    Of the baselines, cublaslt (the library's call with cuBLASLt preferred) and max-autotune (torch.compile, which may
    take minutes) are left out unless they are named.

    ```
    autosched compare matmul m=512 n=512 k=512
    ```
    """
    comparison = autosched.compare(
        workload(operator, sizes),
        chosen_target(target, threads),
        log=log,
        policy=policy,
        rounds=rounds,
        baselines=chosen_baselines(baselines, USUAL_BASELINES),
    )
    console().print(Text(str(comparison)), soft_wrap=True)


@app.command("repro")
def repro_command(
    folder: Annotated[Path, typer.Argument(metavar="PATH", help="A folder below LOG.failures.")],
) -> None:
    """Repeat a failed trial that a search has kept: compile, run and check it once more. Exit status 1: it fails again.

    ```
    autosched repro tuning.jsonl.failures/wrong_result/3f9c2a71d0b46e55-8e1f06ab92c4
    ```
    """
    from autosched.measuring.repro import repeat

    repeated = repeat(folder)
    console().print(Text(str(repeated)), soft_wrap=True)
    if not repeated.measurement.ok:
        raise typer.Exit(1)


app.command("simulate")(simulate_command)


@app.command("ask-tell")
def ask_tell_command() -> None:
    """Serve the search engine to another program, as lines of JSON on standard input and output.

    The program names the knobs and their values, asks for configurations, measures them, and tells what they took:

    ```
    {"op": "init", "names": ["tile"], "values": [[16, 32]], "seed": 0}
    {"op": "ask", "n": 2}
    {"op": "tell", "configs": [[16], [32]], "times": [1.5, null]}
    ```

    Times are milliseconds, null for a failure. What else a search may be told, and what is answered, stands in
    docs/other-tuners.md. A line that cannot be served is answered with {"error": "…"}, and changes nothing.
    """
    serve(sys.stdin, sys.stdout)


@app.command("targets")
def targets_command() -> None:
    """List the targets, which of them is here, and why the others are not usable."""
    from autosched.cli.targets import target_lines

    for line in target_lines():
        console().print(Text(line), soft_wrap=True)


def print_result(result: autosched.TuneResult) -> None:
    """What a search found, where the time went, and what to do next."""
    out = console()
    out.print(Text(str(result), style="bold" if result.best else "red"), soft_wrap=True)
    if result.trials_done:
        for line in result.report.splitlines():
            out.print(Text(f"  {line}"), soft_wrap=True)
    if result.best:
        out.print(Text(f"  {result.best.backend}: {result.best.schedule.one_line}"), soft_wrap=True)
    out.print(Text(f"  log {result.log}"), soft_wrap=True)
