"""`compile`: a model compiled for inputs like given ones, by AOTAutograd alone, without Dynamo."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves

from autosched.torch_compile.backend import compilers
from autosched.torch_compile.export_model import without_data, write_model
from autosched.torch_compile.graph_compiler import GraphCompiler
from autosched.torch_compile.graphs import references
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport, Kind
from autosched.torch_compile.stateless import StatelessModel
from autosched.tracing.capture.capture import Weights
from autosched.tracing.capture.closed_over import name_of
from search_spaces import InputError, Target


def compile(
    model: Callable[..., Any], *inputs: Any, mode: str | None = None, options: Mapping[str, object] | None = None
) -> CompiledModel:
    """A model compiled for inputs of these shapes, element types, strides and devices, without Dynamo.

    The model is captured as PyTorch computes it on these inputs, branches included, with or without a gradient as the
    grad mode and the inputs say, and called once. Its weights are looked up at every call: changed ones are used.
    `mode` and `options` are those of torch.compile (docs/models.md).

    Raises:
        InputError: an option is not allowed; the model reads tensors that are neither inputs nor attributes of modules;
            or, with `strict`, something has no kernel. And what the model raises.
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
        self._stateless, self._options = StatelessModel(model, inputs), options
        self._modules = tuple(model.modules()) if isinstance(model, nn.Module) else ()
        state = self._stateless.tensors()
        self._modes, self._weights = self._present_modes(), [*map(_kind_of, state.values())]
        leaves = tree_leaves(tuple(inputs))
        self._expected, self._examples = [*map(_Expected.of, leaves)], without_data(_tensors_of(leaves))
        self._call = self._compiled(len(state), references([*state.values(), *_tensors_of(leaves)]))
        # AOTAutograd compiles at the first call.
        try:
            self._call(state, _tensors_of(leaves))
        except AssertionError as error:
            # AOTAutograd's word for a tensor with data among those without.
            if "allow_non_fake_inputs" not in str(error):
                raise
            raise InputError(
                f"{name_of(model)} reads a tensor that is neither among its inputs nor an attribute of a module "
                "(but in a list or a closure, say); expected an input, a buffer or an attribute; or use torch.compile"
            ) from error

    def _compiled(self, weights: int, tensors: Weights) -> Callable[..., Any]:
        from torch._functorch.aot_autograd import aot_function

        def numbers(inputs: Sequence[Any], kind: Kind) -> frozenset[int]:
            # They come first, each once.
            return frozenset(range(weights) if kind == "inference" and len(inputs) == len(tensors) else ())

        def compiler(kind: Kind) -> GraphCompiler:
            return GraphCompiler(kind, self._options, self.reports.append, weights=numbers, tensors=tensors)

        made: Callable[..., Any] = aot_function(self._stateless, **compilers(compiler))
        return made

    def __call__(self, *inputs: Any) -> Any:
        """The model's results.

        Raises:
            InputError: the inputs, the grad mode, the modes of its modules, or the shapes, element types or devices of
                its weights are not those of the compilation. Nothing was computed.
        """
        leaves, structure = tree_flatten(tuple(inputs))
        if structure != self._stateless.structure:
            raise InputError(f"got inputs of the structure {structure}; expected {self._stateless.structure}")
        for number, (leaf, expected) in enumerate(zip(leaves, self._expected, strict=True)):
            if (given := _Expected.of(leaf)) != expected:
                raise InputError(f"leaf {number} of the inputs is {given}; expected {expected}: compile it for others")
        if self._present_modes() != self._modes:
            raise InputError("the model is in other modes (train or eval, grad mode) than when it was compiled")
        state = self._stateless.tensors()
        if [*map(_kind_of, state.values())] != self._weights:
            raise InputError("the weights have other shapes, element types or devices than when it was compiled")
        return self._call(state, _tensors_of(leaves))

    def _present_modes(self) -> tuple[bool, ...]:
        return (torch.is_grad_enabled(), *[m.training for m in self._modules])

    def export(self, path: str | os.PathLike[str], target: str | Target | None = None, *, cubins: bool = False) -> Path:
        """Write the model, for inputs like those that it was compiled for, to a Python file as `export_model` does,
        with the kernels of the log that it was compiled with; its path.

        Raises:
            InputError: as `export_model`; or the modules are in other modes than when it was compiled.
        """
        if self._present_modes()[1:] != self._modes[1:]:
            raise InputError("the model is in other modes (train or eval) than when it was compiled")
        return write_model(self._stateless, self._examples, path, target, self._options.log, cubins)

    def __str__(self) -> str:
        return "\n".join(map(str, self.reports))


def _tensors_of(leaves: Sequence[Any]) -> list[Tensor]:
    return [x for x in leaves if isinstance(x, Tensor)]


def _kind_of(weight: object) -> tuple[Any, ...]:
    # Of an attribute, anything may have taken the place.
    return (weight.shape, weight.dtype, weight.device) if isinstance(weight, Tensor) else (type(weight),)
