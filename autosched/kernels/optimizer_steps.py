"""Steps of optimizers in this process: their fused kernels change tensors without raising the version counters."""

from __future__ import annotations

import functools

from torch.optim.optimizer import register_optimizer_step_post_hook


class OptimizerSteps:
    """The `count` of steps so far."""

    def __init__(self) -> None:
        self.count = 0
        register_optimizer_step_post_hook(self._add)

    def _add(self, *_: object) -> None:
        self.count += 1


@functools.cache
def optimizer_steps() -> OptimizerSteps:
    """Made once in a process: PyTorch goes through the hooks while a step ends, when none may be added or removed."""
    return OptimizerSteps()
