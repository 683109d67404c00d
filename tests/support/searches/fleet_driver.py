"""A search on the made-up H200s of a cluster, as a program: python fleet_driver.py ADDRESS LOG TRIALS.

It gives up a silent head of the cluster after some seconds, and ends with the reason.
"""

from __future__ import annotations

import sys

import autosched
import made_up_node
from autosched.measuring.fleet import cluster
from autosched.measuring.fleet.fleet import Fleet


def main(address: str, log: str, trials: int) -> None:
    cluster._HEAD_S = 2.0
    op = autosched.ops.matmul(1024, 1024, 1024, dtype="float16")
    given = {"strategy": "random", "cost_model": "random", "log": log, "history": ()}
    try:
        autosched.tune(op, "h200", trials, measurer=Fleet(address, made_up_node.LOCATION), **given)
    except autosched.TargetUnavailableError as error:
        # As commands do. Ray's own hook for uncaught exceptions waits for the head.
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
