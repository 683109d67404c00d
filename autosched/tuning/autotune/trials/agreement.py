"""Agreement of configurations' results: the result of the majority counts as right.

There is no reference for a kernel that somebody else wrote. So the results of its configurations are compared with each
other, and those of the majority are taken to be right. Rounding differs between configurations, and atomics add in any
order: results agree when they differ by less than a share of themselves, or of their root mean square.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from autosched.tuning.autotune.trials.saved_tensors import copied

# Tolerance, relative to the largest of an element and the tensor's root mean square. A tile that is skipped, or added
# twice, is an error of the size of the elements; the tolerance is for rounding: of float32 that of products in tf32, of
# 16 bits several units in the last place (2^-11 and 2^-8), of 8 bits one unit, which is up to a third of a number (3 to
# 4 in e5m2).
_ALLOWED = {torch.float64: 1e-6, torch.float32: 1e-2, torch.float16: 1e-2, torch.bfloat16: 3e-2}
_ALLOWED_OF_8_BITS = 0.5
# Different results that are kept, each as large as the outputs; a result that agrees with none of them has no vote.
_MOST_KEPT = 3
# Elements compared at a time.
_AT_A_TIME = 2**24


@dataclass
class _Result:
    tensors: Mapping[str, torch.Tensor]
    votes: int = 1


class Agreement:
    """Groups results of one kernel by agreement; the first of them wins a tie.

    A result is the tensors that the kernel is known to change; a tensor that an earlier result lacks was, for it, as
    `originally`.
    """

    def __init__(self, originally: Callable[[str], torch.Tensor]) -> None:
        self._originally = originally
        self._results: list[_Result] = []

    def vote(self, made: Mapping[str, torch.Tensor]) -> int:
        """The number of the result that agrees with these tensors, which may be a new one; -1 if there is no room."""
        for number, result in enumerate(self._results):
            if self.difference(made, number) is None:
                result.votes += 1
                return number
        if len(self._results) == _MOST_KEPT:
            return -1
        self._results.append(_Result({name: copied(tensor) for name, tensor in made.items()}))
        return len(self._results) - 1

    @property
    def winner(self) -> int:
        """The number of the result of the majority."""
        return max(range(len(self._results)), key=lambda n: self._results[n].votes, default=0)

    def difference(self, made: Mapping[str, torch.Tensor], number: int) -> str | None:
        """The tensor that differs from a result, and by how much; None if they agree."""
        known = self._results[number].tensors
        for name, tensor in made.items():
            worst = _worst(tensor, known[name] if name in known else self._originally(name))
            if not worst <= 1.0:
                return f"{name} differs by {worst:.3g} times what rounding allows"
        return None


def compared(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The floating-point and complex tensors: counters and locks may end with any value."""
    return {name: t for name, t in tensors.items() if t.is_floating_point() or t.is_complex()}


def _worst(made: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference as a fraction of the tolerance; infinite for a NaN against a number."""
    allowed = _ALLOWED.get(made.dtype, _ALLOWED_OF_8_BITS)
    if made.is_complex():
        made, expected = torch.view_as_real(made.resolve_conj()), torch.view_as_real(expected.resolve_conj())
        allowed = _ALLOWED.get(made.dtype, _ALLOWED_OF_8_BITS)
    wide = torch.float64 if made.dtype == torch.float64 else torch.float32
    flat, known = made.reshape(-1), expected.reshape(-1)
    starts = range(0, flat.numel(), _AT_A_TIME)
    parts = [(flat[i : i + _AT_A_TIME], known[i : i + _AT_A_TIME].to(made.device)) for i in starts]
    squares = sum(float(torch.nan_to_num(e.to(wide), posinf=0, neginf=0).square().sum()) for _, e in parts)
    scale = (squares / max(1, expected.numel())) ** 0.5
    return max((_worst_part(m.to(wide), e.to(wide), scale) for m, e in parts), default=0.0) / allowed


def _worst_part(made: torch.Tensor, expected: torch.Tensor, scale: float) -> float:
    if not made.numel():
        return 0.0
    same = (made == expected) | (made.isnan() & expected.isnan())
    error = (made - expected).abs() / expected.abs().clamp(min=max(scale, 1e-30))
    return float(torch.where(same, 0.0, torch.nan_to_num(error, nan=torch.inf, posinf=torch.inf)).max())
