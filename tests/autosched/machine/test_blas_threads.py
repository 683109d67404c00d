"""Threads of numpy's linear algebra, while a search computes."""

from __future__ import annotations

from autosched.machine.blas_threads import one_meanwhile, openblas_threads


def test_there_is_one_thread_meanwhile_and_as_many_as_before_afterwards() -> None:
    functions = openblas_threads()
    assert functions is not None
    number, take = functions
    before = number()
    try:
        take(2)
        with one_meanwhile(), one_meanwhile():
            assert number() == 1
        assert number() == 2
    finally:
        take(before)
