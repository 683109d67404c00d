"""Training of layers with attention by torch.compile's backend: right, and how long a step takes, by each library.

python tests/figures/training.py [--seconds 60] [--only NAME]      on a GPU

For each library that PyTorch may choose (flash, memory-efficient, cuDNN) a layer's results and gradients are compared
with float64's, by PyTorch's own test for compiled models; then the forward and the backward pass are timed together, in
interleaved rounds: eager, torch.compile, and this backend with "max-autotune". What is printed of the graphs says who
computes what: attention is kernels, or the library's where that is faster.
"""

from __future__ import annotations

import argparse
import copy
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.utils import same
from torch.nn.attention import SDPBackend, sdpa_kernel

from autosched.machine import devices
from autosched.machine.timing import Run, interleaved, timer_for
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from tuning_logs.text import duration_text

_ROUNDS = 50
# Backend, element type, heads of queries and of keys, causal, mask, tokens.
Case = tuple[SDPBackend, torch.dtype, int, int, bool, bool, int]
CASES: dict[str, Case] = {
    "flash": (SDPBackend.FLASH_ATTENTION, torch.float16, 12, 12, False, False, 128),
    "flash, causal, grouped": (SDPBackend.FLASH_ATTENTION, torch.bfloat16, 32, 8, True, False, 2048),
    "efficient, masked": (SDPBackend.EFFICIENT_ATTENTION, torch.float16, 12, 12, False, True, 128),
    "efficient, uneven": (SDPBackend.EFFICIENT_ATTENTION, torch.float32, 12, 12, False, False, 197),
    "cudnn": (SDPBackend.CUDNN_ATTENTION, torch.float16, 12, 12, False, False, 128),
    "cudnn, causal": (SDPBackend.CUDNN_ATTENTION, torch.bfloat16, 16, 16, True, False, 2048),
}


class Layer(nn.Module):
    """A layer of a transformer, normalised first."""

    def __init__(self, heads: int, shared: int, causal: bool, channels: int = 64) -> None:
        super().__init__()
        size = heads * channels
        self.channels, self.causal, self.grouped = channels, causal, shared < heads
        self.norm, self.second = nn.LayerNorm(size), nn.LayerNorm(size)
        self.projected, self.out = nn.Linear(size, size + 2 * shared * channels), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        size = x.shape[-1]
        heads = self.projected(self.norm(x)).unflatten(-1, (-1, self.channels)).transpose(1, 2)
        queries = size // self.channels
        q, rest = heads[:, :queries], heads[:, queries:]
        k, v = rest.chunk(2, 1)
        made = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal, enable_gqa=self.grouped)
        x = x + self.out(made.transpose(1, 2).flatten(2))
        y: Tensor = x + self.down(F.gelu(self.up(self.second(x))))
        return y


def step(called: Callable[..., Tensor], given: Sequence[Tensor], wanted: Sequence[Tensor], slope: Tensor) -> Any:
    """The result and the gradients of the parameters."""
    made = called(*given)
    return [made.detach(), *torch.autograd.grad(made, wanted, slope)]


def run(name: str, case: Case, seconds: float) -> None:
    """One row: who computes what, whether it is right, and the time of a step."""
    library, dtype, heads, shared, causal, masked, tokens = case
    torch.manual_seed(0)
    batch = 32 if tokens < 1024 else 1
    model = Layer(heads, shared, causal).to("cuda", dtype)
    x = torch.randn(batch, tokens, heads * 64, device="cuda", dtype=dtype)
    given = [x]
    if masked:
        lengths = torch.randint(tokens // 2, tokens + 1, (batch, 1, 1, 1), device="cuda")
        given.append((torch.arange(tokens, device="cuda") < lengths).expand(batch, 1, tokens, tokens))
    slope, wanted, reports = torch.randn_like(x) / x.numel() ** 0.5, list(model.parameters()), list[GraphReport]()
    exact = copy.deepcopy(model).double()
    expected = step(exact, [x.double(), *given[1:]], list(exact.parameters()), slope.double())
    options = Options(mode="max-autotune", seconds=seconds)
    with sdpa_kernel(library):
        called: dict[str, Callable[..., Any]] = {
            "eager": model,
            "torch.compile": torch.compile(model),
            "autosched": torch.compile(copy.copy(model), backend=backend_of(options, reports.append)),
        }
        runs: dict[str, Run] = {way: partial(step, each, given, wanted, slope) for way, each in called.items()}
        results: dict[str, Any] = {way: each() for way, each in runs.items()}
        right = same(results["eager"], results["autosched"], expected, tol=1e-3)
        samples = interleaved(runs, _ROUNDS, timer_for(devices.resolve(None), "hot"))
    took = ", ".join(f"{way} {duration_text(statistics.median(taken))}" for way, taken in samples.items())
    print(f"{name}: {'right' if right else 'WRONG'}; {took}", flush=True)
    for report in reports:
        print(f"  {report}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of searching for each graph")
    parser.add_argument("--only", choices=CASES, help="one of the cases")
    options = parser.parse_args()
    for name in [options.only] if options.only else CASES:
        torch.compiler.reset()
        run(name, CASES[name], options.seconds)


if __name__ == "__main__":
    main()
