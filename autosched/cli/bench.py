"""`autosched bench`: a whole suite, tuned and measured."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autosched.baselines.names import FUNCTION_BASELINES, BaselineName, check_baselines
from autosched.bench.models.names import WAYS, check_ways
from autosched.bench.suites.shipped import SHIPPED_SUITES, suite_path
from autosched.cli.arguments import (
    INTERRUPTED,
    Baselines,
    LogPath,
    Only,
    PolicyName,
    Rounds,
    Seed,
    TargetName,
    Threads,
    chosen_baselines,
    chosen_names,
    chosen_target,
    console,
)
from autosched.tuning.terminal import say
from search_spaces import Target

if TYPE_CHECKING:
    from autosched.bench.runner import BenchPlan
    from autosched.bench.suites.suite import OperatorKind, Suite

app = typer.Typer(no_args_is_help=True, help="Tune a suite, and measure all of it against everything else in one run.")

SuiteFile = Annotated[
    Path,
    typer.Option(
        "--suite",
        metavar="FILE",
        help='JSON: {"shapes": [{"name": …, "n": …, "k": …, …}, …]}, or the list alone. '
        f"Or the name of one that ships: {', '.join(SHIPPED_SUITES)}.",
    ),
]
FunctionSuiteFile = Annotated[
    Path, typer.Option("--suite", metavar="FILE", help="A Python file that defines SUITE. It is executed.")
]
Trials = Annotated[int, typer.Option(help="Schedules that the log knows of every kernel in the end.")]
Replay = Annotated[bool, typer.Option("--replay", help="Do not tune: measure what the logs have.")]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="By default ./autosched-bench/SUITE-TARGET; with --only SUITE-part-TARGET."
    ),
]


# Help of the commands of named operators, before and after a part that they share.
_OPERATORS_HELP = """
Schedules in the log are not measured again, so a big suite can be tuned in parts, with --only, and measured at once,
with --replay. An entry that fails costs its own row. The table is saved after every row, as Markdown and as JSON with
the latencies of every round; a roofline plot, PNG and SVG, at the end (it needs matplotlib: the extra `plot`). Where
entries have a `class`, the geometric means are shown by class, too.
"""
_GEMM_HELP = f"""
Tune every matrix product of a suite, then measure all of them against the library, interleaved, in one run.

An entry of the suite has a name and the arguments of matmul.{_OPERATORS_HELP}
Baselines are library and, on a GPU, cublaslt, unless named; max-autotune (torch.compile) takes up to a minute a
shape. The ratios are against the first. Peaks and roofline are measured in the same run.

```
autosched bench gemm --suite gemm --only square-512,odd-1000 --trials 1000
autosched bench gemm --suite gemm --replay --baselines library,cublaslt
```
"""
_CONV_HELP = f"""
Tune every convolution of a suite, with what follows it, then measure all of them against cuDNN (or oneDNN) and
torch.compile, interleaved, in one run.

An entry of the suite has a name, perhaps a class, and the arguments of conv; h and w, and r and s, may be given for
size and kernel. Weights are constants, which a kernel may store in another layout once, unless an entry has
"constant": "".{_OPERATORS_HELP}
Baselines are library, converting and compile, unless named; max-autotune (torch.compile, too) takes up to a minute a
layer. The library is the fastest of its ways: memory formats, `torch.backends.cudnn.benchmark` on and off, epilogues in
its own call; its tensors are in the format of the way beforehand. For converting they are as the suite has them, and
the time has the conversions of images, to another format and back. The ratios are against the first baseline, and
against the better of the compiled ones. dtype=float32 is IEEE on both sides, and dtype=tf32 what cuDNN makes of
float32 by default.

```
autosched bench conv --suite conv --only resnet50-stem --trials 300
autosched bench conv --suite conv --replay --baselines library,compile,max-autotune
```
"""


def _operators_command(kind: OperatorKind, usual: Callable[[Target], tuple[BaselineName, ...]]) -> Callable[..., None]:
    """The command of a kind of named operators, with the baselines that are usual on a target."""

    def command(
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
        seed: Seed = 0,
    ) -> None:
        from autosched.bench.runner import BenchPlan
        from autosched.bench.suites.operator_suite import read_operator_suite

        device = chosen_target(target, threads)
        plan = BenchPlan(
            target=device,
            baselines=chosen_baselines(baselines, usual(device)),
            trials=None if replay else trials,
            log=log,
            policy=policy,
            rounds=rounds,
            seed=seed,
        )
        _run(read_operator_suite(suite_path(suite), kind).only(chosen_names(only)), plan, out)

    return command


def _of_products(target: Target) -> tuple[BaselineName, ...]:
    return ("library", "cublaslt") if target.kind == "gpu" else ("library",)


def _of_convolutions(target: Target) -> tuple[BaselineName, ...]:
    return ("library", "converting", "compile")


app.command("gemm", help=_GEMM_HELP)(_operators_command("gemm", _of_products))
app.command("conv", help=_CONV_HELP)(_operators_command("conv", _of_convolutions))


@app.command("fused")
def fused_command(
    suite: FunctionSuiteFile,
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
    seed: Seed = 0,
) -> None:
    """Tune the kernels of every PyTorch function of a suite, then measure all of them against PyTorch, in one run.

    The suite is a Python file, which is executed, with every right that you have: name only one that you trust. It
    defines SUITE: by name, a function and the shape and element type of each of its arguments, which are drawn at
    random. A type is one of PyTorch, or "positive f32" (from 0.5 to 1.5), or "int64 below 32000".

    ```
    SUITE = {"swiglu": (lambda a, b: F.silu(a) * b, [((4096, 11008), torch.bfloat16)] * 2)}
    ```

    Functions are traced; what no kernel computes is left to PyTorch, and named below the table. Before anything of a
    function is timed, its results are checked against the function in float64. A function that fails costs its own
    row. The table is saved after every row, as Markdown and as JSON; a roofline plot at the end (it needs matplotlib).

    Baselines are eager, compile and max-autotune (torch.compile in both modes, each of which may take a minute a
    function), unless named. The ratios are against the first, and against the better of the compiled ones.

    ```
    autosched bench fused --suite fused.py --only swiglu --trials 300
    autosched bench fused --suite fused.py --replay
    ```
    """
    from autosched.bench.runner import BenchPlan
    from autosched.bench.suites.function_suite import read_function_suite

    plan = BenchPlan(
        target=chosen_target(target, threads),
        baselines=check_baselines(chosen_baselines(baselines, FUNCTION_BASELINES), FUNCTION_BASELINES),
        trials=None if replay else trials,
        log=log,
        policy=policy,
        rounds=rounds,
        seed=seed,
    )
    device = "cuda" if plan.target.kind == "gpu" else "cpu"
    _run(read_function_suite(suite, device).only(chosen_names(only)), plan, out)


@app.command("models")
def models_command(
    suite: Annotated[
        Path, typer.Option("--suite", metavar="FILE", help="A Python file that defines MODELS. It is executed.")
    ],
    only: Only = None,
    ways: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help=f"Among {', '.join(WAYS)}, and other backends of torch.compile by their names; without, all of these "
            "that there are on the device, and no others.",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Schedules of every kernel that autosched-max tries.")] = 64,
    seconds: Annotated[float, typer.Option(help="Time of autosched-max's searches for every graph.")] = 60.0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="By default ./autosched-bench/SUITE; with --only SUITE-part."),
    ] = None,
    log: LogPath = None,
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds.")] = 15,
) -> None:
    """Run every model of a suite by torch.compile's modes, autosched's and without, and time all in one run.

    The suite is a Python file, which is executed, with every right that you have: name only one that you trust. It
    defines MODELS: by name, functions without arguments that return a callable and a sequence of its inputs, on the
    device that is to be measured.

    ```
    MODELS = {"layer": lambda: (torch.nn.TransformerEncoderLayer(512, 8).eval(), [torch.randn(128, 8, 512)])}
    ```

    Ways are eager, graph (eager in a CUDA graph), compile, reduce-overhead and max-autotune (modes of torch.compile),
    autosched and autosched-max (its modes default and max-autotune; with other numerics autosched-max:eager or :fold);
    CUDA graphs need a GPU. The error of each, against float64, is in the table as a multiple of eager's. A way that
    fails, or whose results are wrong, costs its own line. The table is saved after every model. Calls are without
    gradients, and must give the same results every time.

    ```
    autosched bench models --suite models.py --only layer --trials 200
    ```
    """
    from autosched.bench.models.runner import ModelPlan, run_model_bench
    from autosched.bench.models.suite import read_model_suite
    from autosched.bench.models.ways import WayOptions, usual_ways
    from autosched.tuning.searching.time_limit import check_seconds

    check_seconds(seconds)
    names, options = chosen_names(only), WayOptions(log, {"trials": trials, "seconds": seconds})
    folder = out or Path("autosched-bench") / f"{suite.stem}{'-part' if names else ''}"
    chosen = check_ways(ways.split(",")) if ways else usual_ways()
    options.check(chosen)
    plan = ModelPlan(chosen, options, rounds, folder)
    cases = read_model_suite(suite, names)
    try:
        complete = run_model_bench(cases, plan, console(), shlex.join(["autosched", *sys.argv[1:]]))
    except KeyboardInterrupt:
        say(console(), f"stopped; the models that were measured are in {folder}, and what was tuned in the log")
        raise typer.Exit(INTERRUPTED) from None
    if not complete:
        raise typer.Exit(1)


@app.command("draw")
def draw_command(
    table: Annotated[Path, typer.Argument(metavar="FILE", help="The table.json of a benchmark.")],
) -> None:
    """Draw the roofline plot of a saved table, next to it; nothing is measured."""
    from autosched.bench.drawing.plot import draw
    from autosched.bench.saved import saved_roofline

    for path in draw(saved_roofline(table), table.parent):
        say(console(), str(path))


def _run(suite: Suite, plan: BenchPlan, out: Path | None) -> None:
    from autosched.bench.runner import run_bench

    folder = out or Path("autosched-bench") / f"{suite.name}-{plan.target.name}"
    try:
        table = run_bench(suite, plan, folder, console(), shlex.join(["autosched", *sys.argv[1:]]))
    except KeyboardInterrupt:
        say(console(), "stopped before anything was measured; what was tuned is in the log")
        raise typer.Exit(INTERRUPTED) from None
    if table.ended:
        raise typer.Exit(INTERRUPTED)
    if any(row.comparison is None for row in table.rows):
        raise typer.Exit(1)
