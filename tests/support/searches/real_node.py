"""The node of a fleet that measures on the CPU of this machine, among nodes with made-up cards."""

from __future__ import annotations

import os

import made_up_node
from autosched.measuring.fleet.node import Node

LOCATION = "real_node:real_node"


def real_node() -> Node:
    """The node as it is if it is told to measure on its CPU."""
    if os.environ.get(made_up_node.DEVICES) != "real":
        return made_up_node.MadeUpNode()
    # PyTorch comes with it, which the others do without.
    from autosched.measuring.fleet.this_node import ThisNode

    return ThisNode()
