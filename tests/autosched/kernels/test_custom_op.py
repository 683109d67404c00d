"""Kernels as operators of PyTorch, and within functions that torch.compile compiles. On a CPU, and on a GPU if there is
one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import autosched
import best_spaces
import search_spaces
from autosched import ops
from autosched.kernels.kernel import Kernel
from autosched.machine import devices
from search_spaces import InputError
from untuned import untuned_kernel

NEEDS_A_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
# Compiles what surrounds a kernel without generating code, and finds every graph break and wrong fake tensor.
BACKEND = "aot_eager"


@pytest.fixture(scope="module", params=["cpu", pytest.param("gpu", marks=NEEDS_A_GPU)])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """x @ w + bias, of 32 by 48 by 64."""
    target = devices.cpu_target() if request.param == "cpu" else devices.gpu_target()
    return kernel_for(target, epilogue="bias")


def kernel_for(target: search_spaces.Target, epilogue: str) -> Kernel:
    op = ops.matmul(32, 48, 64, epilogue=epilogue)
    schedule = best_spaces.build(op, target).sample(np.random.default_rng(0))
    return untuned_kernel(schedule, op, target)


@pytest.fixture
def operands(kernel: Kernel) -> list[torch.Tensor]:
    return [torch.randn(a.shape, device=kernel.device) for a in kernel.inputs]


@pytest.fixture(autouse=True)
def without_compiled_functions() -> Iterator[None]:
    yield
    torch.compiler.reset()


def expected(operands: list[torch.Tensor]) -> torch.Tensor:
    a, b, bias = operands
    return a @ b + bias


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


def test_a_registered_kernel_is_an_operator_that_passes_opcheck(kernel: Kernel, operands: list[torch.Tensor]) -> None:
    op = autosched.register(kernel, f"test_custom_op::matmul_{kernel.device.type}")
    assert op is getattr(torch.ops.test_custom_op, f"matmul_{kernel.device.type}")
    out = torch.empty_like(expected(operands))
    close(op(*operands), expected(operands))
    op.out(*operands, out=out)
    close(out, expected(operands))
    torch.library.opcheck(op.default, operands)
    torch.library.opcheck(op.out, operands, {"out": out})


def test_an_operator_has_a_name_of_its_own_that_is_the_same_in_every_process(kernel: Kernel) -> None:
    op = autosched.register(kernel)
    assert op is autosched.register(kernel)
    # By such names compiled graphs are found on disk again.
    script = f"""
import test_custom_op
from autosched.kernels import custom_op
from autosched.machine import devices
target = devices.{"gpu" if kernel.device.type == "cuda" else "cpu"}_target()
print(custom_op.own_name(test_custom_op.kernel_for(target, "bias")))
print(custom_op.own_name(test_custom_op.kernel_for(target, "bias_relu")))
"""
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    ran = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    same, other = ran.stdout.split()
    assert same == str(op).replace(".", "::")
    assert other != same
    assert other.startswith("autosched::matmul_")


@pytest.mark.parametrize("name", ["matmul", "my lib::matmul", "a::b::c", "::", "aten::mm"])
def test_a_name_that_is_none_or_taken_is_refused(kernel: Kernel, name: str) -> None:
    with pytest.raises(InputError, match=r"expected (namespace::name|a name that is not taken)"):
        autosched.register(kernel, name)


def test_a_kernel_within_a_compiled_function_breaks_no_graph(kernel: Kernel, operands: list[torch.Tensor]) -> None:
    @torch.compile(fullgraph=True, backend=BACKEND)
    def function(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return kernel(a.abs(), b, bias).relu() + 1

    a, b, bias = operands
    close(function(a, b, bias), expected([a.abs(), b, bias]).relu() + 1)


def test_a_kernel_within_a_compiled_function_writes_to_out(kernel: Kernel, operands: list[torch.Tensor]) -> None:
    @torch.compile(fullgraph=True, backend=BACKEND)
    def function(out: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        out.zero_()
        return kernel(*tensors, out=out) * 2

    out = torch.ones_like(expected(operands))
    close(function(out, *operands), 2 * expected(operands))
    close(out, expected(operands))


def test_inductor_compiles_what_surrounds_a_kernel(kernel: Kernel, operands: list[torch.Tensor]) -> None:
    if kernel.device.type == "cpu":
        pytest.skip("Inductor needs a C++ compiler on a CPU, which CI does not have for certain")
    function = torch.compile(lambda *tensors: kernel(*tensors).relu(), fullgraph=True)
    close(function(*operands), expected(operands).relu())


def test_sizes_that_a_compiler_takes_for_dynamic_become_the_kernels(
    kernel: Kernel, operands: list[torch.Tensor]
) -> None:
    function = torch.compile(lambda *tensors: kernel(*tensors), fullgraph=True, backend=BACKEND, dynamic=True)
    close(function(*operands), expected(operands))


def test_a_wrong_shape_is_found_while_compiling(kernel: Kernel, operands: list[torch.Tensor]) -> None:
    function = torch.compile(lambda *tensors: kernel(*tensors), fullgraph=True, backend=BACKEND)
    with pytest.raises(Exception, match=r"bias: shape \[47\], expected \[48\]"):
        function(*operands[:2], operands[2][1:])


def test_a_gradient_is_refused_by_the_operator_and_while_compiling(
    kernel: Kernel, operands: list[torch.Tensor]
) -> None:
    function = torch.compile(lambda *tensors: kernel(*tensors), fullgraph=True, backend=BACKEND)
    operands[0].requires_grad_()
    with pytest.raises(InputError, match="a requires a gradient"):
        autosched.register(kernel)(*operands)
    with pytest.raises(Exception, match="a requires a gradient"):
        function(*operands)
    with torch.no_grad():
        close(function(*operands), expected(operands))


def test_tensors_without_data_give_one_without_data(kernel: Kernel, operands: list[torch.Tensor]) -> None:
    with FakeTensorMode() as mode:
        found = kernel(*(mode.from_tensor(t) for t in operands))
    assert found.shape == (32, 48)
    assert found.device == kernel.device
    assert type(found).__name__ == "FakeTensor"


def test_an_exported_program_calls_the_operator(kernel: Kernel, operands: list[torch.Tensor]) -> None:
    class Layer(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
            return kernel(a, b, bias)

    program = torch.export.export(Layer(), tuple(operands))
    assert "torch.ops.autosched.matmul_" in program.graph_module.code
    close(program.module()(*operands), expected(operands))
