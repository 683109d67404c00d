"""Results that have gradients, by their memory: PyTorch takes the views of it, and so tracks them.

AOTAutograd captures functions that return new tensors alone, so the captured function returns the memory of its
results:

Before:  f(x): y = x * 2; return y[0], y[1:], x.t()
After:   f(x): y = x * 2; return y                   results: parts of y, and of x
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from autosched.tracing.capture.result_memory import StridedView, storage_of, strided_view, strides_of
from search_spaces.workloads.strides import is_dense, same_places


@dataclass(frozen=True)
class DifferentiableResult:
    """A result of a function: the tensor of that number in its returned memory, or among its `arguments`.

    `view`: the part of a tensor with these `strides`; None where it is that tensor. `detached`: it has no gradient,
    though its memory has one.
    """

    number: int
    argument: bool = False
    strides: tuple[int, ...] = ()
    view: StridedView | None = None
    detached: bool = False

    def of(self, memory: Sequence[Tensor], arguments: Sequence[Tensor]) -> Tensor:
        """The result, from a call's memory and arguments."""
        whole = (arguments if self.argument else memory)[self.number]
        made = whole if self.view is None else self.view.of(self._as_traced(whole))
        return made.detach() if self.detached else made

    def _as_traced(self, whole: Tensor) -> Tensor:
        """An argument, copied if its strides are not the traced ones."""
        if same_places(tuple(whole.shape), whole.stride(), self.strides):
            return whole
        return torch.empty_strided(whole.shape, self.strides, dtype=whole.dtype, device=whole.device).copy_(whole)


@dataclass(frozen=True)
class Returned:
    """A tensor that a function returns as memory: its result of that number, or the base of that view (`base`).

    `example`: that tensor, without its data.
    """

    result: int
    base: bool
    example: Tensor

    @property
    def strides(self) -> tuple[int, ...] | None:
        """The strides of the new tensor; None where its producer chooses them."""
        return strides_of(self.example) if _is_dense(self.example) else None

    def of(self, results: Sequence[Tensor], arguments: Sequence[Tensor]) -> Tensor:
        """The tensor, new, given a call's results and arguments."""
        made = results[self.result]
        made = made._base if self.base and made._base is not None else made
        return made.clone() if made._base is not None or any(made is a for a in arguments) else made


def memory_of_results(
    results: Sequence[Tensor], arguments: Sequence[Tensor]
) -> tuple[list[Returned], list[DifferentiableResult]]:
    """The tensors that the function is to return as memory, and its results as views of them or of its arguments."""
    returned: list[Returned] = []
    found: dict[int, DifferentiableResult] = {}
    given = {storage_of(a): n for n, a in reversed(list(enumerate(arguments)))}
    for storage, group in _by_storage(results).items():
        if (place := given.get(storage)) is not None and (parts := _parts(group, arguments[place], place, True)):
            found |= parts
            continue
        for whole, its in _memory(group):
            parts = _parts(its, whole.example, len(returned), False)
            found |= parts or {n: DifferentiableResult(len(returned)) for n in its}
            returned.append(whole)
    # AOTAutograd wants a result.
    return returned or [Returned(0, False, results[0])], [found[n] for n in range(len(results))]


def _by_storage(results: Sequence[Tensor]) -> dict[int, dict[int, Tensor]]:
    groups: dict[int, dict[int, Tensor]] = {}
    for number, result in enumerate(results):
        groups.setdefault(storage_of(result), {})[number] = result
    return groups


def _memory(group: Mapping[int, Tensor]) -> list[tuple[Returned, dict[int, Tensor]]]:
    """The tensors to return for results in one memory: one that contains all, or else each by itself."""
    differentiable = any(r.requires_grad for r in group.values())
    own = [Returned(n, False, r) for n, r in group.items()]
    bases = [Returned(n, True, r._base) for n, r in group.items() if r._base is not None]
    for whole in (*own, *bases):
        example = whole.example
        fits = example.requires_grad == differentiable and _is_dense(example)
        if fits and all(strided_view(r, example) is not None for r in group.values()):
            return [(whole, dict(group))]
    return [(Returned(n, False, r), {n: r}) for n, r in group.items()]


def _parts(
    group: Mapping[int, Tensor], whole: Tensor, number: int, argument: bool
) -> dict[int, DifferentiableResult] | None:
    """Results as parts of a tensor in the same memory; None where one of them is no part of it."""
    strides = strides_of(whole)
    views = {n: strided_view(r, whole) for n, r in group.items()}
    if strides is None or None in views.values():
        return None
    all_of_it = StridedView(tuple(whole.shape), strides, 0)
    return {
        n: DifferentiableResult(
            number,
            argument,
            strides,
            view=None if views[n] == all_of_it else views[n],
            detached=whole.requires_grad and not result.requires_grad,
        )
        for n, result in group.items()
    }


def _is_dense(made: Tensor) -> bool:
    strides = strides_of(made)
    return strides is not None and is_dense(tuple(made.shape), strides)
