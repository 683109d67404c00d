"""Lines that repeat a result: a command where an operator's arguments make the workload, Python for any other."""

from __future__ import annotations

import shlex

from autosched.reporting.analysis.tasks import Task
from search_spaces import InputError, Workload, ops

_DEFAULT_POLICY = "cold"


def repeating_lines(task: Task) -> list[str]:
    """Lines for a shell that rebuild the best kernel, verify it and search again, or Python; none for an own kernel."""
    if not isinstance(task.subject, Workload):
        return []
    arguments = operator_arguments(task.subject)
    return _python(task) if arguments is None else _commands(task, arguments)


def operator_arguments(op: Workload) -> list[str] | None:
    """The arguments of a command for a workload, such as `matmul m=64 …`; None where no operator makes it."""
    given = {k: str(v) for k, v in op.arguments if v not in (None, "") and v is not False}
    try:
        made = ops.construct(op.name, given)
    except (InputError, TypeError, ValueError):
        return None
    return [op.name, *(f"{k}={v}" for k, v in given.items())] if made.key == op.key else None


def _commands(task: Task, arguments: list[str]) -> list[str]:
    target = task.target
    options = ["--target", target.name]
    if target.kind == "cpu" and target.threads > 1:
        options += ["--threads", str(target.threads)]
    if task.policy != _DEFAULT_POLICY:
        options += ["--policy", task.policy]
    found = [shlex.join(["autosched", "replay", *arguments, *options, "--log", str(task.log)])]
    if target.kind == "gpu":
        found.append(f"{found[0]} --source")
    seed = task.records[-1].provenance.seed
    trials = ["--trials", str(len({r.schedule for r in task.trials}) or 1), "--seed", str(seed)]
    found.append(shlex.join(["autosched", "verify", str(task.log), "--select", task.subject.key]))
    return [*found, shlex.join(["autosched", "tune", *arguments, *options, *trials, "--log", "again.jsonl"])]


def _python(task: Task) -> list[str]:
    log, key = repr(str(task.log)), repr(task.subject.key)
    target = f"autosched.cpu_target({task.target.threads})" if task.target.kind == "cpu" else repr(task.target.name)
    policy = "" if task.policy == _DEFAULT_POLICY else f", policy={task.policy!r}"
    return [
        "import autosched",
        f"op = next(r.workload for r in autosched.TuningLog({log}) if r.subject.key == {key})",
        f"kernel = autosched.replay(op, {target}, log={log}{policy})",
        f"print(autosched.verify({log}, select=[{key}]))",
    ]
