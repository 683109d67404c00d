"""LLVM in this process: code generation for the processor that it runs on, and the linker."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import llvmlite.binding as llvm


@dataclass(frozen=True)
class Compiler:
    """LLVM's code generation for this processor, and the passes before it, for all compilations."""

    machine: llvm.TargetMachine
    builder: llvm.PassBuilder
    passes: llvm.ModulePassManager


@functools.cache
def compiler() -> Compiler:
    """Made once in a process: it takes as long as the smaller kernels."""
    target = _native_target()
    # Loop strength reduction gives every row a pointer of its own, where two pointers with constant distances serve;
    # without it code is better and is emitted in half the time. Blocks are not to be merged: see `transpose_4x4`.
    llvm.set_option("autosched", "-disable-lsr")
    llvm.set_option("autosched", "-disable-cgp-branch-opts")
    features = llvm.get_host_cpu_features().flatten()
    machine = target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    # The only pass that the printers rely on: stack slots to registers.
    passes.add_sroa_pass()
    return Compiler(machine, builder, passes)


def engine() -> llvm.ExecutionEngine:
    """A linker of object files into this process.

    The module that it must be created with is removed: it would be compiled, which takes five times as long as the
    rest.
    """
    module = llvm.parse_assembly("")
    linker = llvm.create_mcjit_compiler(module, _native_target().create_target_machine(jit=True))
    linker.remove_module(module)
    return linker


def _native_target() -> llvm.Target:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(llvm.get_process_triple())
