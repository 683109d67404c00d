"""`autosched ask-tell`: the Bayesian search over lines of JSON, whatever comes in, and started in no time."""

from __future__ import annotations

import io
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autosched.cli.ask_tell import serve

INIT = {"op": "init", "names": ["a", "b"], "values": [[1, 2, 4], [False, True]], "seed": 0, "budget": 6}
ALL = [[a, b] for a in (1, 2, 4) for b in (False, True)]


def answers(*messages: dict[str, Any] | str) -> list[dict[str, Any]]:
    lines = [m if isinstance(m, str) else json.dumps(m) for m in messages]
    out = io.StringIO()
    serve(io.StringIO("".join(f"{line}\n" for line in lines)), out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_search_runs_over_a_process_s_standard_input_and_output() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "autosched", "ask-tell"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def told(message: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin
        assert process.stdout
        print(json.dumps(message), file=process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(process.stdout.readline())
        return answer

    assert told({**INIT, "configs": ALL}) == {"ok": True}
    found = []
    while configs := told({"op": "ask", "n": 4})["configs"]:
        found += configs
        assert told({"op": "tell", "configs": configs, "times": [1.0 + a if b else None for a, b in configs]})["ok"]
    assert sorted(found) == ALL
    process.communicate()
    assert process.returncode == 0


@pytest.mark.parametrize("count", [10_000, 200_000])
def test_a_knob_of_very_many_values_is_searched_in_bounded_memory_and_time(count: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "autosched", "ask-tell"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin
    assert process.stdout
    messages: list[dict[str, Any]] = [{"op": "init", "names": ["n"], "values": [[*range(1, count + 1)]]}]
    messages += [{"op": "ask", "n": 1}] * 6
    for message in messages:
        print(json.dumps(message), file=process.stdin, flush=True)
        answer = json.loads(process.stdout.readline())
    for _ in range(20):
        # Fastest near a third of the values.
        told = {"op": "tell", "configs": answer["configs"]}
        told["times"] = [1 + abs(math.log(3 * n / count)) for (n,) in answer["configs"]]
        for message in (told, {"op": "ask", "n": 1}):
            print(json.dumps(message), file=process.stdin, flush=True)
            answer = json.loads(process.stdout.readline())
    (most_kib,) = map(int, re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text()))
    process.stdin.close()
    process.stdout.close()
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0
    assert most_kib < 500 * 2**10
    # To start, to begin, and half a second for each of 26 points.
    assert used.ru_utime + used.ru_stime < 20


def test_it_starts_without_what_it_does_not_need() -> None:
    heavy = (
        "import autosched.cli.ask_tell, sys; print(sorted({'torch', 'triton', 'llvmlite', 'typer'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_configurations_may_be_left_out_and_every_combination_is_legal_then() -> None:
    _, asked = answers(INIT, {"op": "ask", "n": 100})
    assert len(asked["configs"]) == len(ALL)


def test_equal_seeds_and_answers_give_equal_proposals() -> None:
    assert answers(INIT, {"op": "ask", "n": 3}) == answers(INIT, {"op": "ask", "n": 3})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "expected a line of JSON, got 'nonsense'"),
        ("[1]", "expected an object"),
        ({"op": "stop"}, "expected one of init, ask, tell"),
        ({"op": "ask", "n": -1}, "n -1; expected an integer of at least 0"),
        ({"op": "ask"}, "n None; expected an integer"),
        ({"op": "tell", "configs": [[1, False]], "times": []}, "1 configs and 0 times"),
        ({"op": "tell", "configs": [[1]], "times": [1]}, "expected 2 values"),
        ({"op": "tell", "configs": [[3, False]], "times": [1]}, "[3, False] is no legal configuration of a, b"),
        ({"op": "tell", "configs": [[1, {}]], "times": [1]}, "knob value an object, expected a finite number, a text"),
        ({"op": "tell", "configs": [[1, False]], "times": [-1]}, "-1; expected positive milliseconds"),
        ({"op": "tell", "configs": [[1, False]], "times": ["RuntimeFailedConfig"]}, "or null for a failure"),
        ({**INIT, "seed": "x"}, "seed 'x'"),
        ({**INIT, "values": [[1]]}, "2 names and 1 lists of values"),
        ({**INIT, "names": ["a", "a"]}, "a: given twice; expected each knob once"),
        ({**INIT, "values": [[1, 1], [2]]}, "knob a: expected one value or more, each once"),
        ({**INIT, "configs": [[1, 2, 3]]}, "expected a value for each of a, b"),
        ({**INIT, "ctx": {"sources": 3}}, "expected an object, with a list of sources"),
    ],
)
def test_a_bad_line_is_answered_and_the_search_goes_on(line: dict[str, Any] | str, said: str) -> None:
    _, wrong, asked = answers(INIT, line, {"op": "ask", "n": 6})
    assert said in wrong["error"]
    assert len(asked["configs"]) == 6


def test_asking_before_a_search_was_begun_says_what_comes_first() -> None:
    assert "no search was begun" in answers({"op": "ask", "n": 1})[0]["error"]


def test_a_space_without_a_point_has_nothing_to_ask() -> None:
    assert answers({**INIT, "configs": []}, {"op": "ask", "n": 4})[1] == {"configs": []}


def test_sources_become_history_and_what_does_not_fit_is_named() -> None:
    fits = {"device": "other", "configs": [[1, True], [8, True]], "times": [3.0, None]}
    short = {"device": "third", "configs": [[1]], "times": [1.0]}
    more = {"names": ["b", "a", "c"], "configs": [[True, 1, 0], [True, 1, 1]], "times": [2.0, None]}
    lacks = {"names": ["a"], "configs": [[1]], "times": [2.0]}
    begun, asked = answers({**INIT, "ctx": {"sources": [fits, short, more, lacks]}}, {"op": "ask", "n": 6})
    assert begun["notes"] == [
        "source 1: 1 of 2 points with values that the space has not were left out",
        "source 2 was left out: configuration [1]: expected 2 values",
        "source 3: it does not name its device",
        "source 3: knobs that the space has not were left out: c",
        "source 4 was left out: expected a value of the knob b ([False, True]); got the knobs a",
    ]
    assert len(asked["configs"]) == 6
