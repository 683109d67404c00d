"""A model as a function of its parameters, buffers and other tensors, and of the tensors among its inputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from autosched.tracing.capture.fused_functions.attention import replaced


class StatelessModel:
    """`stateless(state, tensors)`: the model's results for inputs like given ones.

    `state`: the parameters, the buffers and the tensors that are plain attributes of modules, by name, in the order of
    `tensors`; one that modules share comes once.
    `structure`: that of the inputs.
    """

    def __init__(self, model: Callable[..., Any], inputs: Sequence[Any]) -> None:
        self.model = model
        leaves, self.structure = tree_flatten(tuple(inputs))
        # Without the tensors, which would stay in memory.
        self._kinds = [(isinstance(x, Tensor), None if isinstance(x, Tensor) else x) for x in leaves]
        self._places = {places[0]: at for places, at in _places_of(model)} if isinstance(model, nn.Module) else {}

    def __call__(self, state: Mapping[str, Tensor], tensors: Sequence[Tensor]) -> Any:
        rest = iter(tensors)
        inputs = tree_unflatten([next(rest) if is_tensor else x for is_tensor, x in self._kinds], self.structure)
        with _AttentionWhole():
            if isinstance(self.model, nn.Module):
                everywhere = {name: state[first] for first, names in self.names().items() for name in names}
                return torch.func.functional_call(self.model, everywhere, inputs)
            return self.model(*inputs)

    @property
    def constants(self) -> tuple[tuple[int, Any], ...]:
        """The leaves of the inputs that are no tensors, by number."""
        return tuple((n, x) for n, (is_tensor, x) in enumerate(self._kinds) if not is_tensor)

    def tensors(self) -> dict[str, Any]:
        """The tensors of the state, as they are at present."""
        return {name: tensors.get(key) for name, (tensors, key) in self._places.items()}

    def names(self) -> dict[str, tuple[str, ...]]:
        """All names of each tensor of the state, as they are at present: those of modules that share it."""
        if not isinstance(self.model, nn.Module):
            return {}
        found = {id(tensors[key]): names for names, (tensors, key) in _places_of(self.model)}
        return {name: found[id(tensor)] for name, tensor in self.tensors().items()}


def _places_of(model: nn.Module) -> Iterator[tuple[tuple[str, ...], tuple[dict[str, Any], str]]]:
    """The names of each parameter, buffer and other tensor of the modules, and the place that has the first name."""
    names: dict[int, list[str]] = defaultdict(list)
    places: dict[int, tuple[dict[str, Any], str]] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for tensors in (module._parameters, module._buffers, vars(module)):
            for key, tensor in tensors.items():
                if isinstance(tensor, Tensor):
                    names[id(tensor)].append(f"{prefix}.{key}" if prefix else key)
                    places.setdefault(id(tensor), (tensors, key))
    return ((tuple(names[each]), place) for each, place in places.items())


class _AttentionWhole(TorchFunctionMode):
    """A context in which calls of attention are one operator."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return replaced(func)(*args, **(kwargs or {}))
