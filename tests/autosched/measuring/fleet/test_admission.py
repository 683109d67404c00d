"""Admission of nodes: by their code, and by the first of them that measures."""

from __future__ import annotations

from dataclasses import replace

from autosched.measuring.fleet.admission import Admission, NodeFacts, Surveyed, last_line
from autosched.measuring.fleet.this_node import ThisNode
from search_spaces import target_named

H200 = target_named("h200")
CODE = ThisNode().code(H200)
OTHER_DRIVER = replace(CODE, environment=(*CODE.environment, ("another driver", "1")))
COMPILES = NodeFacts("0", "compiles", 0, 8)
CARDS = [NodeFacts(str(n), f"card {n}", 1, 8) for n in (1, 2, 3)]


def test_nodes_that_do_not_fit_the_first_one_that_measures_are_refused() -> None:
    found = {
        COMPILES: Surveyed((), OTHER_DRIVER),
        CARDS[0]: Surveyed((H200.device,), CODE),
        CARDS[1]: Surveyed((H200.device,), OTHER_DRIVER),
        CARDS[2]: Surveyed(("NVIDIA L4",), OTHER_DRIVER),
    }
    admission = Admission(H200)
    why = admission.why_refused(found)
    assert why.pop(CARDS[1]) == "another driver is 1 there, missing on the nodes that measure"
    assert set(why.values()) == {""}
    assert admission.measuring == CODE


def test_a_node_of_other_code_is_refused_and_sets_no_example() -> None:
    other = replace(OTHER_DRIVER, own=(("autosched", "0"),))
    found = {CARDS[0]: Surveyed((H200.device,), other), CARDS[1]: Surveyed((H200.device,), CODE)}
    admission = Admission(H200)
    assert [bool(why) for why in admission.why_refused(found).values()] == [True, False]
    assert admission.measuring == CODE


def test_an_error_without_words_is_told_by_its_name() -> None:
    assert last_line(ValueError("first\nlast\n")) == "last"
    assert last_line(ValueError()) == "ValueError"
