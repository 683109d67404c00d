"""Code of nodes: what differs is named, and what only concerns measuring does not matter to those that compile."""

from __future__ import annotations

from autosched.measuring.fleet.code import Code, own_versions

OWN = (("autosched", "0.1"), ("code of autosched", "abc"))
HERE = Code(OWN, (("torch", "2.9"), ("triton", "3.6"), ("driver", "570")))


def test_the_code_of_this_process_is_like_itself_also_as_text() -> None:
    here = Code(own_versions(), HERE.environment)
    assert Code.from_text(here.to_text()) == here
    assert here.why_unlike(own_versions()) == ""
    assert dict(here.own).keys() >= {"autosched", "code of autosched", "code of search_spaces"}


def test_another_version_is_named_with_both() -> None:
    there = Code((("autosched", "0.2"), ("code of autosched", "abc")), HERE.environment)
    assert there.why_unlike(OWN) == "autosched is 0.2 there, 0.1 here"
    assert (
        Code((), ()).why_unlike(OWN)
        == "autosched is missing there, 0.1 here, code of autosched is missing there, abc here"
    )


def test_a_card_needs_the_driver_and_libraries_of_the_others_and_who_compiles_the_compilers() -> None:
    other_driver = Code(OWN, (("torch", "2.9+cpu"), ("triton", "3.6")))
    assert other_driver.why_unfit(HERE, only_compiles=True) == ""
    assert "driver is missing there, 570 on the nodes that measure" in other_driver.why_unfit(HERE, only_compiles=False)
    other_compiler = Code(OWN, (("triton", "3.7"),))
    assert other_compiler.why_unfit(HERE, only_compiles=True) == "triton is 3.7 there, 3.6 on the nodes that measure"
