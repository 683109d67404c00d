"""Certificates: what is noted of rounds in pairs, their JSON form, and forged ones."""

from __future__ import annotations

import dataclasses
import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from certified_records import certificate, certified, pairs
from hostile_records import damaged, parts, replaced
from log_records import line_of, record
from search_spaces import DataError
from tuning_logs import Certificate, TuningLog
from tuning_logs.certificate import Pairs, Ratio

SCHEMA = Path(__file__).parents[2] / "docs" / "trust.md"
WHOLE = certificate(
    library=pairs("library", 1.5, 1.4, 1.6),
    itself=pairs("itself", 1.0, 0.99, 1.01),
    calibration=pairs("89abcdef01234567", 3.0, 2.9, 3.1),
)


def test_rounds_are_told_apart_by_who_ran_first() -> None:
    winner, other = [1.0] * 12, [2.0, 3.0] * 6
    found = Pairs.of("library", winner, other, [True, False] * 6)
    assert found is not None
    assert (found.rounds, found.winner_s, found.other_s) == (12, 1.0, 2.5)
    assert (found.first, found.second) == (Ratio(2.0, 2.0, 2.0), Ratio(3.0, 3.0, 3.0))
    assert (found.ratio.low, found.ratio.high) == (2.0, 3.0)


def test_an_order_of_too_few_rounds_has_no_ratio_and_too_few_of_both_are_no_pairs() -> None:
    found = Pairs.of("library", [1.0] * 8, [2.0] * 8, [True] * 6 + [False] * 2)
    assert found is not None
    assert found.first == Ratio(2.0, 2.0, 2.0)
    assert found.second is None
    assert Pairs.of("library", [1.0] * 5, [2.0] * 5, [True] * 5) is None


@pytest.mark.parametrize("given", [WHOLE, certificate(source=None)], ids=["whole", "null"])
def test_a_certificate_survives_its_json_form_within_its_record(given: Certificate, tmp_path: Path) -> None:
    assert Certificate.from_json(json.loads(json.dumps(given.to_json()))) == given
    log = TuningLog(tmp_path / "tuning.jsonl")
    log.append(certified(record(), given), record(32))
    assert [r.measurement.certificate for r in log] == [given, None]


def test_a_certificate_of_an_earlier_version_has_no_calibration() -> None:
    data = WHOLE.to_json()
    del data["calibration"]
    assert Certificate.from_json(data) == dataclasses.replace(WHOLE, calibration=None)


def test_a_forged_certificate_costs_its_own_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "tuning.jsonl"
    whole = certified(record(), WHOLE)
    data = whole.to_json()
    place = ("measurement", "certificate", "library", "ratio", 0)
    forged = [json.dumps(replaced(data, place, value)).encode() for value in (1e300, "1.5", 0, -1.5, 1.7)]
    nan = line_of(whole).replace(b"[1.5, 1.4, 1.6]", b"[NaN, 1.4, 1.6]", 1)
    path.write_bytes(b"\n".join([line_of(whole), *forged, nan, line_of(whole), b""]))
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        assert list(TuningLog(path)) == [whole, whole]
    assert [f"line {n}: skipped" in str(w.message) for n, w in enumerate(given, 2)] == [True] * 6


def test_the_schema_in_the_documents_admits_exactly_what_is_read() -> None:
    (block,) = re.findall(r"^```json\n(.*?)^```", SCHEMA.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    schema = json.loads(block)
    data = WHOLE.to_json()
    assert admits(schema, data, schema)
    described = {name for path, _ in parts(schema) for name in [path[-1]] if path[-2:-1] == ("properties",)}
    written = {path[-1] for path, _ in parts(data) if isinstance(path[-1], str)}
    assert written - described == {name for name, _ in WHOLE.versions}
    count = 0
    for changed in damaged(data):
        assert admits(schema, changed, schema) == reads(changed), changed
        count += 1
    assert count > 500


def reads(data: Any) -> bool:
    try:
        Certificate.from_json(data)
    except DataError:
        return False
    return True


KINDS = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int}


def admits(schema: Any, data: Any, root: Any) -> bool:
    """Whether a JSON schema admits data; of the keywords those that the documents use."""
    if "$ref" in schema:
        return admits(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], data, root)
    if "anyOf" in schema:
        return any(admits(one, data, root) for one in schema["anyOf"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(type(data) in ((int, float) if kind == "number" else (KINDS[kind],)) for kind in kinds):
        return False
    if isinstance(data, dict):
        known = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        rest = [value for name, value in data.items() if name not in known]
        return (
            all(name in data for name in schema.get("required", ()))
            and all(admits(known[name], value, root) for name, value in data.items() if name in known)
            and (others is True or (others is False and not rest) or all(admits(others, v, root) for v in rest))
        )
    if isinstance(data, list):
        fits = schema.get("minItems", 0) <= len(data) <= schema.get("maxItems", len(data))
        return fits and all(admits(schema["items"], item, root) for item in data)
    if isinstance(data, str):
        return re.search(schema.get("pattern", ""), data) is not None
    return data is None or schema.get("minimum", data) <= data <= schema.get("maximum", data)
