"""Models of `timm` and `transformers` by their configurations, under torch.compile's backend: a table.

python tests/figures/configured_models.py run OUT.jsonl [--how training] [--part 0/4] [--only REGEX] [--jobs N]
    on a CPU, by untuned kernels, what has none by PyTorch's operators: whether results are as near to float64 as
    eager's, how long it takes, and what is left
python tests/figures/configured_models.py run OUT.jsonl --device cuda [--trials N] …
    on a GPU, at full sizes in half precision: all ways of `autosched bench models`, timed in interleaved rounds
python tests/figures/configured_models.py show OUT.jsonl
python tests/figures/configured_models.py layers
    launches that one layer more takes on an H200, in float32 and bfloat16

Models are those of suites/configured.py. Each has a process, a time limit (`--seconds`) and, on a CPU, a limit of
memory (`--gigabytes`) of its own, and becomes a line of OUT; called again, the script goes on with the others.
Seconds of a CPU are those of its processor: other processes do not count.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import resource
import shutil
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import autosched
from autosched.bench.models.expected import Expected, reference
from autosched.bench.models.measuring import measured
from autosched.bench.models.suite import ModelCase
from autosched.bench.models.ways import WayOptions, usual_ways
from autosched.torch_compile import graph_compiler, problems, sized_compiler
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.graphs import traced_or_why
from autosched.torch_compile.options import Options
from autosched.torch_compile.problems import traced_problems
from autosched.torch_compile.reports import GraphReport
from autosched.tracing import TracedFunction
from autosched.tracing.translation.translate import DefectWarning
from search_spaces import Target, target_named

sys.path.extend(map(str, [*Path(__file__).parents[1].glob("support/*"), Path(__file__).parent / "suites"]))
import configured

from own_process import append_rows, in_own_process
from untuned import untuned_replay

# An error beyond so many times eager's is a wrong result, even where PyTorch's own test allows it.
_OFF = 1.5
# Tracing and cutting should take no longer.
_SLOW_S = 10.0
_ROUNDS = 30
# What configurations call the number of layers.
_LAYERS = {"BERT": "num_hidden_layers", "GPT-2": "n_layer", "Llama": "num_hidden_layers", "T5": "num_layers"}


@dataclass(frozen=True)
class Row:
    """Outcome of a model: "right", "wrong", "crashed" or "timed out".

    `first_s`: seconds to the first result; `cut_s`: those of them that tracing and cutting into kernels takes,
    `capture_s`: of Dynamo, AOTAutograd and the call, without building and checking kernels. `launches` of a call;
    `error`: a multiple of eager's. `left`: operators that PyTorch computes; `others`: reasons for which parts have no
    kernel. `latencies`: microseconds of every way on a GPU, or why there are none.
    """

    name: str
    status: str
    reason: str = ""
    how: str = ""
    capture_s: float = 0.0
    cut_s: float = 0.0
    first_s: float = 0.0
    graphs: int = 0
    launches: int = 0
    error: float = 0.0
    left: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    latencies: dict[str, float | str] = field(default_factory=dict)


class Gradients(nn.Module):
    """A step of training: the loss and the gradients of parameters; batch norms take the statistics of the batch.

    `called` is the model compiled; without it, the model itself.
    """

    def __init__(self, model: nn.Module, called: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.model, self.called = model, called
        for module in model.modules():
            module.train(isinstance(module, nn.modules.batchnorm._BatchNorm))

    def forward(self, *tensors: Tensor) -> list[Tensor]:
        loss = loss_of((self.called or self.model)(*tensors))
        wanted = [p for p in self.model.parameters() if p.requires_grad]
        return [loss, *(g for g in torch.autograd.grad(loss, wanted, allow_unused=True) if g is not None)]


def loss_of(results: Any) -> Tensor:
    """One number of all results, each element of which counts differently."""
    parts = [x for x in tree_leaves(results) if isinstance(x, Tensor) and x.is_floating_point() and x.requires_grad]
    weighted = [x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype, device=x.device).reshape(x.shape) for x in parts]
    return torch.stack([(x + w).square().mean() for x, w in zip(parts, weighted, strict=True)]).sum()


@dataclass
class Watch:
    """Processor seconds of tracing and cutting, in the place of the backend's functions for these; and its reports."""

    cut_s: float = 0.0
    building_s: float = 0.0
    reports: list[GraphReport] = field(default_factory=list)

    def traced(self, *given: Any) -> Any:
        with self._counted("cut_s"):
            return traced_problems(*given)

    def replayed(self, traced: TracedFunction, target: Target, **_: Any) -> Any:
        with self._counted("cut_s"):
            here = traced.for_target(target)
        with self._counted("building_s"):
            kernel = untuned_replay(here, target)
            kernel.ensure_right()
        return kernel

    @contextlib.contextmanager
    def _counted(self, name: str) -> Iterator[None]:
        begin = time.process_time()
        yield
        setattr(self, name, getattr(self, name) + time.process_time() - begin)

    def patch(self) -> None:
        """Compile by untuned kernels, without what earlier runs have stored, and without Inductor, which is slow."""
        shutil.which = lambda *_, **__: None
        for place, name, other in (
            (graph_compiler, "traced_problems", self.traced),
            (sized_compiler, "traced_problems", self.traced),
            (problems, "known_or_traced", traced_or_why),
            (graph_compiler, "replay", self.replayed),
            (sized_compiler, "nearest_kernels", self.replayed),
            (sized_compiler, "trials_of_nearest", lambda *_, **__: None),
            (sized_compiler, "seconds_of_graph", lambda *_: {}),
        ):
            mock.patch.object(place, name, other).start()


@contextlib.contextmanager
def _autocast() -> Iterator[None]:
    with torch.no_grad(), torch.autocast(configured.DEVICE.type, torch.bfloat16):
        yield


HOWS: dict[str, Callable[[], Any]] = {
    "inference": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": _autocast,
    "dynamic": torch.no_grad,
    "training": contextlib.nullcontext,
}


def called_row(name: str, options: argparse.Namespace) -> Row:
    """A model by untuned kernels, against eager and float64."""
    watch, how = Watch(), options.how
    watch.patch()
    torch.manual_seed(0)
    model, inputs = configured.MODELS[name]()
    compiled = torch.compile(model, backend=backend_of(Options(), watch.reports.append), dynamic=how == "dynamic")
    eager, called = (Gradients(model), Gradients(model, compiled)) if how == "training" else (model, compiled)
    batches = [inputs, [torch.cat((x, x[:1])) for x in inputs]] if how == "dynamic" else [inputs]
    found: list[Row] = []
    for given in batches:
        exact = reference(eager, given)
        with HOWS[how]():
            expected = Expected(eager(*given), exact)
            before, begin = watch.cut_s + watch.building_s, time.process_time()
            results = called(*given)
            first_s = time.process_time() - begin
            # Sizes get kernels at their second call, and CUDA graphs and plans may do something else then.
            results = [results, called(*given), called(*given)]
        capture_s = first_s - (watch.cut_s + watch.building_s - before)
        faults = [expected.why_wrong(r) for r in results]
        error = max(map(expected.error_of, results)) if not any("shapes" in f for f in faults) else float("inf")
        found.append(_row(name, how, watch, faults, error, (capture_s, first_s)))
    return next((row for row in found if row.status != "right"), found[0])


def _row(name: str, how: str, watch: Watch, faults: Sequence[str], error: float, seconds: tuple[float, float]) -> Row:
    wrong = [*dict.fromkeys(filter(None, faults))] + [f"error of {error:.2f} times eager's"] * (error > _OFF)
    reports = watch.reports
    return Row(
        name,
        "wrong" if wrong else "right",
        "; ".join(wrong),
        how,
        round(seconds[0], 1),
        round(watch.cut_s, 1),
        round(seconds[1], 1),
        len(reports),
        sum(r.kernels for r in reports),
        round(error, 2),
        tuple(text for r in reports for text in r.left),
        tuple(p.why for r in reports for p in r.parts if p.why),
    )


def timed_row(name: str, options: argparse.Namespace) -> Row:
    """A model by all ways on a GPU."""
    tuning = WayOptions(options.log, {"trials": options.trials, "seconds": options.search})
    row = measured(ModelCase(name, configured.MODELS[name]), usual_ways(), tuning, _ROUNDS)
    if not row.ways:
        return Row(name, "crashed", row.why_not, "timed")
    latencies = {w.way: w.why_not or round(w.median_s * 1e6, 1) for w in row.ways}
    ours = next(w for w in row.ways if w.way == "autosched-max")
    status = "right" if ours.latencies_s else "wrong"
    return Row(
        name,
        status,
        ours.why_not,
        "timed",
        first_s=round(ours.first_s, 1),
        graphs=len(ours.reports),
        launches=ours.launches,
        error=round(ours.error, 2),
        others=ours.reports,
        latencies=dict(latencies),
    )


def _caught(name: str, options: argparse.Namespace) -> Row:
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", DefectWarning)
    torch.set_num_threads(1)
    try:
        if options.device == "cuda":
            return timed_row(name, options)
        limit = int(options.gigabytes * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        return called_row(name, options)
    except Exception:
        # A model is anyone's code, and so may the error be.
        return Row(name, "crashed", traceback.format_exc(limit=-4), options.how)


def run(options: argparse.Namespace) -> None:
    if options.device == "cpu":
        configured.DEVICE = torch.device("cpu")
    known = {row.name for row in read(options.out)}
    part, parts = map(int, options.part.split("/"))
    names = [n for n in [*configured.MODELS][part::parts] if re.search(options.only, n) and n not in known]
    if options.device == "cpu":
        # What is loaded with the first function is loaded once, for all processes.
        torch.set_num_threads(1)
        autosched.trace(lambda a, b: torch.relu(a @ b), torch.empty(64, 64), torch.empty(64, 64))

    def tried(name: str) -> Row:
        made = in_own_process(lambda: _caught(name, options), options.seconds)
        return made if isinstance(made, Row) else Row(name, made.status, made.reason, options.how)

    append_rows(options.out, names, tried, options.jobs)


def read(out: Path) -> list[Row]:
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return [Row(**{**row, "left": tuple(row["left"]), "others": tuple(row["others"])}) for row in rows]


def table(rows: Sequence[Row]) -> Iterator[str]:
    heads = ("how", "capture", "cut", "first", "graphs", "launches", "left", "error")
    yield "".join(f"{head:>11}" for head in heads) + "  model"
    for row in rows:
        seconds = "".join(f"{s:11.1f}" for s in (row.capture_s, row.cut_s, row.first_s))
        left = sum(1 for text in row.others if row.how != "timed") + len(row.left)
        slow = f", over {_SLOW_S:.0f} s to cut" * (row.cut_s > _SLOW_S)
        counts = f"{row.graphs:11}{row.launches:11}{left:11}{row.error:11.2f}"
        yield f"{row.how:>11}{seconds}{counts}  {row.name}, {row.status}{slow}"
        if row.latencies:
            yield f"{'':11}µs: " + ", ".join(f"{way} {value}" for way, value in row.latencies.items())
        if row.status != "right":
            yield f"{'':11}{row.reason}"
    yield ", ".join(f"{count} {status}" for status, count in Counter(row.status for row in rows).items())
    texts = Counter(_kind(t) for row in rows for t in (*row.left, *row.others) if row.how != "timed")
    yield from (f"{count:5} left: {text}" for text, count in texts.most_common())


def _kind(text: str) -> str:
    """A reason without the place in a model's code."""
    return re.sub(r" \([^()]*:\d+\)", "", text)[:200]


def layers() -> Iterator[str]:
    """Launches on an H200 that one layer more takes, in each of the ways in which a model is cut."""
    configured.DEVICE = torch.device("cpu")
    yield "| one layer more | float32 | bfloat16 |\n|---|---|---|"
    for name, layers in _LAYERS.items():
        cells = []
        for dtype in (torch.float32, torch.bfloat16):
            one, two = (_launches(*configured.MODELS[name](**{layers: count}), dtype) for count in (1, 2))
            cells.append(", ".join(str(b - a) for a, b in zip(one, two, strict=False)))
        yield f"| {name} | {' | '.join(cells)} |"


def _launches(model: nn.Module, given: Sequence[Tensor], dtype: torch.dtype) -> list[int]:
    model.requires_grad_(False).to(dtype)
    inputs = [x.to(dtype) if x.is_floating_point() else x for x in given]
    traced = autosched.trace(model, *inputs, allow_fallback=True).for_target(target_named("h200"))
    return [len(cut.launched) for cut in traced.cuts]


def main() -> int:
    options = _options()
    if options.mode == "layers":
        for line in layers():
            print(line, flush=True)
        return 0
    if options.mode == "run":
        run(options)
    print(*table(read(options.out)), sep="\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    modes.add_parser("layers")
    modes.add_parser("show").add_argument("out", type=Path)
    models = modes.add_parser("run")
    models.add_argument("out", type=Path)
    models.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    models.add_argument("--how", choices=HOWS, default="inference", help="on a CPU")
    models.add_argument("--part", default="0/1", help="every n-th model, from the i-th on: i/n")
    models.add_argument("--only", default="", help="a regular expression that names of models match")
    models.add_argument("--jobs", type=int, default=1)
    models.add_argument("--seconds", type=float, default=300.0, help="of a model")
    models.add_argument("--gigabytes", type=float, default=8.0, help="of memory")
    models.add_argument("--trials", type=int, default=32, help="on a GPU, of every kernel")
    models.add_argument("--search", type=float, default=60.0, help="seconds of searches for a graph on a GPU")
    models.add_argument("--log", help="the tuning log on a GPU, by default the user's")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
