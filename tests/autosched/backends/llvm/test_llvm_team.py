"""Threads that share the tiles of a grid."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest
import torch

from autosched.backends.llvm.team import Team

KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def every_tile_once(team: Team, tiles: int, threads: int) -> set[int]:
    """Run a kernel that counts how often each tile is done; the scratch memories that were used."""
    done, used, buffers, lock = np.zeros(tiles, np.int64), set[int](), set[int](), threading.Lock()

    def count(buffer: int, scratch: int, first: int, number: int) -> None:
        with lock:
            used.add(scratch)
            buffers.add(buffer)
            done[first : first + number] += 1

    kernel = KERNEL(count)
    address = ctypes.cast(kernel, ctypes.c_void_p).value
    assert address is not None
    team.run(address, tiles, [1234], [100 + i for i in range(threads)])
    assert buffers == {1234}
    assert done.tolist() == [1] * tiles
    return used


@pytest.mark.parametrize("openmp", [True, False])
@pytest.mark.parametrize("tiles", [1, 2, 3, 16, 1001])
def test_every_tile_is_done_once_and_no_two_threads_share_scratch_memory(openmp: bool, tiles: int) -> None:
    team = Team(3, 1, openmp)
    for _ in range(5):
        used = every_tile_once(team, tiles, 3)
        assert used <= {100, 101, 102}
        assert len(used) <= tiles
    team.dismiss()


@pytest.mark.parametrize("openmp", [True, False])
def test_a_team_works_for_whichever_thread_calls_it(openmp: bool) -> None:
    team, found = Team(2, 1, openmp), list[set[int]]()
    for _ in range(3):
        caller = threading.Thread(target=lambda: found.append(every_tile_once(team, 64, 2)))
        caller.start()
        caller.join()
    assert len(found) == 3
    team.dismiss()


def test_threads_of_pytorch_still_work_after_a_team_used_them() -> None:
    x, team = torch.randn(1 << 20), Team(2, 1)
    expected = float(x.sum())
    for _ in range(3):
        every_tile_once(team, 8, 2)
        assert float(x.sum()) == pytest.approx(expected, rel=1e-5)
    team.dismiss()
