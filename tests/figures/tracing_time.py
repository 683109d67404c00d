"""How long tracing takes: whole models, recurrent nets written as loops, and gradients; and how it grows.

python tests/figures/tracing_time.py                    the table; needs `transformers` and `timm`
python tests/figures/tracing_time.py ViT-B LSTM …       some of its rows
python tests/figures/tracing_time.py --growth           the same of twice the layers or steps
python tests/figures/tracing_time.py --profile ViT-B    where the time of one goes, in this process
python tests/figures/tracing_time.py --compiled         models under torch.compile: from AOTAutograd's graph to kernels
python tests/figures/tracing_time.py --numerics         what rewriting adds to tracing
python tests/figures/tracing_time.py --first-trial      a model under torch.compile: until its first trial on this CPU

Each is traced at full size from its configuration, with random weights and what has no kernel left to PyTorch, and then
cut for an H200, in a process of its own, on one thread. Nothing is run, and seconds are those of the processor. Models
under torch.compile have weights without data, in float16, images channels last as on a GPU, and no cache of earlier
graphs; a row says how often each of their segments is there. Until the first trial there is a call of the backend with
mode="max-autotune", by kernels alone, with weights that have data, and an empty log; the script's own process counts,
and not those that compile.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import functools
import multiprocessing
import os
import pstats
import queue
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch._subclasses import FakeTensorMode

from autosched import trace
from autosched.measuring.local_measurer import LocalMeasurer
from autosched.torch_compile import graph_compiler, problems
from autosched.torch_compile.backend import backend_of, by_graphs, compiled_once
from autosched.torch_compile.composition import composed
from autosched.torch_compile.graphs import Allowed, traced_or_why, weights_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.problems import TracedProblem, traced_problems
from autosched.torch_compile.reports import Kind
from autosched.torch_compile.segments import DividedGraph
from autosched.torch_compile.tuning.tuning_together import tune_together
from autosched.tracing.capture.capture import Numerics, Weights
from search_spaces import target_named

sys.path.append(str(Path(__file__).parent / "suites"))
from configured import allow_no_torchvision

# A row that takes longer is ended.
_LIMIT_S = 150


@dataclass(frozen=True)
class Case:
    """What is traced: a function of tensors, and whether with its gradient."""

    function: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    backward: bool = False


@dataclass(frozen=True)
class Row:
    """Seconds of `trace` and of cutting for the target, and the launches of the result."""

    trace_s: float
    target_s: float
    launches: int


def images(model: nn.Module, size: int = 224) -> Case:
    model.eval().requires_grad_(False)
    return Case(model, (torch.empty(1, 3, size, size),))


def timm_model(name: str, size: int = 224, **options: Any) -> Case:
    allow_no_torchvision()
    import timm

    return images(timm.create_model(name, pretrained=False, **options), size)


def from_config(config: Any, names: Sequence[str], *inputs: Tensor) -> Case:
    """The model of a configuration of `transformers`, called with these inputs by name."""
    from transformers import AutoModel

    model = AutoModel.from_config(config).eval().requires_grad_(False)

    def forward(*tensors: Tensor) -> Any:
        return model(**dict(zip(names, tensors, strict=True)))

    return Case(forward, inputs)


def siglip() -> Case:
    from transformers import SiglipConfig

    tokens = torch.zeros(1, 64, dtype=torch.int64)
    return from_config(SiglipConfig(), ("input_ids", "pixel_values"), tokens, torch.empty(1, 3, 224, 224))


def koelectra(layers: int = 12) -> Case:
    from transformers import ElectraConfig

    config = ElectraConfig(vocab_size=35000, embedding_size=128, hidden_size=256, num_hidden_layers=layers)
    config.num_attention_heads, config.intermediate_size = 4, 1024
    return from_config(config, ("input_ids",), torch.zeros(1, 128, dtype=torch.int64))


def data2vec(layers: int = 12) -> Case:
    from transformers import Data2VecVisionConfig

    config = Data2VecVisionConfig(
        num_hidden_layers=layers, use_relative_position_bias=True, use_shared_relative_position_bias=False
    )
    return from_config(config, ("pixel_values",), torch.empty(1, 3, 224, 224))


def mixer(layers: int = 8) -> Case:
    allow_no_torchvision()
    from timm.models.mlp_mixer import MlpMixer

    return images(MlpMixer(num_blocks=layers))


def vision_transformer(width: int, depth: int, heads: int, patch: int = 16) -> Case:
    allow_no_torchvision()
    from timm.models.vision_transformer import VisionTransformer

    return images(VisionTransformer(embed_dim=width, depth=depth, num_heads=heads, patch_size=patch))


class LoopedRnn(nn.Module):
    """A recurrent net written as a loop, as KernelBench's."""

    def __init__(self, inputs: int = 1024, hidden: int = 256, outputs: int = 128) -> None:
        super().__init__()
        self.i2h, self.h2o = nn.Linear(inputs + hidden, hidden), nn.Linear(hidden, outputs)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        made = []
        for step in x.unbind(0):
            hidden = torch.tanh(self.i2h(torch.cat((step, hidden), 1)))
            made.append(self.h2o(hidden))
        return torch.stack(made)


def rnn(steps: int) -> Case:
    return Case(LoopedRnn().requires_grad_(False), (torch.empty(steps, 8, 1024), torch.empty(8, 256)))


def lstm(steps: int) -> Case:
    model = nn.LSTM(128, 256, batch_first=True).requires_grad_(False)
    return Case(lambda x, h, c: model(x, (h, c)), (torch.empty(10, steps, 128), *torch.empty(2, 1, 10, 256)))


def gru(steps: int) -> Case:
    model = nn.GRU(128, 256).requires_grad_(False)
    return Case(model, (torch.empty(steps, 10, 128), torch.empty(1, 10, 256)))


def iou(a: Tensor, b: Tensor) -> Tensor:
    """The loss of boxes by how far each overlaps each other one: `a` of n×4, `b` of m×4."""
    least, most = torch.maximum(a[:, None, :2], b[:, :2]), torch.minimum(a[:, None, 2:], b[:, 2:])
    inside = (most - least).clamp(min=0).prod(-1)
    area_a, area_b = ((x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]) for x in (a, b))
    return (1 - inside / (area_a[:, None] + area_b - inside)).sum()


def looped_scan(x: Tensor, decay: Tensor) -> Tensor:
    """A recurrence of as many steps as `x` has rows, each with a softmax."""
    state, total = torch.zeros_like(x[0]), x.new_zeros(())
    for row in x:
        state = torch.softmax(state * decay + row, -1)
        total = total + (state * state).sum()
    return total


def ssim(x: Tensor, y: Tensor) -> Tensor:
    """Structural similarity with windows of 7×7."""
    pool = functools.partial(F.avg_pool2d, kernel_size=7, stride=1)
    mean_x, mean_y = pool(x), pool(y)
    var_x, var_y = pool(x * x) - mean_x**2, pool(y * y) - mean_y**2
    both = pool(x * y) - mean_x * mean_y
    top = (2 * mean_x * mean_y + 1e-4) * (2 * both + 9e-4)
    return (top / ((mean_x**2 + mean_y**2 + 1e-4) * (var_x + var_y + 9e-4))).mean()


CASES: dict[str, Callable[[], Case]] = {
    "DenseNet-121": lambda: timm_model("densenet121"),
    "DenseNet-201": lambda: timm_model("densenet201"),
    "SigLIP-base": siglip,
    "KoELECTRA-small": koelectra,
    "data2vec-vision": data2vec,
    "MLP-Mixer": mixer,
    "DeiT-tiny": lambda: vision_transformer(192, 12, 3),
    "MaxViT-tiny": lambda: timm_model("maxvit_tiny_tf_224"),
    "ViT-B": lambda: vision_transformer(768, 12, 12),
    "ViT-H": lambda: vision_transformer(1280, 32, 16, 14),
    "RNN": lambda: rnn(256),
    "LSTM": lambda: lstm(512),
    "GRU": lambda: gru(512),
    "gradient of IoU": lambda: Case(iou, (torch.rand(5, 4), torch.rand(6, 4)), True),
    "gradient of a scan": lambda: Case(looped_scan, (torch.rand(4, 64), torch.rand(64)), True),
    "gradient of SSIM": lambda: Case(ssim, (torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 32)), True),
}

# Once, and with twice as many layers or steps.
GROWTH: dict[str, tuple[Callable[[], Case], Callable[[], Case]]] = {
    "ViT-B, 12 and 24 layers": (CASES["ViT-B"], lambda: vision_transformer(768, 24, 12)),
    "KoELECTRA, 12 and 24 layers": (koelectra, lambda: koelectra(24)),
    "data2vec, 12 and 24 layers": (data2vec, lambda: data2vec(24)),
    "MLP-Mixer, 8 and 16 layers": (mixer, lambda: mixer(16)),
    "RNN, 128 and 256 steps": (lambda: rnn(128), lambda: rnn(256)),
    "LSTM, 256 and 512 steps": (lambda: lstm(256), lambda: lstm(512)),
    "GRU, 256 and 512 steps": (lambda: gru(256), lambda: gru(512)),
}


def first_result(config: Any) -> Callable[..., Any]:
    from transformers import AutoModel

    model = AutoModel.from_config(config, dtype=torch.float16).eval()
    return lambda x: model(x, **({"use_cache": False} if hasattr(config, "use_cache") else {}))[0]


def bert_large() -> tuple[Callable[..., Any], Tensor]:
    from transformers import BertConfig

    config = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    return first_result(config), torch.zeros(8, 128, dtype=torch.int64)


def llama_8b() -> tuple[Callable[..., Any], Tensor]:
    from transformers import LlamaConfig

    config = LlamaConfig(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32)
    config.num_attention_heads, config.num_key_value_heads = 32, 8
    return first_result(config), torch.zeros(1, 2048, dtype=torch.int64)


def vit_large() -> tuple[Callable[..., Any], Tensor]:
    from transformers import CLIPVisionConfig

    config = CLIPVisionConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    config.patch_size = 14
    return first_result(config), torch.empty(8, 3, 224, 224, dtype=torch.float16)


def densenet_201(dtype: torch.dtype) -> tuple[Callable[..., Any], Tensor]:
    allow_no_torchvision()
    import timm

    return timm.create_model("densenet201", dtype=dtype).eval(), torch.empty(8, 3, 224, 224, dtype=dtype)


# Called without data.
COMPILED: dict[str, Callable[[], tuple[Callable[..., Any], Tensor]]] = {
    "BERT-large 8×128": bert_large,
    "Llama-3-8B 1×2048": llama_8b,
    "ViT-L/14 ×8": vit_large,
    "DenseNet-201 ×8": lambda: densenet_201(torch.float16),
    "DenseNet-201 ×8, float32": lambda: densenet_201(torch.float32),
}


def compiled(name: str) -> str:
    """The row of a model under torch.compile: seconds of the processor, since AOTAutograd ended."""
    rows = []

    def compiler(kind: Kind, _: Weights) -> Callable[..., Any]:
        def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            begin = time.process_time()
            # As for a GPU, which these inputs are not on.
            divided = DividedGraph.of(graph, inputs, weights_of(inputs, kind)).with_channels_last()
            found = traced_problems(divided, kind, Allowed()).values()
            middle = time.process_time()
            cut = [p.traced.for_target(target_named("h200")) for p in found if isinstance(p, TracedProblem)]
            seconds = [middle - begin, time.process_time() - middle]
            times = " + ".join(f"{n} × {s.operators}" for s, n in divided.problems)
            launches = sum(len(c.launched) * n for c, (_, n) in zip(cut, divided.problems, strict=True))
            rows.append(f"| {name} | {seconds[0]:.1f} | {seconds[1]:.1f} | {sum(seconds):.1f} | {launches} | {times} |")
            return composed(divided, [(s, s.module.forward) for s in divided.segments])

        return compile_graph

    # Without the cache of earlier graphs, which would also cut them for this machine.
    fresh = mock.patch.object(problems, "known_or_traced", traced_or_why)
    with fresh, FakeTensorMode(), torch.no_grad():
        model, given = COMPILED[name]()
        compiled_once(model, by_graphs(compiler), given, dynamic=False)
    return "\n".join(rows)


def show_compiled(names: Sequence[str]) -> None:
    print("| model | trace, s | cut for an H200, s | both, s | launches | segments, operators of each |")
    print("|---|---|---|---|---|---|")
    for name in names or COMPILED:
        print(apart(functools.partial(compiled, name)), flush=True)


class _FirstTrial(BaseException):
    """Ends a search: no handler of errors takes it for one."""


def bert_base() -> tuple[Callable[..., Any], Tensor]:
    from transformers import AutoModel, BertConfig

    model = AutoModel.from_config(BertConfig()).eval().requires_grad_(False)
    return lambda x: model(x)[0], torch.zeros(1, 128, dtype=torch.int64)


# Called with data.
TUNED: dict[str, Callable[[], tuple[Callable[..., Any], Tensor]]] = {"BERT-base 1×128": bert_base}


def first_trial(name: str, numerics: Numerics) -> str:
    """The row of a model tuned under torch.compile: seconds of the processor from the call of the backend, until it has
    kernels to tune, and until the first trial.
    """
    begin, traced = 0.0, 0.0

    def backend(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        nonlocal begin
        begin = time.process_time()
        return backend_of(options, lambda report: None)(graph, inputs)

    def tuned(*given: Any, **named: Any) -> Any:
        nonlocal traced
        traced = time.process_time()
        return tune_together(*given, **named)

    def submit(*given: Any, **named: Any) -> Any:
        raise _FirstTrial(time.process_time())

    model, given = TUNED[name]()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        options = Options.of("max-autotune", {"strict": True, "log": f"{folder}/log.jsonl", "numerics": numerics})
        for place, attribute, made in (
            (problems, "known_or_traced", traced_or_why),
            (graph_compiler, "tune_together", tuned),
            (LocalMeasurer, "submit", submit),
        ):
            stack.enter_context(mock.patch.object(place, attribute, made))
        stack.enter_context(torch.no_grad())
        try:
            compiled_once(model, backend, given, dynamic=False)
        except _FirstTrial as end:
            return f"| {name} | {numerics} | {traced - begin:.1f} | {end.args[0] - begin:.1f} |"
    return f"| {name} | {numerics} | no trial | |"


def show_first_trial(names: Sequence[str]) -> None:
    print("| model | numerics | traced, s | first trial, s |\n|---|---|---|---|")
    for name in names or TUNED:
        for numerics in get_args(Numerics):
            print(apart(functools.partial(first_trial, name, numerics)), flush=True)


def measured(case: Case) -> Row:
    inputs = [x.requires_grad_(case.backward) for x in case.inputs]
    begin = time.process_time()
    traced = trace(case.function, *inputs, allow_fallback=True, backward=case.backward)
    middle = time.process_time()
    cut = traced.for_target(target_named("h200"))
    end = time.process_time()
    launched = getattr(cut, "launched", cut.workloads)
    return Row(middle - begin, end - middle, len(launched))


def measured_apart(case: Callable[[], Case]) -> Row | str:
    return apart(lambda: measured(case()))


def apart(work: Callable[[], Row | str]) -> Row | str:
    """The row made in a process of its own; or why there is none."""
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[Row | str] = context.Queue()

    def run() -> None:
        torch.set_num_threads(1)
        try:
            answers.put(work())
        except Exception as error:
            answers.put(f"{type(error).__name__}: {error}"[:200])

    process = context.Process(target=run)
    process.start()
    try:
        return answers.get(timeout=_LIMIT_S)
    except queue.Empty:
        return f"over {_LIMIT_S} s"
    finally:
        process.kill()
        process.join()


def show(names: Sequence[str]) -> None:
    print("| traced | trace, s | cut for an H200, s | both, s | launches |\n|---|---|---|---|---|")
    for name in names or CASES:
        row = measured_apart(CASES[name])
        if isinstance(row, Row):
            both = row.trace_s + row.target_s
            print(f"| {name} | {row.trace_s:.1f} | {row.target_s:.1f} | {both:.1f} | {row.launches} |", flush=True)
        else:
            print(f"| {name} | {row} | | | |", flush=True)


def show_growth(names: Sequence[str]) -> None:
    print("| traced | s | twice as much, s | ratio |\n|---|---|---|---|")
    for name, pair in GROWTH.items():
        if names and not any(name.startswith(n) for n in names):
            continue
        rows = [measured_apart(case) for case in pair]
        seconds = [r.trace_s + r.target_s for r in rows if isinstance(r, Row)]
        if len(seconds) == 2:
            print(f"| {name} | {seconds[0]:.1f} | {seconds[1]:.1f} | {seconds[1] / seconds[0]:.2f} |", flush=True)
        else:
            print(f"| {name} | {rows[0]} | {rows[1]} | |", flush=True)


def by_numerics(name: str) -> str:
    """The row of a function traced with each numerics: seconds, and the cuts that each finds."""
    case = CASES[name]()
    seconds, found = [], []
    first, *_ = every = get_args(Numerics)
    # The first of all pays for what PyTorch and this package set up once for its operators.
    for numerics in (first, *every):
        begin = time.process_time()
        traced = trace(case.function, *case.inputs, allow_fallback=True, numerics=numerics)
        seconds.append(time.process_time() - begin)
        found.append(str(len(traced.cuts)))
    of_eager, *others = seconds[1:]
    ratios = " | ".join(f"{s / of_eager:.2f}" for s in others)
    return f"| {name} | {of_eager:.1f} | {ratios} | {', '.join(found[1:])} |"


def show_numerics(names: Sequence[str]) -> None:
    first, *others = get_args(Numerics)
    print(f"| traced | {first}, s | {', of that | '.join(others)}, of that | cuts |")
    print("|---|---|---|---|---|")
    for name in names or (n for n in CASES if not n.startswith("gradient")):
        print(apart(functools.partial(by_numerics, name)), flush=True)


def show_profile(name: str) -> None:
    case = CASES[name]()
    profile = cProfile.Profile()
    profile.enable()
    row = measured(case)
    profile.disable()
    print(row)
    pstats.Stats(profile).sort_stats("cumulative").print_stats(70)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(CASES)}")
    parser.add_argument("--growth", action="store_true", help="with twice as many layers or steps")
    parser.add_argument("--compiled", action="store_true", help=f"models: {', '.join(COMPILED)}")
    parser.add_argument("--numerics", action="store_true", help="what rewriting adds")
    parser.add_argument("--first-trial", action="store_true", help=f"models: {', '.join(TUNED)}")
    parser.add_argument("--profile", metavar="NAME", help="where the time of one goes")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    # What PyTorch sets up once.
    trace(lambda a, b: torch.relu(a @ b), torch.empty(64, 64), torch.empty(64, 64))
    if given.compiled:
        show_compiled(given.names)
    elif given.profile:
        show_profile(given.profile)
    elif given.growth:
        show_growth(given.names)
    elif given.first_trial:
        show_first_trial(given.names)
    elif given.numerics:
        show_numerics(given.names)
    else:
        show(given.names)


if __name__ == "__main__":
    main()
