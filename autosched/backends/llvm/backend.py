"""The CPU backend: tile programs as LLVM IR, compiled by llvmlite, without any system compiler."""

from __future__ import annotations

import json
import time

import llvmlite.binding as llvm

from autosched.backends.backend import Artefact, CompileError, Launcher, LoadError
from autosched.backends.llvm.compiler import compiler, engine
from autosched.backends.llvm.limits import LlvmLimits
from search_spaces import Target, TileProgram
from tuning_logs import CompileFacts


class LlvmBackend:
    """Prints LLVM IR and compiles it for the processor that it runs on."""

    name = "llvm"
    limits = LlvmLimits()

    def serves(self, target: Target) -> bool:
        return target.kind == "cpu"

    def why_unavailable(self, target: Target) -> str | None:
        return None

    def render(self, program: TileProgram, comment: str, target: Target) -> str:
        # Printers take a tenth of a second to import, which a process that only loads kernels does without.
        from autosched.backends.llvm.printer import print_program

        return print_program(program, comment)

    def compile(self, source: str, program: TileProgram, target: Target) -> Artefact:
        started = time.perf_counter()
        own = compiler()
        try:
            module = llvm.parse_assembly(source)
        except RuntimeError as error:
            raise CompileError(f"LLVM: {error}") from error
        own.passes.run(module, own.builder)
        binary = own.machine.emit_object(module)
        facts = CompileFacts(seconds=time.perf_counter() - started)
        return Artefact(self.name, source, (binary,), facts, json.dumps({"threads": target.threads}))

    def load(self, artefact: Artefact, program: TileProgram) -> Launcher:
        # It imports PyTorch, which takes a second that a process which only compiles does without.
        from autosched.backends.llvm.launcher import LlvmLauncher

        linker = engine()
        try:
            linker.add_object_file(llvm.ObjectFileRef.from_data(artefact.binaries[0]))
            linker.finalize_object()
        except RuntimeError as error:
            raise LoadError(f"LLVM: {error}") from error
        return LlvmLauncher(linker, program, json.loads(artefact.launch)["threads"])
