"""Several outputs of one workload, of different shapes and element types: every one is computed, checked, returned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import autosched
from autosched import LocalMeasurer
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.correctness import expect
from autosched.checking.random_inputs import random_inputs
from autosched.checking.reference import as_written, evaluate
from autosched.checking.trial_data import Failed, TrialData
from autosched.comparing.compare import compare_kernel
from autosched.machine.element_types import torch_dtype
from autosched.measuring.local.kernel_check import check_once
from autosched.replaying.replay import why_wrong_now
from autosched.standalone.file import workload_text
from autosched.standalone.tuned import Tuned
from cost_models.features import FEATURE_NAMES, features
from isolated_python import isolated
from schedule_checks import faults
from scheduled_tensors import interpreted
from search_spaces import Axis, Stage, Tensor, TileProgram, Workload, ops, target_named
from search_spaces.devices.descriptors import descriptor_remarks
from search_spaces.programs.statements import Store
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Integer, Literal
from several_output_kernels import HERE, LLVM, assert_right, loaded, record_of, schedule_of
from several_outputs import COLUMNS, STRIDED, added, compared, program_of

TRITON = TritonBackend()
WORKLOADS = {
    "bfloat16 and its rows' maxima": added(),
    "float16 and its rows' maxima": added("float16"),
    "rows with gaps": added(strides=(48, 1)),
    "three types": compared(),
    "three types, strided": compared(STRIDED),
}
workloads = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)


def expected_of(workload: Workload, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    made = evaluate(workload, inputs)
    return tuple(x.to(torch_dtype(t.dtype)) for x, t in zip(made, workload.outputs, strict=True))


# The reference


def test_the_reference_gives_every_output_unrounded() -> None:
    x, y = random_inputs(added(), 0)
    total, largest = evaluate(added(), [x, y])
    assert torch.equal(total, x.double() + y.double())
    assert torch.equal(largest, total.amax(-1))


def test_eager_gives_every_output_in_its_type() -> None:
    (x,) = random_inputs(compared(), 0)
    power, positive, tripled = as_written(compared(), [x])
    assert torch.equal(power, x.exp())
    assert torch.equal(positive, x > 0)
    assert torch.equal(tripled, (3 * x).half())


def test_what_reads_an_output_reads_it_before_it_is_stored() -> None:
    """A narrow output adds no error to what is computed from it: workloads say where a rounding is read."""
    workload = added("float32")
    narrow = replace(workload, stages=(replace(workload.stages[0], dtype="bfloat16"), workload.stages[1]))
    inputs = random_inputs(workload, 0)
    (_, wide), (total, largest) = expect(workload, inputs), expect(narrow, inputs)
    assert torch.equal(largest.allowed, wide.allowed)
    assert float(total.allowed.max()) > 100 * float(largest.allowed.max())


def test_what_reads_an_output_of_integers_reads_all_their_bits() -> None:
    """A hundredfold does not fit 8 bits, and is stored without the upper ones."""
    counted = ex.mul(ex.call("to_integer", Access("x", (axis_index("i"),))), Integer(100))
    halved = ex.mul(Access("stored", (axis_index("i"),)), Literal(0.5))
    axes = (Axis("i", 3),)
    workload = Workload(
        "counted",
        (Tensor("x", (3,), "int32"),),
        (Stage("stored", axes, counted, dtype="int8"), Stage("halved", axes, halved)),
        output_names=("stored", "halved"),
    )
    stored, half = expect(workload, [torch.tensor([1, 2, 3], dtype=torch.int32)])
    assert stored.values.tolist() == [100, 200 - 256, 300 - 256]
    assert half.values.tolist() == [50.0, 100.0, 150.0]
    assert not faults(workload, samples=2, seed=0)


def test_sums_of_integers_are_exact_in_memory_and_rounded_for_what_reads_them() -> None:
    product = ops.matmul(4, 5, 6, dtype="int8", epilogue="rowscale", out_dtype="float32")
    both = replace(product, output_names=tuple(s.name for s in product.stages), output_strides=())
    (exact, alone), (wanted,) = (expect(w, random_inputs(product, 0)) for w in (both, product))
    assert exact.allowed.max() < 1
    assert torch.equal(alone.allowed, wanted.allowed)
    assert torch.equal(alone.values, wanted.values)


# Trials


@pytest.fixture(params=[added(), compared(STRIDED)], ids=["two", "three"])
def data(request: pytest.FixtureRequest) -> TrialData:
    """Right results of a workload."""
    workload = request.param
    data = TrialData.drawn(workload, 0, torch.device("cpu"))
    data.poison()
    write_right(data, workload)
    return data


def write_right(data: TrialData, workload: Workload) -> None:
    for output, right in zip(data.outputs, expected_of(workload, data.inputs.tensors), strict=True):
        output.tensor.copy_(right)


def test_right_results_pass(data: TrialData) -> None:
    assert data.judge() <= 1
    data.judge_surroundings()
    assert len(data.operands) == len(data.inputs.tensors) + len(data.outputs)


@pytest.mark.parametrize("which", [0, 1])
def test_a_wrong_output_is_named(which: int) -> None:
    workload = added()
    data = TrialData.drawn(workload, 0, torch.device("cpu"))
    write_right(data, workload)
    data.outputs[which].tensor.view(-1)[3] += 1
    with pytest.raises(Failed, match=f"output {workload.output_names[which]}: 1 of .* elements are wrong"):
        data.judge()


@pytest.mark.parametrize("which", [0, 1])
def test_an_output_that_was_not_written_is_named(which: int) -> None:
    workload = added()
    data = TrialData.drawn(workload, 0, torch.device("cpu"))
    write_right(data, workload)
    data.outputs[which].poison()
    with pytest.raises(Failed, match=f"output {workload.output_names[which]}: .* elements were not written") as failed:
        data.judge()
    assert failed.value.status == "unwritten_output"


def test_a_write_beside_any_output_is_seen(data: TrialData) -> None:
    for output in data.outputs:
        output.bands[0][0] = 0
        with pytest.raises(Failed, match="wrote outside its output") as failed:
            data.judge_surroundings()
        assert failed.value.status == "out_of_bounds_write"
        output.surround()


def test_the_reference_of_every_output_is_watched(data: TrialData) -> None:
    for expectation in data._expectations:
        expectation.allowed.view(-1)[0] *= 2
        assert not data.intact
        expectation.allowed.view(-1)[0] /= 2
        assert data.intact


def test_the_same_data_elsewhere_expects_the_same_of_all_outputs(data: TrialData) -> None:
    moved = data.moved(1)
    for there, here in zip(moved.outputs, data.outputs, strict=True):
        assert there.tensor.data_ptr() != here.tensor.data_ptr()
        there.tensor.copy_(here.tensor)
    assert moved.judge() <= 1


# Programs


@workloads
def test_the_interpreter_gives_all_outputs(workload: Workload) -> None:
    inputs = random_inputs(workload, 0)
    made = interpreted(workload, program_of(workload), [x.float() for x in inputs])
    typed = tuple(torch.from_numpy(m).to(torch_dtype(t.dtype)) for m, t in zip(made, workload.outputs, strict=True))
    assert_right(workload, inputs, typed)


@workloads
def test_a_cpu_writes_all_outputs_and_nothing_else(workload: Workload) -> None:
    launcher, data = loaded(workload), TrialData.drawn(workload, 0, torch.device("cpu"))
    data.poison()
    launcher(data.operands)
    data.judge()
    data.judge_surroundings()
    launcher.unload()


@pytest.mark.parametrize("workload", [added("float16"), compared()], ids=["two", "three"])
def test_triton_writes_all_outputs(triton_interpreter, workload: Workload) -> None:
    inputs = random_inputs(workload, 0)
    program = program_of(workload)
    made = triton_interpreter.computed(TRITON.render(program, "", target_named("h200")), workload, program, inputs)
    typed = tuple(torch.from_numpy(m).to(torch_dtype(t.dtype)) for m, t in zip(made, workload.outputs, strict=True))
    assert_right(workload, inputs, typed)


@workloads
def test_triton_compiles_kernels_of_several_outputs(workload: Workload) -> None:
    program = program_of(workload)
    artefact = TRITON.compile(TRITON.render(program, "", target_named("h200")), program, target_named("h200"))
    names = [*(t.name for t in workload.inputs), *workload.output_names]
    assert all(f'"{name}"' in artefact.launch for name in names)


def test_features_count_the_stores_of_every_output() -> None:
    one, two = (
        dict(zip(FEATURE_NAMES, features(p, HERE), strict=True)) for p in (without("largest"), program_of(added()))
    )
    assert two["stored_bytes"] > one["stored_bytes"]
    assert two["store_bytes"] == one["store_bytes"], "the features of one store are those of the largest"


def without(buffer: str) -> TileProgram:
    program = program_of(added())
    (kernel,) = program.kernels
    body = tuple(s for s in kernel.body if not (isinstance(s, Store) and s.buffer == buffer))
    return replace(program, kernels=(replace(kernel, body=body),))


def test_remarks_say_which_outputs_have_no_descriptor() -> None:
    odd = added("bfloat16", strides=(COLUMNS + 1, 1))
    (remark,) = descriptor_remarks(odd, (), target_named("h200"))
    assert remark.startswith("total: ")
    assert remark.endswith("so total is written by pointers")


def test_element_types_of_all_outputs_are_looked_at() -> None:
    workload, v100 = compared(), target_named("v100")
    narrow = replace(workload, stages=(replace(workload.stages[0], dtype="float8_e4m3fn"), *workload.stages[1:]))
    assert TRITON.limits.why_unsupported(workload, v100) is None
    assert "float8_e4m3fn" in str(TRITON.limits.why_unsupported(narrow, v100))


# Measuring


def test_a_trial_checks_and_times_a_kernel_of_several_outputs() -> None:
    workload = added()
    with LocalMeasurer(HERE) as measurer:
        (found,) = measurer.measure(workload, [schedule_of(workload, "llvm")])
    assert found.ok, found.detail
    assert 0 < found.latency_s < 1


@pytest.mark.parametrize("buffer", ["total", "largest"])
def test_a_kernel_that_leaves_one_output_out_is_refused_before_its_first_use(buffer: str) -> None:
    program = without(buffer)
    launcher = LLVM.load(LLVM.compile(LLVM.render(program, "", HERE), program, HERE), program)
    with pytest.raises(Failed, match=f"output {buffer}: .* elements were not written"):
        check_once(added(), torch.device("cpu"), launcher, seed=0)
    check_once(added(), torch.device("cpu"), loaded(added()), seed=0)


# From a search to a kernel


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a search of a few trials found."""
    path = tmp_path_factory.mktemp("tuned") / "log.jsonl"
    result = autosched.tune(added(), HERE, trials=4, log=path, seed=0)
    assert result.best.measurement.ok
    return path


def test_a_kernel_of_several_outputs_is_found_in_the_log_again(log: Path) -> None:
    inputs = random_inputs(added(), 5)
    kernel = autosched.replay(added(), HERE, log=log)
    assert_right(added(), inputs, kernel(*inputs))
    assert why_wrong_now(kernel, 7) is None


def test_a_kernel_of_several_outputs_is_compared_with_pytorch(log: Path) -> None:
    kernel = autosched.replay(added(), HERE, log=log)
    shown = compare_kernel(kernel, rounds=2, baselines=("parts",))
    assert [row.name for row in shown.rows] == ["tuned", "parts", "roofline"]
    assert all(row.latencies_s for row in shown.rows[:2])


def test_a_record_of_several_outputs_says_what_is_stored(log: Path) -> None:
    (*_, record) = autosched.TuningLog(log).records()
    assert record.workload.output_names == ("total", "largest")
    assert "  largest[r] = max over c of total[r, c]  : float32, stored" in str(record.workload).splitlines()
    assert record.workload.label == "added 13x40 and 13 over 40 bfloat16 to bfloat16 and float32"


# Files of their own


@pytest.mark.parametrize("workload", [added("float16"), compared()], ids=["two", "three"])
def test_a_file_of_its_own_returns_all_outputs(workload: Workload, tmp_path: Path) -> None:
    schedule = schedule_of(workload, "triton")
    tuned = Tuned.of(record_of(workload, schedule, target_named("h200")), schedule, workload)
    file = tmp_path / "kernel.py"
    file.write_text(workload_text(tuned), encoding="utf-8")
    done = isolated(str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert ": right, the largest error is" in done.stdout
