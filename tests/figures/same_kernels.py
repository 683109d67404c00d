"""How many neighbours by one decision are the same kernel: text, launch options and all that reaches a compiler.

python tests/figures/same_kernels.py            a table: anchors × backends, and the decisions that are not told apart
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F

from autosched import backends, ops, trace
from autosched.backends import spaces
from autosched.backends.backend import CompileError
from autosched.backends.fingerprint import source_fingerprint
from autosched.machine.devices import cpu_target
from search_spaces import Schedule, SearchSpace, Target, Workload, target_named

_SCHEDULES = 12
# What stands at the top of a text: the schedule and the loop nest.
_COMMENT = re.compile(r"\A(?:(?://|;)[^\n]*\n)+")


def workloads() -> dict[str, Workload]:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    heads = [torch.empty(2, 8, 1024, 64, dtype=torch.bfloat16) for _ in range(3)]
    (attended,) = trace(attention, *heads).workloads
    gated, *_ = trace(
        lambda x, a, b: F.silu(x @ a) * (x @ b), *(torch.empty(1024, 1024, dtype=torch.bfloat16) for _ in range(3))
    ).workloads
    (scan,) = trace(lambda x: x.cumsum(-1), torch.empty(1024, 4096)).workloads
    (points,) = trace(
        lambda x, y: F.gelu(x) * y, *(torch.empty(2048, 4096, dtype=torch.bfloat16) for _ in range(2))
    ).workloads
    (columns,) = trace(lambda x: x.sum(0), torch.empty(4096, 2048)).workloads
    return {
        "product": ops.matmul(4096, 4096, 4096, dtype="bfloat16"),
        "product of a vector": ops.matmul(1, 4096, 4096, dtype="bfloat16", layout="nt"),
        "two products": gated,
        "attention": attended,
        "softmax": ops.softmax(4096, 4096, dtype="bfloat16"),
        "layer norm": ops.layernorm(4096, 1000, dtype="float16"),
        "column sum": columns,
        "scan": scan,
        "pointwise": points,
    }


def fingerprint(schedule: Schedule, target: Target) -> str:
    program = schedule.program
    try:
        text = backends.named(schedule.backend).render(program, "", target)
    except CompileError as error:
        return f"refused: {error}"
    if schedule.backend == "triton":
        return source_fingerprint(text, program)
    # All else stands in the text.
    launched = [
        (k.grid.programs, k.launch.num_warps, k.launch.num_ctas if k.launch.producer_warps else 1)
        for k in program.kernels
    ]
    return f"{_COMMENT.sub('', text)} {launched} {program.zeroed}"


def neighbours(space: SearchSpace, seed: int) -> Iterator[tuple[Schedule, Schedule, str]]:
    """Random schedules, for each knob of each a legal neighbour by it alone, and the knob."""
    rng = np.random.default_rng(seed)
    for _ in range(_SCHEDULES):
        schedule = space.sample(rng)
        near: dict[str, list[Schedule]] = {}
        for other in space.neighbours(schedule):
            changed = [k for k, v in other.values if schedule.knobs[k] != v]
            if len(changed) == 1:
                near.setdefault(changed[0], []).append(other)
        for knob, others in near.items():
            yield schedule, others[int(rng.integers(len(others)))], knob


def main() -> None:
    print("| anchor | backend | neighbours | the same kernel | by |")
    print("|---|---|---|---|---|")
    targets = (("h200", target_named("h200")), ("v100", target_named("v100")), ("cpu", cpu_target()))
    for name, workload in workloads().items():
        for device, target in targets:
            for backend in backends.for_target(target):
                if backend.limits.why_unsupported(workload, target):
                    continue
                space = spaces.build(workload, target, [backend])
                total, same = Counter(), Counter()
                known: dict[Schedule, str] = {}
                for a, b, knob in neighbours(space, 0):
                    for s in (a, b):
                        if s not in known:
                            known[s] = fingerprint(s, target)
                    total[knob] += 1
                    same[knob] += known[a] == known[b]
                by = ", ".join(f"{k} {n}/{total[k]}" for k, n in same.most_common() if n)
                share = 100 * same.total() / max(1, total.total())
                print(f"| {name} | {backend.name} {device} | {total.total()} | {share:.1f} % | {by} |", flush=True)


if __name__ == "__main__":
    main()
