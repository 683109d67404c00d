"""`compile`: a model compiled for inputs like given ones, by AOTAutograd alone, without Dynamo."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from autosched.torch_compile.backend import compilers
from autosched.torch_compile.graph_compiler import GraphCompiler
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport, Kind
from autosched.tracing.capture.rewriting.attention import replaced
from search_spaces import InputError


def compile(
    model: Callable[..., Any], *inputs: Any, mode: str | None = None, options: Mapping[str, object] | None = None
) -> CompiledModel:
    """A model compiled for inputs of these shapes, element types, strides and devices, without Dynamo.

    The model is captured as PyTorch computes it on these inputs, branches included, with or without a gradient as the
    grad mode and the inputs say, and called once. Its weights are looked up at every call: changed ones are used.
    `mode` and `options` are those of torch.compile (docs/models.md).

    Raises:
        InputError: an option is not allowed; or, with `strict`, something has no kernel. And what the model raises.
    """
    return CompiledModel(model, inputs, Options.of(mode, options))


@dataclass(frozen=True)
class _Expected:
    """A leaf of the inputs that a call has to give: a tensor like that, or the very number."""

    leaf: tuple[Any, ...]

    @staticmethod
    def of(leaf: Any) -> _Expected:
        if not isinstance(leaf, Tensor):
            return _Expected((type(leaf), leaf))
        return _Expected((tuple(leaf.shape), leaf.dtype, leaf.stride(), leaf.device, leaf.requires_grad))

    def __str__(self) -> str:
        if len(self.leaf) == 2:
            return repr(self.leaf[1])
        shape, dtype, strides, device, wanted = self.leaf
        gradient = ", with a gradient" if wanted else ""
        return f"{str(dtype).removeprefix('torch.')}{list(shape)} of strides {list(strides)} on {device}{gradient}"


class CompiledModel:
    """A compiled model: `compiled(*inputs)`, on inputs like those that it was compiled for.

    `reports`: by what each graph of it is computed; that of the backward pass comes with the first gradient.
    """

    def __init__(self, model: Callable[..., Any], inputs: Sequence[Any], options: Options) -> None:
        self.reports: list[GraphReport] = []
        self._model = model
        self._state = dict(_state_of(model)) if isinstance(model, nn.Module) else {}
        self._modules = tuple(model.modules()) if isinstance(model, nn.Module) else ()
        self._modes, self._weights = self._present_modes(), [*map(_kind_of, self._tensors().values())]
        leaves, self._structure = tree_flatten(tuple(inputs))
        self._expected = [*map(_Expected.of, leaves)]
        self._call = self._compiled(leaves, options)
        # AOTAutograd compiles at the first call.
        self._call(self._tensors(), _tensors_of(leaves))

    def _compiled(self, leaves: Sequence[Any], options: Options) -> Callable[..., Any]:
        from torch._functorch.aot_autograd import aot_function

        # Without the tensors, which would stay in memory.
        kinds = [(isinstance(x, Tensor), None if isinstance(x, Tensor) else x) for x in leaves]
        model, count = self._model, len(self._state) + len(_tensors_of(leaves))

        def functional(state: Mapping[str, Tensor], tensors: Sequence[Tensor]) -> Any:
            rest = iter(tensors)
            given = [next(rest) if is_tensor else x for is_tensor, x in kinds]
            inputs = tree_unflatten(given, self._structure)
            with _AttentionWhole():
                if isinstance(model, nn.Module):
                    return torch.func.functional_call(model, dict(state), inputs)
                return model(*inputs)

        def weights(inputs: Sequence[Any], kind: Kind) -> frozenset[int]:
            # They come first, each once.
            return frozenset(range(len(self._state)) if kind == "inference" and len(inputs) == count else ())

        def compiler(kind: Kind) -> GraphCompiler:
            return GraphCompiler(kind, options, self.reports.append, weights=weights)

        made: Callable[..., Any] = aot_function(functional, **compilers(compiler))
        return made

    def __call__(self, *inputs: Any) -> Any:
        """The model's results.

        Raises:
            InputError: the inputs, the grad mode, the modes of its modules, or the shapes, element types or devices of
                its weights are not those of the compilation. Nothing was computed.
        """
        leaves, structure = tree_flatten(tuple(inputs))
        if structure != self._structure:
            raise InputError(f"got inputs of the structure {structure}; expected {self._structure}")
        for number, (leaf, expected) in enumerate(zip(leaves, self._expected, strict=True)):
            if (given := _Expected.of(leaf)) != expected:
                raise InputError(f"leaf {number} of the inputs is {given}; expected {expected}: compile it for others")
        if self._present_modes() != self._modes:
            raise InputError("the model is in other modes (train or eval, grad mode) than when it was compiled")
        state = self._tensors()
        if [*map(_kind_of, state.values())] != self._weights:
            raise InputError("the weights have other shapes, element types or devices than when it was compiled")
        return self._call(state, _tensors_of(leaves))

    def _present_modes(self) -> tuple[bool, ...]:
        return (torch.is_grad_enabled(), *[m.training for m in self._modules])

    def _tensors(self) -> dict[str, Tensor]:
        """The parameters and buffers, as they are at present."""
        return {name: tensors[key] for name, (tensors, key) in self._state.items()}

    def __str__(self) -> str:
        return "\n".join(map(str, self.reports))


def _tensors_of(leaves: Sequence[Any]) -> list[Tensor]:
    return [x for x in leaves if isinstance(x, Tensor)]


def _state_of(model: nn.Module) -> Iterator[tuple[str, tuple[dict[str, Any], str]]]:
    """Places of parameters and buffers, by name; one that modules share comes once."""
    seen = set[int]()
    for prefix, module in model.named_modules():
        for tensors in (module._parameters, module._buffers):
            for key, tensor in tensors.items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield (f"{prefix}.{key}" if prefix else key), (tensors, key)


def _kind_of(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device


class _AttentionWhole(TorchFunctionMode):
    """A context in which calls of attention are one operator."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return replaced(func)(*args, **(kwargs or {}))
