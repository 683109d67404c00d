"""The commands that use tuned kernels: `autosched replay | export | compare | repro`."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

import autosched
from autosched.baselines.names import USUAL_BASELINES
from autosched.cli.arguments import (
    Baselines,
    Cubins,
    LogPath,
    Operator,
    PolicyName,
    Sizes,
    TargetName,
    Threads,
    chosen_baselines,
    chosen_target,
    console,
    printed_target,
    workload,
)
from autosched.machine.policies import Policy, policy_text
from autosched.replaying.arguments import log_path
from autosched.tuning.terminal import say
from search_spaces import InputError, Target, Workload
from tuning_logs.text import duration_text

Predicted = Annotated[
    bool, typer.Option("--predicted", help="The first prediction of `autosched predict`, instead of a measured kernel.")
]


Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Refuse all but an exact record, and say by what the nearest differs; also AUTOSCHED_STRICT=1."
    ),
]


def replay_command(
    operator: Operator,
    sizes: Sizes,
    target: TargetName = None,
    threads: Threads = None,
    log: LogPath = None,
    policy: PolicyName = "cold",
    source: Annotated[bool, typer.Option("--source", help="Print the generated source text only.")] = False,
    predicted: Predicted = False,
    strict: Strict = False,
    drift: Annotated[
        bool, typer.Option("--drift", help="Compare code, toolchain, device and speed with the kernel's certificate.")
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
    if source and drift:
        raise InputError("--drift times a kernel, and --source builds none; expected one of them")
    if source:
        say(out, _source(op, printed_target(target, threads), (log, policy), predicted, strict))
        return
    device = chosen_target(target, threads) if threads is not None else target
    kernel = autosched.replay(op, device, log=log, policy=policy, predicted=predicted, strict=strict, drift=drift)
    taken = duration_text(kernel.record.measurement.latency_s)
    say(out, f"{kernel.workload.label} on {kernel.target.label}")
    how = "predicted, not tuned; its trial here took" if predicted else "tuned to"
    say(out, f"{how} {taken} with {policy_text(policy)}; tier: {kernel.tier}", style="bold")
    say(out, str(kernel.schedule))
    if drift:
        say(out, str(kernel.drift))
    wrong = why_wrong_now(kernel, seed=secrets.randbits(32))
    if wrong:
        say(out, f"wrong results: {wrong}", style="red")
        raise typer.Exit(1)
    say(out, "results agree with the float64 reference on fresh inputs", style="green")


def _source(op: Workload, target: Target, records: tuple[Path | None, Policy], predicted: bool, strict: bool) -> str:
    from autosched.backends.reproduction import printed
    from autosched.replaying.predicted_kernel import predicted_source
    from autosched.replaying.replay import find_best, log_paths, refuse_prediction

    log, policy = records
    if predicted:
        refuse_prediction(strict)
        return predicted_source(op, target, log_path(log), policy)
    return printed(find_best(op, target, log_paths(log), policy, strict), op)


def export_command(
    operator: Operator,
    sizes: Sizes,
    to: Annotated[Path, typer.Option(help="The Python file to write.")],
    target: TargetName = None,
    log: LogPath = None,
    policy: PolicyName = "cold",
    predicted: Predicted = False,
    cubins: Cubins = False,
) -> None:
    """Write the best GPU kernel of an operator to a Python file that needs PyTorch, and not autosched.

    ```
    autosched export matmul m=4096 n=4096 k=4096 dtype=bfloat16 --target h200 --to matmul_4096.py
    ```
    """
    found = workload(operator, sizes)
    path = autosched.export(found, to, target, log=log, policy=policy, predicted=predicted, cubins=cubins)
    say(console(), f"{path}; run it to check and time it")


def compare_command(
    operator: Operator,
    sizes: Sizes,
    target: TargetName = None,
    threads: Threads = None,
    log: LogPath = None,
    policy: PolicyName = "cold",
    rounds: Annotated[int, typer.Option(help="Interleaved rounds of timing all contenders.")] = 30,
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
    say(console(), str(comparison))


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
    say(console(), str(repeated))
    if not repeated.measurement.ok:
        raise typer.Exit(1)
