"""Gain of the alternatives that are chosen in place: a model by its log, and by the same log without the choices.

python tests/figures/alternatives.py [--trials 2000] [--log FILE]
python tests/figures/alternatives.py --suite FILE --only NAME [...]    models as `autosched bench models` takes them
python tests/figures/alternatives.py --smoke                        small sizes, few trials, on any device

Each model is tuned by `tune_model`, which times alternatives in its segments: rivals of kernels, calls of libraries,
other cuts. It is then compiled in the mode "reduce-overhead" by that log, by one without choices of rivals and cuts,
and by one without any, which search nothing; all three are called in interleaved rounds, and compared with eager.
"""

from __future__ import annotations

import argparse
import runpy
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import autosched
from autosched.backends.environment import environment
from autosched.machine import devices
from autosched.machine.timing import interleaved, timer_for
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from tuning_logs import TuningLog
from tuning_logs.intervals import paired_ratio, ratio_interval
from tuning_logs.text import duration_text

# Of results with deviation 1, after rounding to float16 at every operator.
CLOSE = 2e-2
# The ratio of medians is then known to some tenths of a percent.
_ROUNDS = 100
_LAYERS = 6
# By the names of calls: the kinds of alternatives that their logs lack.
WITHOUT: dict[str, dict[str, Any]] = {
    "all": {},
    "libraries": {"rival": None, "cuts": ()},
    "none": {"library": None, "rival": None, "cuts": ()},
}


class Layer(nn.Module):
    """Attention and two linear layers around it, with residuals."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        made: Tensor = x + self.down(nn.functional.gelu(self.up(x)))
        return made


Model = tuple[Callable[..., Any], list[Any]]


def transformer(small: bool) -> Model:
    width, batch, length = (64, 2, 16) if small else (768, 32, 128)
    return nn.Sequential(*(Layer(width, width // 64) for _ in range(_LAYERS))), [torch.randn(batch, length, width)]


def convolutions(small: bool) -> Model:
    channels, batch, size = (8, 2, 8) if small else (64, 32, 56)
    layers = [nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()) for _ in range(_LAYERS)]
    return nn.Sequential(*layers), [torch.randn(batch, channels, size, size).to(memory_format=torch.channels_last)]


def on_device(make: Callable[[bool], Model], small: bool) -> Model:
    model, inputs = make(small)
    assert isinstance(model, nn.Module)
    gpu = devices.detect().kind == "gpu"
    device, dtype = ("cuda", torch.float16) if gpu else ("cpu", torch.float32)
    return model.to(device, dtype).eval(), [x.to(device, dtype) for x in inputs]


def stripped(log: Path, without: Mapping[str, Any]) -> Path:
    """A copy of a log without alternatives of some kinds: what its records have in the place of each."""
    path = log.with_name(f"{log.stem}-without-{'-'.join(without)}{log.suffix}")
    path.unlink(missing_ok=True)
    TuningLog(path).append(*(replace(r, measurement=replace(r.measurement, **without)) for r in TuningLog(log)))
    return path


def compiled(model: Callable[..., Any], log: Path) -> tuple[Callable[..., Any], list[GraphReport]]:
    reports: list[GraphReport] = []
    options = Options(mode="reduce-overhead", log=str(log))
    return torch.compile(model, backend=backend_of(options, reports.append)), reports


def run(name: str, model: Callable[..., Any], inputs: list[Any], trials: int, log: Path) -> None:
    """Tune a model, and print what was chosen and the gain."""
    autosched.tune_model(model, *inputs, trials=trials, log=log)
    torch.compiler.reset()
    made = {way: compiled(model, stripped(log, without) if without else log) for way, without in WITHOUT.items()}
    expected = model(*inputs)
    for way, (call, reports) in made.items():
        for _ in range(3):
            torch.testing.assert_close(call(*inputs), expected, rtol=CLOSE, atol=CLOSE)
        print(f"{name}, {way}:", *reports, sep="\n  ", flush=True)
    calls = {way: partial(call, *inputs) for way, (call, _) in made.items()}
    samples = interleaved(calls, _ROUNDS, timer_for(devices.detect(), "hot"))
    for way in ("all", "libraries"):
        interval = ratio_interval(samples["none"], samples[way])
        assert interval is not None
        ratio = paired_ratio(samples["none"], samples[way])
        print(f"{name}: none by {way} {ratio:.3f} ({interval.low:.3f} to {interval.high:.3f})", flush=True)
    print(f"{name}:", ", ".join(f"{way} {duration_text(statistics.median(taken))}" for way, taken in samples.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, help="of all kernels of a model together, 2000 by default")
    parser.add_argument("--log", type=Path, default=Path(tempfile.mkdtemp()) / "log.jsonl")
    parser.add_argument("--suite", type=Path, help="a file with MODELS, by default models of this script")
    parser.add_argument("--only", help="one of the models")
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    own = {f.__name__: partial(on_device, f, given.smoke) for f in (transformer, convolutions)}
    models = runpy.run_path(str(given.suite))["MODELS"] if given.suite else own
    target = devices.detect()
    print(target.label, dict(environment(target)))
    for name in [given.only] if given.only else models:
        model, inputs = models[name]()
        with torch.no_grad():
            run(name, model, inputs, given.trials or (24 if given.smoke else 2000), given.log)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
