"""Entries of one token into caches of keys and values: microseconds of a call, as a CUDA graph on the GPU that is here.

python tests/figures/cache_entries.py [--layers 16] [--positions 2048] [--schedules 4]

Each layer has keys and values of one buffer, of 8 heads of width 64, in bfloat16. `eager` is PyTorch's `index_copy_`;
`copied` computes new caches, and copies them back; `whole` stores all elements where they lie, `entries` only what
changes. Kernels are not tuned: each line has one schedule. All are compared with eager, bit for bit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from autosched.torch_compile import composition, direct_writes, graph_compiler
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from autosched.tracing import TracedFunction, TracedKernel
from search_spaces import Target

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from untuned import untuned_kernels

WAYS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "copied": lambda: patch.object(composition, "direct_writes", lambda *_: {}),
    "whole": lambda: patch.object(direct_writes, "storing_in_place", lambda *_: None),
    "entries": nullcontext,
}


class Caches(nn.Module):
    def __init__(self, layers: int, positions: int) -> None:
        super().__init__()
        for layer in range(layers):
            self.register_buffer(f"layer{layer}", torch.randn(2, 1, 8, positions, 64, dtype=torch.bfloat16))

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        for cache in self.buffers():
            keys, values = cache
            keys.index_copy_(2, position, token)
            values.index_copy_(2, position, token * 2)
        return token + 1


def microseconds(call: Callable[[], object], calls: int = 200) -> float:
    for _ in range(5):
        call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / calls * 1e3


def measured(layers: int, positions: int, seed: int, way: str) -> float:
    def kernels(traced: TracedFunction, target: Target, log: object, strict: bool = False) -> TracedKernel:
        traced = traced.for_target(target)
        return TracedKernel(traced, untuned_kernels(traced.workloads, target, seed))

    torch.compiler.reset()
    torch.manual_seed(0)
    ours, eagers = (Caches(layers, positions).cuda() for _ in range(2))
    eagers.load_state_dict(ours.state_dict())
    token = torch.randn(1, 8, 1, 64, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad(), patch.object(graph_compiler, "replay", kernels), WAYS[way]():
        called = torch.compile(ours, backend=backend_of(Options("reduce-overhead", strict=True), lambda _: None))
        for at in (0, positions // 2, positions - 1, -1):
            position = torch.tensor([at % positions], device="cuda")
            called(token + at, position)
            eagers(token + at, position)
            pairs = zip(ours.buffers(), eagers.buffers(), strict=True)
            assert all(torch.equal(a.view(torch.int16), b.view(torch.int16)) for a, b in pairs), f"{way} at {at}"
        return microseconds(lambda: called(token, position))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--positions", type=int, default=2048)
    parser.add_argument("--schedules", type=int, default=4)
    given = parser.parse_args()
    print(f"on {torch.cuda.get_device_name()}; µs of a call")
    caches, position = Caches(given.layers, given.positions).cuda(), torch.tensor([5], device="cuda")
    token = torch.randn(1, 8, 1, 64, device="cuda", dtype=torch.bfloat16)
    print(f"eager {microseconds(lambda: caches(token, position)):.1f}")
    for seed in range(given.schedules):
        found = {way: measured(given.layers, given.positions, seed, way) for way in WAYS}
        print(f"schedule {seed}  " + "  ".join(f"{way} {us:.1f}" for way, us in found.items()))


if __name__ == "__main__":
    main()
