"""The node of a fleet that measures on the CPU of this machine, among nodes with made-up cards."""

from __future__ import annotations

import os

import made_up_node
from autosched.measuring.fleet.this_node import ThisNode

LOCATION = "real_node:RealNode"


class RealNode(ThisNode):
    """Measures on its CPU if it is told to."""

    def devices(self) -> list[str]:
        return super().devices() if os.environ.get(made_up_node.DEVICES) == "real" else []
