"""How a function returns its results: bare, or within tuples, dicts and what else PyTorch's pytrees know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten


@dataclass(frozen=True)
class Structure:
    """What a function's results are put into. `constants`: what it returns besides tensors, by its place among all."""

    spec: TreeSpec
    constants: tuple[tuple[int, Any], ...] = ()

    @property
    def is_bare(self) -> bool:
        """Whether the function returns one tensor and nothing around it."""
        return self.spec.is_leaf() and not self.constants

    @property
    def is_tuple(self) -> bool:
        """Whether it returns a tuple of nothing but tensors."""
        return self.spec.type is tuple and not self.constants and all(c.is_leaf() for c in self.spec.children())

    def of(self, results: Sequence[Any]) -> Any:
        """The results as the function returns them."""
        if self.is_bare:
            return results[0]
        leaves = list(results)
        for place, constant in self.constants:
            leaves.insert(place, constant)
        return tree_unflatten(leaves, self.spec)


def flattened(returned: Any) -> tuple[list[Tensor], Structure]:
    """The tensors within what a function returned, and how they stand in it."""
    leaves, spec = tree_flatten(returned)
    constants = tuple((n, leaf) for n, leaf in enumerate(leaves) if not isinstance(leaf, Tensor))
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)], Structure(spec, constants)
