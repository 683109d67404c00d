"""Kernels against the one call of a library that computes the same: each by itself, and within a model.

python tests/figures/library_choices.py [--trials 8] [--log FILE]
python tests/figures/library_choices.py --smoke                        small sizes, on any device

A transformer layer and convolutions are compiled with few trials, so that some kernels are slower than libraries; then
again in the mode "default", which takes the choices of the log. Both reports name the libraries that are called, with
the kernel's time as a multiple of the library's, and results are compared with eager's.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import autosched
from autosched.backends.environment import environment
from autosched.machine import devices
from autosched.torch_compile.backend import autosched as backend
from tuning_logs import TuningLog

# Of results with deviation 1, after rounding to float16 at every operator.
CLOSE = 2e-2


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


def convolutions(channels: int) -> nn.Sequential:
    first, second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--log", type=Path, default=Path(tempfile.mkdtemp()) / "log.jsonl")
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args()
    target = devices.detect()
    device, dtype = ("cuda", torch.float16) if target.kind == "gpu" else ("cpu", torch.float32)
    width, batch, size = (64, 2, 8) if arguments.smoke else (768, 32, 56)
    models: list[tuple[nn.Module, Tensor]] = [
        (Layer(width, width // 64), torch.randn(batch, 128, width)),
        (convolutions(64), torch.randn(batch, 64, size, size).to(memory_format=torch.channels_last)),
    ]
    print(target.label, dict(environment(target)))
    for model, given in models:
        model, x = model.to(device, dtype).eval(), given.to(device, dtype)
        for mode in ("max-autotune", "default", "reduce-overhead"):
            torch.compiler.reset()
            options = {"mode": mode, "log": arguments.log}
            if mode == "max-autotune":
                options["trials"] = arguments.trials
            with torch.no_grad():
                print(mode, autosched.explain(model, x, options=options), flush=True)
                made = torch.compile(model, backend=backend, options=options)
                for _ in range(3):
                    torch.testing.assert_close(made(x), model(x), rtol=CLOSE, atol=CLOSE)
    for record in TuningLog(arguments.log):
        if (choice := record.measurement.library) is not None:
            print(f"{record.workload.label}: {choice}{', taken' if choice.taken else ''}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
