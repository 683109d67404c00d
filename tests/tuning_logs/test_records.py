"""Measurements and tuning records: what goes into a line comes out of it, and a failure is never a number."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces import DataError, Schedule, Target, Workload, ops, target_named
from search_spaces.devices.target import cpu
from search_spaces.schedules.knobs import KnobValue
from tuning_logs import STATUSES, CompileFacts, Measurement, Provenance, TuningRecord
from tuning_logs.alternative import Alternative

CPU = cpu("A CPU", lanes=16, threads=2, l1_bytes=32768, l2_bytes=2**20, fp32_flops=1e11)

CASE = TuningRecord(
    ops.softmax(32, 100),
    CPU,
    Schedule("s", (), backend="mine"),
    Measurement("ok", (1.0,)),
    Provenance("g", "cold", 0.0, 0, 0),
)

names = st.text("abcdefgh_.0123", min_size=1, max_size=8)
knob_values: st.SearchStrategy[KnobValue] = st.one_of(
    st.booleans(),
    st.integers(-(2**31), 2**31),
    st.text(max_size=8),
    st.lists(st.integers(1, 4096), min_size=1, max_size=4).map(tuple),
)
schedules = st.builds(
    Schedule,
    names,
    st.dictionaries(names, knob_values, max_size=6).map(lambda d: tuple(d.items())),
    st.none(),
    names,
)
facts = st.builds(CompileFacts, st.floats(0, 100), st.none() | st.integers(0, 255), st.none() | st.integers(0, 10**6))
latencies = st.floats(1e-7, 10).map(lambda t: float(f"{t:.6g}"))
ratios = st.floats(0.01, 100).map(lambda t: float(f"{t:.4g}"))
alternatives = st.builds(Alternative, names, ratios, ratios, ratios, st.booleans())
successes = st.builds(
    Measurement,
    st.just("ok"),
    st.lists(latencies, min_size=1, max_size=5).map(tuple),
    st.just(""),
    st.none() | facts,
    st.none() | st.floats(0, 1).map(lambda e: float(f"{e:.4g}")),
    st.floats(0, 100).map(lambda t: round(t, 6)),
    library=st.none() | alternatives,
    rival=st.none() | alternatives,
    cuts=st.lists(alternatives, max_size=3).map(tuple),
    by_histogram=st.dictionaries(names, latencies, max_size=3).map(lambda d: tuple(d.items())),
)
failures = st.builds(
    Measurement, st.sampled_from([s for s in STATUSES if s != "ok"]), st.just(()), st.text(max_size=40)
)
provenances = st.builds(
    Provenance,
    names,
    st.sampled_from(["cold", "hot"]),
    st.floats(0, 2e9),
    st.integers(0, 2**32),
    st.integers(0, 10**6),
    st.dictionaries(names, st.text(max_size=8), max_size=3).map(lambda d: tuple(d.items())),
    st.integers(0, 3),
)
workloads = st.sampled_from(
    [
        ops.matmul(64, 32, 16),
        ops.matmul(64, 32, 16, dtype="bfloat16", batch=2, epilogue="bias_gelu"),
        ops.softmax(32, 100),
        ops.gelu_scale(1000),
    ]
)
records = st.builds(
    TuningRecord, workloads, st.sampled_from([CPU, target_named("h200")]), schedules, successes | failures, provenances
)


def through_json(record: TuningRecord) -> TuningRecord:
    return TuningRecord.from_json(json.loads(json.dumps(record.to_json())))


@given(records)
def test_a_record_survives_its_json_form(record: TuningRecord) -> None:
    again = through_json(record)
    assert again == record
    assert again.provenance == record.provenance
    assert again.key == record.key
    assert again.workload.arguments == record.workload.arguments


@given(records)
def test_the_json_form_is_stable(record: TuningRecord) -> None:
    assert json.dumps(through_json(record).to_json()) == json.dumps(record.to_json())


@pytest.mark.parametrize(("target", "backend"), [(CPU, "llvm"), (target_named("h200"), "triton")])
def test_a_line_that_names_no_backend_is_of_the_one_that_its_target_had(target: Target, backend: str) -> None:
    line = CASE.to_json()
    del line["backend"]
    assert TuningRecord.from_json({**line, "target": target.to_json()}).backend == backend


def test_knobs_and_figures_of_devices_are_read_by_their_older_names() -> None:
    h200 = target_named("h200")
    older = {
        {"num_sms": "units", "registers_per_sm": "registers_per_unit"}.get(k, k): v for k, v in h200.to_json().items()
    }
    assert Target.from_json(older) == h200
    schedule = Schedule.from_json({"sketch": "tiled_dot_gpu", "values": {"m": [2, 64], "parts": 4, "per_unit": 2}})
    assert schedule.values == (("m", (2, 64)), ("subtiles", 4), ("per_sm", 2))


def test_a_cut_by_its_older_name_is_one_of_several() -> None:
    line, cut = CASE.to_json(), Alternative("0123", 1.1, 1.05, 1.2, taken=True)
    line["measurement"]["cut"] = cut.to_json()
    assert TuningRecord.from_json(line).measurement.cuts == (cut,)


@pytest.mark.parametrize("member", ["library", "rival", "early", "cut", "cuts"])
@pytest.mark.parametrize("given", [3, {}, {**Alternative("MKL", 1.0, 0.9, 1.1, True).to_json(), "taken": 1}])
def test_an_alternative_that_is_none_is_refused(member: str, given: object) -> None:
    line = CASE.to_json()
    line["measurement"][member] = given
    with pytest.raises(DataError, match=member):
        TuningRecord.from_json(line)


def test_a_backend_that_is_no_text_is_refused() -> None:
    with pytest.raises(DataError, match="backend 3, expected text"):
        TuningRecord.from_json({**CASE.to_json(), "backend": 3})


def test_schedules_of_two_backends_are_two() -> None:
    assert len({Schedule("s", (), backend=name) for name in ("llvm", "triton", "llvm")}) == 2


def test_true_and_one_stay_different_knob_values_in_json() -> None:
    schedule = Schedule("s", (("flag", True), ("count", 1)))
    again = Schedule.from_json(json.loads(json.dumps(schedule.to_json())))
    assert [type(v) for _, v in again.values] == [bool, int]


def test_the_key_of_a_record_tells_devices_and_thread_counts_apart() -> None:
    one = dataclasses.replace(CPU, threads=1)
    success, provenance = Measurement("ok", (1.0,)), Provenance("g", "cold", 0.0, 0, 0)
    keys = {
        TuningRecord(workload, target, Schedule("s", ()), success, provenance).key
        for workload in (ops.softmax(32, 100), ops.softmax(32, 101))
        for target in (CPU, one, target_named("h200"))
    }
    assert len(keys) == 6


def test_the_key_of_a_record_does_not_depend_on_the_workloads_name() -> None:
    named = ops.softmax(32, 100)
    anonymous = Workload("traced", named.inputs, named.stages)
    assert anonymous.key == named.key


@pytest.mark.parametrize("status", [s for s in STATUSES if s != "ok"])
def test_a_failure_has_no_latency(status: str) -> None:
    failed = Measurement.from_json({"status": status, "detail": "why"})
    assert not failed.ok
    with pytest.raises(ValueError, match="has no latency"):
        _ = failed.latency_s
    with pytest.raises(ValueError, match="only 'ok' has latencies"):
        Measurement.from_json({"status": status, "latencies_s": [1e10]})


def test_a_success_without_latencies_is_refused() -> None:
    with pytest.raises(ValueError, match="only 'ok' has latencies"):
        Measurement("ok")


def test_the_latency_is_the_median_of_the_repeats() -> None:
    assert Measurement("ok", (5.0, 1.0, 2.0)).latency_s == 2.0
    assert Measurement("ok", (1.0, 2.0)).latency_s == 1.5


def test_an_unknown_status_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown status 'fine' .allowed: ok, compile_error"):
        Measurement.from_json({"status": "fine"})


def test_a_record_of_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="schema 2, expected 1"):
        TuningRecord.from_json({"schema": 2})
