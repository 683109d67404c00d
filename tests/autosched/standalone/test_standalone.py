"""Kernels as files of their own: interpreted by Triton in a process that has nothing of autosched.

Goldens are under goldens/standalone; `pytest --update-goldens` with this file rewrites them. On a GPU:
`pytest -m gpu tests/autosched/standalone/test_standalone.py`.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.associative_scan import associative_scan

import autosched
from autosched.checking.correctness import expect, why_wrong
from autosched.checking.random_inputs import random_inputs
from autosched.machine import devices
from autosched.standalone.file import traced_text, workload_text
from autosched.standalone.references import HELPERS, reference
from autosched.standalone.tuned import Tuned
from best_spaces import build
from isolated_python import isolated
from needed import needs_gpu
from row_kinds import kind_of
from search_spaces import Axis, InputError, Reduction, Schedule, Stage, Workload, ops
from search_spaces import Tensor as TensorSpec
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Gather, Integer, Literal, Position
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.operators import OF_INTEGERS, OPERATORS
from untuned_files import H200, by_pointers, tuned

# Runs a function of a file on saved tensors, and the file's self-test, where nothing of this project can be found.
_CALL = """
import sys, torch
file, function, inputs, outputs = sys.argv[1:]
sys.path.insert(0, file.rpartition("/")[0])
module = __import__(file.rpartition("/")[2].removesuffix(".py"))
made = getattr(module, function)(*torch.load(inputs))
torch.save(made, outputs)
assert module._self_test()
ours = {name.partition(".")[0] for name in sys.modules} & {"autosched", "search_spaces", "tuning_logs", "cost_models"}
assert not ours, ours
"""


def interpreted(text: str, function: str, inputs: list[Tensor], folder: Path) -> tuple[Any, str]:
    """What the function of a file returns, and what its self-test prints."""
    ast.parse(text, feature_version=(3, 10))
    file = folder / "standing_alone.py"
    file.write_text(text, encoding="utf-8")
    torch.save(inputs, folder / "inputs")
    done = _run(["-c", _CALL, str(file), function, str(folder / "inputs"), str(folder / "outputs")])
    return torch.load(folder / "outputs"), done.stdout


def _run(arguments: list[str], check: bool = True) -> subprocess.CompletedProcess[str]:
    # Isolated: neither PYTHONPATH nor the working directory leads to the package.
    done = isolated(*arguments)
    assert not check or done.returncode == 0, done.stderr
    return done


def row_scores() -> Workload:
    """Minus the log of the softmax of every row at the position that `target` names, where that is beyond 2."""
    r, c = Axis("r", 6), Axis("c", 70)
    at, row = (axis_index("r"), axis_index("c")), (axis_index("r"),)
    shifted = ex.sub(Access("x", at), Access("top", row))
    named = Gather("x", (axis_index("r"), Access("target", row)))
    late = ex.call("lt", Literal(2.0), Access("target", row))
    score = ex.sub(ex.call("log", Access("total", row)), ex.sub(named, Access("top", row)))
    stages = (
        Stage("top", (r,), Access("x", at), Reduction("max", (c,))),
        Stage("total", (r,), ex.call("exp", shifted), Reduction("sum", (c,))),
        Stage("out", (r,), ex.call("where", late, score, Literal(0.0))),
    )
    inputs = (TensorSpec("x", (6, 70), "float32"), TensorSpec("target", (6,), "int64"))
    return Workload("scores", inputs, stages)


def counted() -> Workload:
    """Every other element, where it is not masked, plus its place; columns first in memory."""
    r, c = Axis("r", 12), Axis("c", 20)
    at = (axis_index("r"), axis_index("c"))
    kept = ex.call("where", Access("mask", at), Access("x", at), Literal(-1.5))
    value = ex.call("round_float16", ex.add(kept, Position(axis_index("c"))))
    inputs = (TensorSpec("x", (12, 20), "float16", (48, 2)), TensorSpec("mask", (12, 20), "bool"))
    return Workload("counted", inputs, (Stage("out", (r, c), value, None, "float16"),))


CASES = {
    "pointwise": (ops.pointwise(24, 40, "gelu_residual"), lambda s: True),
    "row reduction": (ops.layernorm(10, 200), lambda s: kind_of(s) == "streamed"),
    "split row reduction": (ops.row_sum(3, 5000), lambda s: kind_of(s) == "shared"),
    "matmul by pointers": (ops.matmul(48, 40, 72, epilogue="bias_relu"), by_pointers),
    "matmul by descriptors": (ops.matmul(64, 64, 64, dtype="float16"), lambda s: s.knobs["b_load"] == "descriptor"),
    "atomic split-k": (
        ops.matmul(32, 32, 256),
        lambda s: s.knobs.get("split", 1) > 1 and s.knobs["partials"] == "atomic" and bool(s.program.zeroed),
    ),
    "look-ups": (row_scores(), lambda s: True),
    "booleans and strides": (counted(), lambda s: True),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Tuned:
    return tuned(*CASES[request.param])


def test_a_file_computes_what_the_workload_says_without_autosched(case: Tuned, tmp_path: Path) -> None:
    text = workload_text(case)
    inputs = random_inputs(case.workload, seed=1)
    made, printed = interpreted(text, case.workload.name, inputs, tmp_path)
    assert why_wrong(made, *expect(case.workload, inputs)) is None
    assert printed.startswith(f"{case.workload.label}: right")
    assert printed.count("\n") == 1
    assert made.stride() == case.workload.outputs[0].effective_strides


# Calls a function of a file before and after its weight has changed, and counts what it prepares.
_CHANGED = """
import sys, torch
file, function, inputs, outputs = sys.argv[1:]
sys.path.insert(0, file.rpartition("/")[0])
module = __import__(file.rpartition("/")[2].removesuffix(".py"))
x, weight = torch.load(inputs)
call, made, states = getattr(module, function), [], []
for factor in (1, 1, 2):
    weight.mul_(factor)
    made.append(call(x, weight))
    states.append([state for state, _ in module._KNOWN.values()])
assert len(module._KNOWN) == 1
assert states[1] != states[2]
del weight
assert not module._KNOWN
torch.save(made, outputs)
"""


def test_a_file_prepares_a_constant_once_and_again_after_changes(tmp_path: Path) -> None:
    op = ops.matmul(32, 20, 21, dtype="float16", layout="nt", constant="b")
    text = workload_text(tuned(op, lambda s: bool(s.program.prepared) and by_pointers(s)))
    x, weight = random_inputs(op, 0, torch.device("cpu"))
    file = tmp_path / "standing_alone.py"
    file.write_text(text, encoding="utf-8")
    torch.save([x, weight], tmp_path / "inputs")
    _run(["-c", _CHANGED, str(file), "matmul", str(tmp_path / "inputs"), str(tmp_path / "outputs")])
    for made, factor in zip(torch.load(tmp_path / "outputs"), (1, 1, 2), strict=True):
        torch.testing.assert_close(made, x @ (factor * weight).t(), rtol=1e-2, atol=1e-1)


def test_split_reductions_launch_two_kernels_over_a_workspace() -> None:
    text = workload_text(tuned(*CASES["split row reduction"]))
    assert text.count("@triton.jit") == text.count("_kernel[(") == 2


def test_sums_by_atomic_additions_begin_at_zero() -> None:
    assert ".zero_()" in workload_text(tuned(*CASES["atomic split-k"]))


def test_the_self_test_finds_a_kernel_that_is_wrong(tmp_path: Path) -> None:
    text = workload_text(tuned(ops.softmax(8, 100)))
    broken = text.replace("tl.exp(t)", "tl.exp(1.0001 * t)")
    assert broken != text
    (tmp_path / "broken.py").write_text(broken, encoding="utf-8")
    done = _run([str(tmp_path / "broken.py")], check=False)
    assert done.returncode == 1
    assert "WRONG" in done.stdout


# What a kernel does beside what it should -> a line of it.
HARM = {
    "writes past its output": "tl.store(out0_ptr + 800, 1.0)",
    "writes before its output": "tl.store(out0_ptr - 2, 1.0)",
    "writes past its input": "tl.store(in0_ptr + 800, 1.0)",
    "changes its input": "tl.store(in0_ptr, 0.0)",
}


@pytest.mark.parametrize("harm", HARM)
def test_a_function_refuses_its_first_call_when_a_kernel_does_harm(harm: str, tmp_path: Path) -> None:
    text = workload_text(tuned(ops.softmax(8, 100)))
    broken = text.replace("    tl.store(", f"    {HARM[harm]}\n    tl.store(")
    assert broken != text
    # What would be called on the caller's tensors.
    unreachable = broken.replace("return launch_softmax(x, ", "return sys.exit('called') or (x, ")
    with pytest.raises(AssertionError, match=r"RuntimeError: softmax is wrong here: .* is inf of what is allowed"):
        interpreted(unreachable, "softmax", [torch.randn(8, 100)], tmp_path)


def test_a_kernel_of_a_traced_function_that_writes_past_its_result_is_found(tmp_path: Path) -> None:
    def double_product(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        return torch.relu(x @ first) @ second.t()

    inputs = [torch.randn(32, 48), torch.randn(48, 64), torch.randn(16, 64)]
    traced = autosched.trace(double_product, *inputs)
    text, _ = traced_text(traced, {w.key: tuned(w, by_pointers) for w in traced.workloads})
    (name,) = traced.workloads[0].scheduled.output_names
    # Of several kernels, that which has this result: others copy operands for it.
    past = f"    tl.store({name}_ptr + {32 * 64}, 1.0)\n"
    broken = re.sub(rf"^    tl\.store\(\s*{name}_ptr", lambda store: past + store[0], text, count=1, flags=re.MULTILINE)
    assert broken != text
    with pytest.raises(AssertionError, match="RuntimeError: double_product is wrong here"):
        interpreted(broken, "double_product", inputs, tmp_path)


def test_a_first_call_leaves_random_numbers_as_they_were(tmp_path: Path) -> None:
    text = workload_text(tuned(ops.softmax(8, 100)))
    asserted = text.replace(
        "if __name__", "torch.manual_seed(1)\nstate = torch.get_rng_state()\nsoftmax(torch.ones(8, 100))\nif __name__"
    ).replace("sys.exit(0 if _self_test()", "sys.exit(0 if torch.equal(state, torch.get_rng_state())")
    (tmp_path / "alone.py").write_text(asserted, encoding="utf-8")
    assert _run([str(tmp_path / "alone.py")], check=False).returncode == 0


def test_a_function_refuses_other_shapes_types_and_strides(tmp_path: Path) -> None:
    text = workload_text(tuned(ops.pointwise(8, 16, "relu")))
    for wrong, told in (
        (torch.ones(8, 15), r"\[8, 15\]"),
        (torch.ones(16, 8).t(), "strides"),
        (torch.ones(8, 16).half(), "float16"),
    ):
        with pytest.raises(AssertionError, match=f"ValueError: x: .*{told}"):
            interpreted(text, "pointwise", [wrong], tmp_path)


def test_the_text_of_a_file_is_stable(check_golden: Callable[[str, str], None]) -> None:
    whole = {"columns": (1000,), "rows": (8, 8), "warps": 8, "grid": "tiles", "streaming": False}
    check_golden("standalone", workload_text(tuned(ops.softmax(64, 1000), lambda s: whole.items() <= s.knobs.items())))


def test_records_of_another_backend_are_refused() -> None:
    gpu = tuned(ops.softmax(8, 100))
    schedule = dataclasses.replace(gpu.schedule, backend="llvm")
    with pytest.raises(InputError, match="made by the backend 'llvm', whose code needs autosched to run"):
        dataclasses.replace(gpu, target=devices.cpu_target(), schedule=schedule)


def test_gluon_kernels_take_descriptors_with_their_layout() -> None:
    space, rng = build(ops.matmul(512, 512, 256, dtype="bfloat16"), H200), np.random.default_rng(0)
    drawn = (space.sample(rng) for _ in range(5000))
    schedule = next(s for s in drawn if s.knobs.get("specialize", "none") != "none")
    text = workload_text(dataclasses.replace(tuned(ops.matmul(512, 512, 256, dtype="bfloat16")), schedule=schedule))
    assert "GluonTensorDescriptor(in0, [512, 256]" in text
    assert "element_bitwidth=16, rank=2)" in text
    assert "num_warps=4," in text
    ast.parse(text)


def test_references_print_every_operator() -> None:
    axis, at = Axis("i", 50), (axis_index("i"),)
    x, y = Access("x", at), Access("y", at)
    of_floats = {n: a for n, (a, _) in OPERATORS.items() if n not in {*OF_INTEGERS, "to_float", "to_integer"}}
    for name, arity in of_floats.items():
        operands = [ex.call("abs", x), y, Literal(0.3)][:arity]
        for given in (operands, [Literal(0.7), *operands[1:]], [*operands[:-1], Literal(1.25)]):
            stage = Stage("out", (axis,), ex.add(ex.call(name, *given), ex.mul(x, y)))
            check_reference(
                Workload("one", (TensorSpec("x", (50,), "float32"), TensorSpec("y", (50,), "float32")), (stage,))
            )


def test_references_print_every_operator_of_integers() -> None:
    axis, at = Axis("i", 50), (axis_index("i"),)
    x, y = (ex.call("to_integer", Access(name, at)) for name in "xy")
    counted = ex.call("to_integer", ex.Position(axis_index("i")))
    tensors = (TensorSpec("x", (50,), "int64"), TensorSpec("y", (50,), "int64"))
    either = ("add", "sub", "mul", "neg", "abs", "maximum", "minimum")
    for name in (*sorted(OF_INTEGERS), *either, "to_float"):
        arity, _ = OPERATORS[name]
        for given in ([x, y][:arity], [Integer(-7), y][-arity:], [counted, Integer(3)][:arity]):
            made = ex.call(name, *given)
            whole = made if is_integral(made) else ex.call("to_integer", made)
            both = ex.call("where", ex.call("lt", x, whole), ex.add(whole, x), Integer(2))
            check_reference(Workload("one", tensors, (Stage("out", (axis,), both, dtype="int64"),)))


def test_references_print_folds_of_integers() -> None:
    r, c = Axis("r", 4), Axis("c", 5)
    x = ex.call("to_integer", Access("x", (axis_index("r"), axis_index("c"))))
    for fold in ("sum", "max", "min", "prod"):
        stage = Stage("fold", (r,), ex.mul(x, Integer(3)), Reduction(fold, (c,)), "int64")
        out = ex.add(ex.call("to_integer", Access("fold", (axis_index("r"),))), Integer(1))
        check_reference(
            Workload("one", (TensorSpec("x", (4, 5), "int64"),), (stage, Stage("out", (r,), out, dtype="int64")))
        )


def test_references_print_reductions_of_every_kind() -> None:
    r, c, d = Axis("r", 4), Axis("c", 5), Axis("d", 3)
    x, y = Access("x", (axis_index("r"), axis_index("c"))), Access("y", (axis_index("c"), axis_index("d")))
    for fold in ("sum", "max", "min", "prod"):
        for value in (x, ex.mul(x, Literal(2.0)), ex.mul(ex.call("exp", x), y), Literal(1.5)):
            stage = Stage("out", (r,), value, Reduction(fold, (c, d)))
            check_reference(
                Workload("one", (TensorSpec("x", (4, 5), "float32"), TensorSpec("y", (5, 3), "float32")), (stage,))
            )


def check_reference(workload: Workload) -> None:
    """The printed reference agrees with the one that interprets the expressions."""
    drawn = random_inputs(workload, seed=2)
    inputs = [x.double() if x.is_floating_point() else (x % 100).double() for x in drawn]
    namespace: dict[str, Any] = {"torch": torch, "math": __import__("math")}
    text = "\n\n".join([*HELPERS.values(), reference("computed", workload)])
    exec(text, namespace)
    (expected,) = autosched.checking.reference.evaluate(workload, inputs)
    torch.testing.assert_close(namespace["computed"](*inputs), expected, equal_nan=True, msg=lambda m: f"{m}\n{text}")


# Traced functions


def tuned_steps(traced: autosched.TracedFunction) -> dict[str, Tuned]:
    return {w.key: tuned(w) for w in traced.workloads}


def check_traced(function: Callable[..., Any], inputs: list[Tensor], folder: Path, **options: bool) -> str:
    """The file computes what the function does, and its self-test passes; the text."""
    traced = autosched.trace(function, *inputs, **options)
    text, saved = traced_text(traced, tuned_steps(traced))
    if saved:
        torch.save(saved, folder / "standing_alone.pt")
    made, printed = interpreted(text, traced.name, inputs, folder)
    expected = function(*inputs)
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)
    assert printed.startswith(f"{traced.name}: right")
    return text


def test_a_traced_function_of_two_kernels_is_one_file(tmp_path: Path) -> None:
    def double_product(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        return torch.relu(x @ first) @ second.t()

    inputs = [torch.randn(32, 48), torch.randn(48, 64), torch.randn(16, 64)]
    text = check_traced(double_product, inputs, tmp_path)
    assert text.count("def double_product") == 2
    assert "@triton.jit" in text


def test_results_that_are_views_and_several_results_are_returned(tmp_path: Path) -> None:
    def parts(x: Tensor) -> tuple[Tensor, Tensor]:
        whole = torch.softmax(x, -1)
        return whole[:, 3:9], whole.t()

    check_traced(parts, [torch.randn(20, 33)], tmp_path)


def test_parts_are_stored_in_the_memory_of_the_whole(tmp_path: Path) -> None:
    def branches(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return torch.cat((x @ w, torch.relu(x @ v)), -1)

    text = check_traced(branches, [torch.randn(16, 32), torch.randn(32, 16), torch.randn(32, 48)], tmp_path)
    assert text.count("_into([_view(") == 2


def test_constants_of_a_result_in_place_are_prepared_once(tmp_path: Path) -> None:
    first, second = torch.randn(32, 21).half() / 8, torch.randn(32, 21).half() / 8

    def branches(x: Tensor) -> Tensor:
        return torch.cat((x @ first.t(), torch.relu(x @ second.t())), -1)

    inputs = [torch.randn(32, 21).half()]
    traced = autosched.trace(branches, *inputs)
    text, saved = traced_text(traced, {w.key: tuned(w, _prepared) for w in traced.workloads})
    torch.save(saved, tmp_path / "standing_alone.pt")
    file = tmp_path / "standing_alone.py"
    file.write_text(text, encoding="utf-8")
    torch.save(inputs, tmp_path / "inputs")
    assert "_into([_view(" in text
    _run(["-c", _TWICE, str(file), str(tmp_path / "inputs"), str(tmp_path / "outputs")])
    for made in torch.load(tmp_path / "outputs"):
        torch.testing.assert_close(made, branches(*inputs), rtol=1e-2, atol=1e-2)


def _prepared(schedule: Schedule) -> bool:
    return bool(schedule.program.prepared) and by_pointers(schedule)


# Calls a function of a file twice, the second time without the kernels that prepare its constants.
_TWICE = """
import sys, torch
file, inputs, outputs = sys.argv[1:]
sys.path.insert(0, file.rpartition("/")[0])
module = __import__(file.rpartition("/")[2].removesuffix(".py"))
given = torch.load(inputs)
first, known = module.branches(*given), {key: state for key, (state, _) in module._KNOWN.items()}
second = module.branches(*given)
assert len(known) == 2
assert known == {key: state for key, (state, _) in module._KNOWN.items()}
torch.save([first, second], outputs)
"""


def test_small_constants_stand_in_the_text_and_large_ones_beside_it(tmp_path: Path) -> None:
    small, large = torch.randn(32), torch.randn(60, 32)

    def scaled(x: Tensor) -> Tensor:
        return (x + large) * small

    text = check_traced(scaled, [torch.randn(60, 32)], tmp_path)
    assert "torch.load(" in text
    assert (tmp_path / "standing_alone.pt").stat().st_size < 20_000


def test_constants_that_a_function_computes_itself_stand_in_the_file(tmp_path: Path) -> None:
    shift = torch.randn(4)

    def transformed(x: Tensor) -> Tensor:
        return x @ torch.outer(torch.arange(8.0).cos(), torch.arange(4.0).sin()) + shift

    check_traced(transformed, [torch.randn(6, 8)], tmp_path)


def test_scans_stand_alone(tmp_path: Path) -> None:
    def recurrence(a: Tensor, x: Tensor) -> Tensor:
        made = associative_scan(
            lambda left, right: (left[0] * right[0], left[1] * right[0] + right[1]),
            (torch.sigmoid(a), x.cumsum(-1)),
            1,
            combine_mode="generic",
        )
        return made[1] * 2

    text = check_traced(recurrence, [torch.randn(4, 24), torch.randn(4, 24)], tmp_path)
    assert text.count("tl.associative_scan(") == 2


def test_what_is_left_to_pytorch_is_called(tmp_path: Path) -> None:
    def running(x: Tensor) -> Tensor:
        return torch.relu(torch.sort(x * 2.0, 1)[0]) + 1.0

    text = check_traced(running, [torch.randn(16, 24)], tmp_path, allow_fallback=True)
    assert "torch.ops.aten.sort.default(" in text


def test_look_ups_of_a_traced_function_are_drawn_within_range(tmp_path: Path) -> None:
    def embedded(table: Tensor, token: Tensor) -> Tensor:
        return torch.nn.functional.embedding(token, table) * 2.0

    check_traced(embedded, [torch.randn(11, 16), torch.randint(0, 11, (9,))], tmp_path)


# Export


def test_shipped_records_are_exported_for_a_gpu_that_is_not_here(tmp_path: Path) -> None:
    op = ops.matmul(4096, 4096, 4096, dtype="float16")
    path = autosched.export(op, tmp_path / "product.py", "h200")
    assert path == tmp_path / "product.py"
    text = path.read_text(encoding="utf-8")
    compile(text, str(path), "exec")
    assert "Tuned on NVIDIA H200" in text


def test_exporting_for_a_cpu_says_what_to_tune_first(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"llvm.*; expected a GPU: tune first there, with autosched\.tune\(…, trials"):
        autosched.export(ops.softmax(8, 16), tmp_path / "x.py", "cpu", log=tmp_path / "tuning.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_exporting_what_was_never_tuned_names_the_call_to_make(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'make one with autosched\.tune\(…, "h200", trials=100\)'):
        autosched.export(ops.softmax(8, 16), tmp_path / "x.py", "h200", log=tmp_path / "tuning.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_other_things_than_operators_and_kernels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected an operator"):
        autosched.export("matmul", tmp_path / "x.py")  # type: ignore[call-overload]  # the mistake under test


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", CASES)
def test_the_self_test_passes_on_a_gpu(name: str, tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(workload_text(tuned(*CASES[name])), encoding="utf-8")
    done = subprocess.run([sys.executable, "-I", str(tmp_path / "alone.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "us with hot caches" in done.stdout


def test_a_file_computes_several_results_of_one_kernel(tmp_path: Path) -> None:
    def several(x: Tensor, w: Tensor) -> dict[str, Tensor]:
        h = x + 1
        return {"norm": torch.nn.functional.rms_norm(h, (20,), w), "h": h, "flat": h.view(-1, 20) * w}

    text = check_traced(several, [torch.randn(2, 6, 20), torch.randn(20)], tmp_path)
    assert text.count("_kernel[") == 1
