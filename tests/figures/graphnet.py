"""Graphs that were recorded from models of others (GraphNet), compiled by the backend: a table.

python tests/figures/graphnet.py run REPOSITORY.git LIST OUT.jsonl [--only REGEX] [--jobs N] [--seconds S]
    every graph at its full size; its tensors are never filled, and nothing is run
python tests/figures/graphnet.py show OUT.jsonl
    of each graph: seconds until it is cut into kernels, and for an H200; launches, different kernels, operators left to
    PyTorch; then what was left, and why

REPOSITORY.git is a clone of github.com/PaddlePaddle/GraphNet, LIST has a folder of it on every line (samples/…). Each
graph has a process and a time limit of its own, and becomes a line of OUT; called again, the script goes on with those
that have none. Times are those of the processor: other processes do not count.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import re
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._dynamo.exc import BackendCompilerFailed

import autosched
from autosched.torch_compile import graph_compiler, problems
from autosched.torch_compile.graphs import traced_or_why
from autosched.torch_compile.problems import TracedProblem, traced_problems
from autosched.tracing.translation.translate import DefectWarning
from search_spaces import target_named

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from own_process import append_rows, in_own_process

# The least time that PyTorch needs for a graph of a thousand operators is some seconds.
_SECONDS = 120.0


@dataclass(frozen=True)
class Row:
    """Outcome of a graph: "compiled", "no kernel", "crashed" or "timed out".

    `capture_s`: seconds of Dynamo and AOTAutograd; `trace_s`: until the graph is cut into kernels; `target_s`: for an
    H200. `segments` are different ones; `launches` and `kernels` those on an H200; `left`: operators that PyTorch
    computes; `others`: reasons for which segments have no kernel.
    """

    name: str
    status: str
    reason: str = ""
    capture_s: float = 0.0
    trace_s: float = 0.0
    target_s: float = 0.0
    segments: int = 0
    launches: int = 0
    kernels: int = 0
    left: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


class _CompiledError(Exception):
    """The end of a call: the graph is compiled, and is not run."""


@dataclass
class _Watch:
    """In the place of `traced_problems`: the same, with the seconds before and during it; then the call ends."""

    began: float
    capture_s: float = 0.0
    trace_s: float = 0.0
    problems: tuple[TracedProblem | str, ...] = ()

    def traced(self, *given: Any) -> dict[str, TracedProblem | str]:
        self.capture_s = time.process_time() - self.began
        self.problems = tuple(traced_problems(*given).values())
        self.trace_s = time.process_time() - self.began - self.capture_s
        raise _CompiledError


def row_of(name: str, repository: Path) -> Row:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", DefectWarning)
    model, inputs = graph_of(repository, name)
    watch = _Watch(time.process_time())
    mock.patch.object(graph_compiler, "traced_problems", watch.traced).start()
    # Without what earlier runs have stored.
    mock.patch.object(problems, "known_or_traced", traced_or_why).start()
    with torch.no_grad(), contextlib.suppress(_CompiledError, BackendCompilerFailed):
        torch.compile(model, backend="autosched", fullgraph=True, dynamic=False)(*inputs)
    row = functools.partial(Row, name, capture_s=round(watch.capture_s, 2), trace_s=round(watch.trace_s, 2))
    found = [p for p in watch.problems if isinstance(p, TracedProblem)]
    if not found:
        return row("no kernel", "; ".join(map(str, watch.problems)))
    began = time.process_time()
    target = target_named("h200")
    there = [(p.traced.for_target(target), p.times) for p in found]
    return row(
        "compiled",
        target_s=round(time.process_time() - began, 2),
        segments=len(watch.problems),
        launches=sum(len(t.launched) * times for t, times in there),
        kernels=len({w.key for t, _ in there for w in t.workloads}),
        left=tuple(text for t, _ in there for text in t.left_to_pytorch),
        others=tuple(p for p in watch.problems if isinstance(p, str)),
    )


def graph_of(repository: Path, name: str) -> tuple[torch.nn.Module, list[Tensor]]:
    """The module of a folder, and its inputs and parameters, in order, which nobody has filled."""

    def text(file: str) -> str:
        command = ["git", "--git-dir", str(repository), "show", f"HEAD:{name}/{file}"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    # They were recorded on a GPU.
    source = re.sub(r"device\(type=.cuda., index=\d+\)", 'device("cpu")', text("model.py"))
    space: dict[str, Any] = {"__name__": "graph"}
    exec(compile(re.sub(r"cuda:\d+", "cpu", source), "model.py", "exec"), space)
    known: dict[str, Any] = {}
    for file in ("weight_meta.py", "input_meta.py"):
        described: dict[str, Any] = {}
        exec(text(file), described)
        known |= {x.name: x for x in described.values() if hasattr(x, "shape")}
    model = space["GraphModule"]()
    code = model.forward.__code__
    return model, [tensor_of(known[n]) for n in code.co_varnames[1 : code.co_argcount]]


def tensor_of(described: Any) -> Tensor:
    dtype = getattr(torch, described.dtype.removeprefix("torch."))
    if getattr(described, "data", None) is not None:
        return torch.tensor(described.data, dtype=dtype).reshape(described.shape)
    return torch.empty(described.shape, dtype=dtype)


def run(options: argparse.Namespace) -> None:
    known = {row.name for row in read(options.out)}
    names = [n for n in options.list.read_text().split() if re.search(options.only, n) and n not in known]
    # What is loaded with the first function is loaded once, for all processes.
    torch.set_num_threads(1)
    autosched.trace(lambda a, b: torch.relu(a @ b), torch.empty(64, 64), torch.empty(64, 64))

    def tried(name: str) -> Row:
        made = in_own_process(lambda: _caught(name, options.repository), options.seconds)
        return made if isinstance(made, Row) else Row(name, made.status, made.reason)

    append_rows(options.out, names, tried, options.jobs)


def _caught(name: str, repository: Path) -> Row:
    try:
        return row_of(name, repository)
    except Exception:
        # A graph is anyone's code, and so may the error be.
        return Row(name, "crashed", traceback.format_exc(limit=-3))


def read(out: Path) -> list[Row]:
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return [Row(**{**row, "left": tuple(row["left"]), "others": tuple(row["others"])}) for row in rows]


def table(rows: Sequence[Row]) -> Iterator[str]:
    yield f"{'capture':>8}{'trace':>8}{'H200':>8}{'segments':>9}{'launches':>9}{'kernels':>8}{'left':>5}"
    for row in rows:
        seconds = "".join(f"{s:8.1f}" for s in (row.capture_s, row.trace_s, row.target_s))
        counts = f"{row.segments:9}{row.launches:9}{row.kernels:8}{len(row.left) + len(row.others):5}"
        yield f"{seconds}{counts}  {row.name.removeprefix('samples/')}"
        if row.status != "compiled":
            yield f"{'':8}{row.status}: {row.reason}"
    yield ", ".join(f"{count} {status}" for status, count in Counter(row.status for row in rows).items())
    for text, count in Counter(
        re.sub(r" \([^()]*:\d+\)", "", t) for row in rows for t in (*row.left, *row.others)
    ).most_common():
        yield f"{count:5} left: {text}"


def main() -> int:
    options = _options()
    if options.mode == "run":
        run(options)
    print(*table(read(options.out)), sep="\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    modes.add_parser("show").add_argument("out", type=Path)
    graphs = modes.add_parser("run")
    graphs.add_argument("repository", type=Path)
    graphs.add_argument("list", type=Path)
    graphs.add_argument("out", type=Path)
    graphs.add_argument("--only", default="", help="a regular expression that names of folders match")
    graphs.add_argument("--jobs", type=int, default=1)
    graphs.add_argument("--seconds", type=float, default=_SECONDS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
