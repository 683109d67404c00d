"""Graphs of many short launches that are left to Inductor, by each way to launch them.

python tests/figures/short_launches.py

For a chain of small products and for its training step: the latency of a call, that of the host included, by eager, by
torch.compile in the modes default and reduce-overhead, and by the backend "autosched" with an empty log in the same two
modes, in interleaved rounds; the least of all rounds in µs. The backend's reduce-overhead should be near PyTorch's: it
copies inputs that move and all results, PyTorch's copies inputs only, and its results are overwritten by later calls.
Needs a GPU. About two minutes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

_ROUNDS = 20
_CALLS = 50
_LAYERS = 24
_WIDTHS = (128, 1024)
_ROWS = 64


def main() -> None:
    for width in _WIDTHS:
        for trained in (False, True):
            print(f"{_LAYERS} layers of {_ROWS} × {width}, {'training step' if trained else 'inference'}")
            for name, seconds in timed(ways(width, trained)).items():
                print(f"  {name:35} {seconds * 1e6:9.1f} µs")


def ways(width: int, trained: bool) -> dict[str, Callable[[], object]]:
    layers = [layer for _ in range(_LAYERS) for layer in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())]
    model = nn.Sequential(*layers).half().cuda().requires_grad_(trained)
    x = torch.randn(_ROWS, width, device="cuda", dtype=torch.float16)
    log = str(Path(tempfile.mkdtemp()) / "empty.jsonl")
    called: dict[str, Callable[[Tensor], Tensor]] = {"eager": model}
    for mode in ("default", "reduce-overhead"):
        torch._dynamo.reset()
        called[f"torch.compile, {mode}"] = torch.compile(model, mode=mode)
        options: dict[str, str | int | bool | Callable[..., object]] = {"mode": mode, "log": log}
        called[f"autosched, {mode}"] = torch.compile(model, backend="autosched", options=options)

    def step(call: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        def run() -> None:
            with torch.set_grad_enabled(trained):
                torch.compiler.cudagraph_mark_step_begin()
                made = call(x.clone())
            if trained:
                model.zero_grad()
                made.float().sum().backward()

        return run

    return {name: step(call) for name, call in called.items()}


def timed(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The least latency of each."""
    found = dict.fromkeys(runs, float("inf"))
    for run in runs.values():
        for _ in range(5):
            run()
    for _ in range(_ROUNDS):
        for name, run in runs.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(_CALLS):
                run()
            torch.cuda.synchronize()
            found[name] = min(found[name], (time.perf_counter() - begin) / _CALLS)
    return found


if __name__ == "__main__":
    main()
