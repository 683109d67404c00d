"""Marks of tests that need a device, or a compiler for one, which this machine may lack."""

from __future__ import annotations

import pytest
import torch

from autosched.backends.cuda import nvrtc

# The reason names the command that installs it.
needs_nvrtc = pytest.mark.skipif(nvrtc.why_unavailable(90) is not None, reason=f"{nvrtc.why_unavailable(90)}")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="runs kernels on a GPU, and none is here")
# Dots of warp groups (`wgmma`) run on no other GPU.
needs_hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="runs kernels of compute capability 9.0 alone, and no such GPU is here",
)
