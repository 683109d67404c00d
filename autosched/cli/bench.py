"""`autosched bench`: a whole suite, tuned and measured."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from autosched.bench import BenchPlan, Suite, draw, read_gemm_suite, run_bench, saved_roofline
from autosched.bench.shipped import SHIPPED_SUITES, suite_path
from autosched.cli.arguments import (
    INTERRUPTED,
    Baselines,
    LogPath,
    PolicyName,
    Rounds,
    TargetName,
    Threads,
    chosen_baselines,
    chosen_target,
    console,
)
from autosched.contenders import BaselineName
from search_spaces import Target

app = typer.Typer(no_args_is_help=True, help="Tune a suite, and measure all of it against everything else in one run.")

SuiteFile = Annotated[
    Path,
    typer.Option(
        "--suite",
        metavar="FILE",
        help='JSON: {"shapes": [{"name": …, "m": …, "n": …, "k": …}, …]}. '
        f"Or the name of one that ships: {', '.join(SHIPPED_SUITES)}.",
    ),
]
Only = Annotated[
    list[str] | None, typer.Option(metavar="NAME,…", help="Only these shapes of the suite; may be repeated.")
]
Trials = Annotated[int, typer.Option(help="Schedules that the log knows of every shape in the end.")]
Replay = Annotated[bool, typer.Option("--replay", help="Do not tune: measure what the logs have.")]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="By default ./autosched-bench/SUITE-TARGET; with --only SUITE-part-TARGET."
    ),
]


@app.command("gemm")
def gemm_command(
    suite: SuiteFile,
    trials: Trials = 1000,
    replay: Replay = False,
    only: Only = None,
    out: Folder = None,
    log: LogPath = None,
    target: TargetName = None,
    threads: Threads = None,
    policy: PolicyName = "cold",
    rounds: Rounds = None,
    baselines: Baselines = None,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
) -> None:
    """Tune every matrix product of a suite, then measure all of them against the library, interleaved, in one run.

    An entry of the suite has a name and the arguments of matmul. What the log knows is not measured again, so a large
    suite can be tuned in parts, with --only, and measured at once, with --replay. A shape that fails costs its own row.
    The table is saved after every row, as Markdown and as JSON with the latencies of every round; a roofline plot, PNG
    and SVG, at the end (it needs matplotlib: the extra `plot`).

    Baselines are library and, on a GPU, cublaslt, unless named; max-autotune (torch.compile) takes up to a minute a
    shape. The ratios are against the first. Peaks and roofline are measured in the same run.

    ```
    autosched bench gemm --suite gemm --only square-512,odd-1000 --trials 1000
    autosched bench gemm --suite gemm --replay --baselines library,cublaslt
    ```
    """
    device = chosen_target(target, threads)
    plan = BenchPlan(
        target=device,
        baselines=chosen_baselines(baselines, _library_baselines(device)),
        trials=None if replay else trials,
        log=log,
        policy=policy,
        rounds=rounds,
        seed=seed,
    )
    _run(
        read_gemm_suite(suite_path(suite)).only([name for names in only or () for name in names.split(",")]), plan, out
    )


@app.command("draw")
def draw_command(
    table: Annotated[Path, typer.Argument(metavar="FILE", help="The table.json of a benchmark.")],
) -> None:
    """Draw the roofline plot of a saved table, beside it; nothing is measured."""
    for path in draw(saved_roofline(table), table.parent):
        console().print(Text(str(path)), soft_wrap=True)


def _library_baselines(target: Target) -> tuple[BaselineName, ...]:
    return ("library", "cublaslt") if target.kind == "gpu" else ("library",)


def _run(suite: Suite, plan: BenchPlan, out: Path | None) -> None:
    folder = out or Path("autosched-bench") / f"{suite.name}-{plan.target.name}"
    try:
        table = run_bench(suite, plan, folder, console(), shlex.join(["autosched", *sys.argv[1:]]))
    except KeyboardInterrupt:
        console().print(Text("stopped before anything was measured; what was tuned is in the log"), soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    if table.ended:
        raise typer.Exit(INTERRUPTED)
    if any(row.comparison is None for row in table.rows):
        raise typer.Exit(1)
