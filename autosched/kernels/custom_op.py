"""Kernels as operators of PyTorch: for torch.compile, torch.export, and everything else that sees only operators.

A kernel launches through the driver, which PyTorch does not see. `register` gives it a name that PyTorch knows, by
`torch.library`: two overloads, one that returns new tensors and one that writes to `out`, each with a fake
implementation that gives shape, dtype, strides and device of the results without running anything.

Within compiled code a kernel registers itself, under a name made of its workload and its fingerprint: the same in every
process, because compiled graphs are cached on disk by the names of their operators.
"""

from __future__ import annotations

import hashlib
import keyword
import re
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from autosched.kernels.dispatch import Argument, Made, as_tuple
from search_spaces import InputError, Target, Workload

_NAMESPACE = "autosched"
# A compiler may choose other strides for an operator's inputs, which the kernel would have to copy.
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)


class OperatorKernel(Protocol):
    """A kernel that can become an operator: `autosched.Kernel`."""

    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]

    @property
    def workload(self) -> Workload: ...

    @property
    def target(self) -> Target: ...

    @property
    def source(self) -> str: ...

    def __call__(self, *tensors: Tensor, out: Made | None = None) -> Any: ...


def register(kernel: OperatorKernel, name: str | None = None) -> Any:
    """The kernel as an operator of PyTorch, which keeps the kernel until the process ends.

    op = autosched.register(kernel, "mylib::matmul_4096")
    y = op(a, b)               # also torch.ops.mylib.matmul_4096(a, b)
    op.out(a, b, out=y)        # returns None: an operator may not return a tensor that it writes to
    op.out(a, b, out0=y, out1=z)               # of a kernel with several outputs

    Without a name it is `autosched::<workload>_<fingerprint>`, and an equal kernel gives the same operator. The kernel
    itself calls this one when it is called within torch.compile. Operators have no gradient either: a request for one
    is an InputError. Returns a torch._ops.OpOverloadPacket.

    Raises:
        InputError: the name is no `namespace::name`, or is taken.
    """
    if not hasattr(kernel, "workload"):
        raise InputError(f"expected the kernel of one workload, got {type(kernel).__name__}")
    if name is None:
        name = own_name(kernel)
    if name != own_name(kernel) or not _is_registered(name):
        _check_free(name)
        inputs = ", ".join(f"Tensor {n}" for n in _argument_names(kernel))
        outs = _output_arguments(len(kernel.outputs))
        returned = "Tensor" if len(outs) == 1 else f"({', '.join(['Tensor'] * len(outs))})"
        written = ", ".join(f"Tensor(w{number}!) {out}" for number, out in enumerate(outs))
        _define(name, f"({inputs}) -> {returned}", kernel)
        _define(f"{name}.out", f"({inputs}, *, {written}) -> ()", kernel)
    namespace, _, short = name.partition("::")
    return getattr(getattr(torch.ops, namespace), short)


def call(name: str, tensors: Sequence[Tensor], out: Made | None) -> Made:
    """A call of the operator of that name, with the arguments of a call of the kernel: traced where code is traced."""
    namespace, _, short = name.partition("::")
    op = getattr(getattr(torch.ops, namespace), short)
    if out is None:
        made: Made = op.default(*tensors)
        return made
    given = as_tuple(out)
    op.out(*tensors, **dict(zip(_output_arguments(len(given)), given, strict=True)))
    return out


def own_name(kernel: OperatorKernel) -> str:
    """The name of the operator that equal kernels share."""
    op = kernel.workload
    device = str(kernel.outputs[0].device)
    parts = (op.key, repr((op.inputs, *op.outputs)), repr(kernel.target), kernel.source, device)
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    # A workload may have any name; an identifier neither begins with a digit nor contains a space.
    return f"{_NAMESPACE}::{re.sub(r'^(?=[0-9])|[^0-9A-Za-z_]', '_', op.name)}_{digest}"


def _define(name: str, schema: str, kernel: OperatorKernel) -> None:
    outs = _output_arguments(len(kernel.outputs))

    def run(*tensors: Tensor, **given: Tensor) -> Made | None:
        if not given:
            made: Made = kernel(*tensors)
            return made
        kernel(*tensors, out=given[outs[0]] if len(outs) == 1 else tuple(given[out] for out in outs))
        return None

    def fake(*tensors: Tensor, **given: Tensor) -> Made | None:
        for tensor, argument in zip(tensors, kernel.inputs, strict=True):
            argument.check_kind(tensor)
        if not given:
            made = [tensors[0].new_empty_strided(o.shape, o.strides, dtype=o.dtype) for o in kernel.outputs]
            return made[0] if len(made) == 1 else tuple(made)
        for out, output in zip(outs, kernel.outputs, strict=True):
            output.check_kind(given[out])
        return None

    torch.library.define(name, schema, tags=_TAGS)
    torch.library.impl(name, kernel.outputs[0].device.type, run)
    torch.library.register_fake(name, fake)


def _output_arguments(outputs: int) -> list[str]:
    """Names of the arguments that an operator writes to, as in PyTorch's own."""
    return ["out"] if outputs == 1 else [f"out{number}" for number in range(outputs)]


def _argument_names(kernel: OperatorKernel) -> list[str]:
    """The names of the inputs, if they can be those of arguments: a user may give an axis any name."""
    taken = _output_arguments(len(kernel.outputs))
    usable = [a.name.isidentifier() and not keyword.iskeyword(a.name) and a.name not in taken for a in kernel.inputs]
    return [a.name if usable[i] else f"input_{i}" for i, a in enumerate(kernel.inputs)]


def _check_free(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z_]\w*::[A-Za-z_]\w*", name, re.ASCII):
        raise InputError(f"operator name {name!r}; expected namespace::name, such as 'mylib::matmul_4096'")
    if _is_registered(name):
        raise InputError(f"there is an operator {name!r} already; expected a name that is not taken")


def _is_registered(name: str) -> bool:
    namespace, _, short = name.partition("::")
    return hasattr(getattr(torch.ops, namespace), short)
