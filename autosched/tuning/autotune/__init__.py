"""A kernel of the user's own, tuned where it is called: `@autosched.autotune` in the place of `@triton.autotune`.

Runs in the user's process, on the arguments of the call. Triton itself is reached through the kernel that it made, and
imported by `trials.launching` alone, which is loaded when a kernel is first called.
"""

from autosched.tuning.autotune.decorator import autotune

__all__ = ["autotune"]
