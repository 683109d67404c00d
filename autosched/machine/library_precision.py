"""The precision of PyTorch's float32 products and convolutions on a GPU: as set, and set for a while.

There is a setting for each. By default cuDNN's convolutions cut operands to tf32, and cuBLAS's products do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from search_spaces import Target

# The first compute capability with tf32. On earlier GPUs the libraries ignore the settings.
_FIRST_WITH_TF32 = (8, 0)
# Operations of the backend "cuda" with a setting of their own; the older switch of cuDNN's is for its last two.
_SET = ("matmul", "conv", "rnn")


@dataclass(frozen=True)
class LibraryPrecision:
    """The precision of products and of convolutions, as workloads have it: of float32 "tf32" or "ieee".

    "" of convolutions: there are none.
    """

    products: str = "ieee"
    convolutions: str = "ieee"

    @staticmethod
    def of(precision: str) -> LibraryPrecision:
        """Products and convolutions as precise as a workload."""
        return LibraryPrecision(precision, precision)

    @staticmethod
    def now() -> LibraryPrecision:
        """The settings."""
        return LibraryPrecision(*("tf32" if _is_tf32(op) else "ieee" for op in ("matmul", "conv")))

    def on(self, device: torch.device) -> LibraryPrecision:
        """Precision for tensors on a device. A GPU that is not here has tf32."""
        return self._where(device.type, device.type == "cpu" or _has_tf32(device))

    def on_target(self, target: Target) -> LibraryPrecision:
        """Precision of kernels for a target."""
        return self._where(target.kind, bool(target.features.multiplying("tf32")))

    def _where(self, kind: str, has_tf32: bool) -> LibraryPrecision:
        """A CPU's library does not cut operands of convolutions."""
        if kind == "cpu":
            return replace(self, convolutions=self.convolutions and "ieee")
        return self if has_tf32 else LibraryPrecision("ieee", self.convolutions and "ieee")

    @contextmanager
    def applied(self) -> Iterator[None]:
        """A context with these settings."""
        names = [op for op in _SET if _is_tf32(op)]
        matmul = _overall_matmul_precision()
        # The older switches set the newer settings as well; PyTorch's compiler raises where they differ. PyTorch's
        # property of cuDNN's cannot be set once its own test helpers are imported.
        torch.set_float32_matmul_precision("high" if self.products == "tf32" else "highest")
        torch._C._set_cudnn_allow_tf32(self.convolutions == "tf32")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(matmul)
            torch._C._set_cudnn_allow_tf32("conv" in names)
            for op in _SET:
                if _is_tf32(op) != (op in names):
                    torch._C._set_fp32_precision_setter("cuda", op, "tf32" if op in names else "ieee")

    def __str__(self) -> str:
        """For tables: `tf32`, or `ieee, convolutions tf32`."""
        apart = self.convolutions not in ("", self.products)
        return self.products + (f", convolutions {self.convolutions}" if apart else "")


def _is_tf32(operation: str) -> bool:
    return torch._C._get_fp32_precision_getter("cuda", operation) == "tf32"


def _has_tf32(device: torch.device) -> bool:
    """True if the GPU has tf32, or is not here: a tensor without data may be of any."""
    here = device.type == "cuda" and torch.cuda.is_available()
    return not here or torch.cuda.get_device_capability(device) >= _FIRST_WITH_TF32


def _overall_matmul_precision() -> str:
    """PyTorch's precision of products on all devices; the nearest one where those of devices differ."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "high" if _is_tf32("matmul") else "highest"
