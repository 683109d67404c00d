"""Plans: launches and calls of PyTorch laid out once, with memory shared by lifetimes, and run many times.

Imports `kernels` and what that stands on; knows nothing of traced functions, values, models, or where steps came from.
"""

from autosched.planning.captured_call import CapturedCall
from autosched.planning.plan import Plan
from autosched.planning.steps import Call, Launch, Layout, Slot, Step

__all__ = ["Call", "CapturedCall", "Launch", "Layout", "Plan", "Slot", "Step"]
