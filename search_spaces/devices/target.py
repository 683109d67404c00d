"""Targets: the devices that kernels are tuned for, described by the figures that bound a schedule."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from search_spaces.devices.architectures import architecture
from search_spaces.devices.features import Features, Others, apart, loaded
from search_spaces.devices.spelling import means
from search_spaces.devices.wave_groups import WaveGroups
from search_spaces.errors import DataError, unknown_name
from search_spaces.parsed_json import members, number, text, whole
from search_spaces.plain_text import visible
from search_spaces.workloads.dtypes import FLOAT8

# Fields of older records, by their former names.
_RENAMED = {"units": "num_sms", "registers_per_unit": "registers_per_sm"}
# Fields that are 0 for a CPU.
_MAY_BE_NONE = ("capability", "shared_memory_bytes")
# A thousand times the largest devices: counts, bytes of a memory, and rates per second. Beyond that, figures computed
# from them would be endless or overflow.
_MOST_OF_COUNTS, _MOST_BYTES, _HIGHEST_RATE = 2**20, 2**40, 1e20
# Float32 elements of vectors: those of 128 to 2048 bits, and 1 for a GPU, which has none.
_LANES = (1, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Target:
    """A device. Sizes in bytes, rates per second for the whole device.

    `num_sms` are the streaming multiprocessors of a GPU and threads of a CPU; `threads` is the most that one program of
    a GPU may have, and the number that a kernel uses on a CPU; `registers_per_sm` counts 32-bit registers of a
    multiprocessor, and vector registers of a CPU; `capability` is 90 for compute capability 9.0 and 0 for a CPU;
    `l2_bytes` is the GPU's L2 and one core's L2 of a CPU; `lanes` is the float32 elements of a CPU vector;
    `matrix_flops` is the dense rate of 16-bit dots with float32 accumulation, `tf32_flops` that of tf32 dots. `own`:
    the device's features, where they are not those of its compute capability; `others`: fields of a later version,
    which are kept.
    """

    name: str
    device: str
    kind: Literal["gpu", "cpu"]
    capability: int
    num_sms: int
    threads: int
    shared_memory_bytes: int
    registers_per_sm: int
    l1_bytes: int
    l2_bytes: int
    memory_bytes_per_s: float
    fp32_flops: float
    tf32_flops: float
    matrix_flops: float
    lanes: int = 1
    own: Features | None = None
    others: Others = dataclasses.field(default=(), compare=False, repr=False)

    @cached_property
    def features(self) -> Features:
        """Abilities of the device besides its sizes and rates."""
        return self.own if self.own is not None else _features(self.kind, self.capability)

    @property
    def wave(self) -> int:
        """Threads that run together (a warp)."""
        return self.features.wave

    @property
    def most_waves(self) -> int:
        """Waves of one program."""
        return self.threads // self.wave

    @cached_property
    def wave_groups(self) -> WaveGroups | None:
        """Groups of waves that multiply from shared memory to their registers; None without such instructions."""
        return _wave_groups(self.features, self.registers_per_sm)

    def flops_per_s(self, dtype: str, precision: str = "ieee") -> float:
        """The peak rate of dots with operands of this element type."""
        element = "tf32" if precision == "tf32" else dtype
        if not self.features.multiplying(element):
            return self.fp32_flops
        if element == "tf32":
            return self.tf32_flops
        # Of 8 bits twice as many, on every device that has them; int8 on cards for the desktop at twice that again.
        return self.matrix_flops * (2 if element in (*FLOAT8, "int8") else 1)

    @property
    def key(self) -> str:
        """Key of its records: the device itself, and on a CPU the number of threads that kernels use.

        A GPU may be given code for older ones. Then, and where its name does not reveal its own compute capability, the
        key contains the capability, if it has one: those are other kernels.
        """
        if self.kind == "cpu":
            return f"{self.device} x{self.threads}"
        return self.device if self._has_own_code else f"{self.device}, sm_{self.capability}"

    @property
    def label(self) -> str:
        """For people: the device, the code that it is given if that is not its own, and threads on a CPU."""
        if self.kind == "cpu":
            return visible(f"{self.device}, {self.threads} thread{'s' * (self.threads != 1)}")
        own = self._has_own_code or _own_capability(self.device) is None
        return visible(self.device if own else f"{self.device} as sm_{self.capability}")

    @property
    def _has_own_code(self) -> bool:
        return self.capability in (0, _own_capability(self.device))

    def to_json(self) -> dict[str, Any]:
        """The figures, and the features that differ from those of its compute capability."""
        beside = _features(self.kind, self.capability)
        own = self.own.to_json(beside) if self.own else {}
        features = {"features": own} if own else {}
        return {name: getattr(self, name) for name in _FIGURES} | features | loaded(self.others)

    @staticmethod
    def from_json(data: Any) -> Target:
        """The described device, known to this version or not. Unknown fields are kept.

        Raises:
            DataError: figures are missing, or no device has such.
        """
        told = {_RENAMED.get(name, name): value for name, value in members(data, "target").items()}
        members(told, "target", _FIGURES.keys() - {"lanes"})
        known, others = apart(told, {*_FIGURES, "features"})
        figures = {name: _figure(name, value, _FIGURES[name]) for name, value in known.items() if name in _FIGURES}
        target = Target(**figures, others=others)
        if "features" not in known:
            return target
        return dataclasses.replace(target, own=Features.from_json(known["features"], target.features))


# Fields of every device in a record, with the type of each.
_FIGURES = {f.name: str(f.type) for f in dataclasses.fields(Target) if f.name not in ("own", "others")}


@functools.cache
def _features(kind: str, capability: int) -> Features:
    return architecture(capability).features if kind == "gpu" else Features()


def _wave_groups(features: Features, registers: int) -> WaveGroups | None:
    found = tuple(i for i in features.matrix if i.waves > 1 and (i.operands, i.sums) == ("shared", "registers"))
    if not found or features.shares is None:
        return None
    return WaveGroups(features.wave, registers, features.registers_per_thread, found, features.shares)


def _figure(name: str, value: object, kind: str) -> Any:
    """A figure in the range of devices: others would break computations with them. Raises DataError."""
    what = f"target: {name}"
    if name == "kind" and value not in ("gpu", "cpu"):
        raise DataError(f'{what} {value!r}, expected "gpu" or "cpu"')
    if name == "lanes" and value not in _LANES:
        raise DataError(f"{what} {value!r}, expected one of {', '.join(map(str, _LANES))}")
    if name in ("name", "device", "kind"):
        return text(value, what)
    if kind == "float":
        return number(value, what, 1.0, _HIGHEST_RATE)
    return whole(value, what, int(name not in _MAY_BE_NONE), _MOST_BYTES if "bytes" in name else _MOST_OF_COUNTS)


def _gpu(
    name: str,
    device: str,
    capability: int,
    num_sms: int,
    shared_kib: int,
    l2_mib: float,
    tb_per_s: float,
    tflops: tuple[float, float, float],
) -> Target:
    fp32, tf32, matrix = (t * 1e12 for t in tflops)
    return Target(
        name=name,
        device=device,
        kind="gpu",
        capability=capability,
        num_sms=num_sms,
        threads=1024,
        shared_memory_bytes=shared_kib * 1024,
        registers_per_sm=65536,
        l1_bytes=shared_kib * 1024,
        l2_bytes=int(l2_mib * 2**20),
        memory_bytes_per_s=tb_per_s * 1e12,
        fp32_flops=fp32,
        tf32_flops=tf32,
        matrix_flops=matrix,
    )


# Dense rates and memory: NVIDIA's data sheets. Multiprocessors and L2: its architecture white papers (Volta, Turing,
# Ampere GA100 and GA102, Ada, Hopper, Blackwell). Shared memory that one block may use: CUDA programming guide, table
# of compute capabilities. 16-bit matrix rates are those with float32 accumulation, which cards for the desktop have at
# half the rate; those of Volta and Turing are of float16; the tf32 rate where there is none is that of float32. Devices
# have PyTorch's names, and the first of a family is the one that its bare name means. Cards that differ only in the
# size of their memory are listed apart, since records are filed by device.
GPUS: dict[str, Target] = {
    t.name: t
    for t in (
        _gpu("v100", "Tesla V100-SXM2-16GB", 70, 80, 96, 6, 0.9, (15.7, 15.7, 125.0)),
        _gpu("v100-32gb", "Tesla V100-SXM2-32GB", 70, 80, 96, 6, 0.9, (15.7, 15.7, 125.0)),
        _gpu("v100-pcie", "Tesla V100-PCIE-16GB", 70, 80, 96, 6, 0.9, (14.0, 14.0, 112.0)),
        _gpu("v100-pcie-32gb", "Tesla V100-PCIE-32GB", 70, 80, 96, 6, 0.9, (14.0, 14.0, 112.0)),
        _gpu("t4", "Tesla T4", 75, 40, 64, 4, 0.32, (8.1, 8.1, 65.0)),
        _gpu("rtx2080ti", "NVIDIA GeForce RTX 2080 Ti", 75, 68, 64, 5.5, 0.616, (13.4, 13.4, 53.8)),
        _gpu("a100", "NVIDIA A100-SXM4-80GB", 80, 108, 163, 40, 2.04, (19.5, 156.0, 312.0)),
        _gpu("a100-40gb", "NVIDIA A100-SXM4-40GB", 80, 108, 163, 40, 1.555, (19.5, 156.0, 312.0)),
        _gpu("a100-pcie", "NVIDIA A100 80GB PCIe", 80, 108, 163, 40, 1.935, (19.5, 156.0, 312.0)),
        _gpu("a100-pcie-40gb", "NVIDIA A100-PCIE-40GB", 80, 108, 163, 40, 1.555, (19.5, 156.0, 312.0)),
        _gpu("a10", "NVIDIA A10", 86, 72, 99, 6, 0.6, (31.2, 62.5, 125.0)),
        _gpu("rtx3090", "NVIDIA GeForce RTX 3090", 86, 82, 99, 6, 0.936, (35.6, 35.6, 71.0)),
        _gpu("l4", "NVIDIA L4", 89, 58, 99, 48, 0.3, (30.3, 60.0, 121.0)),
        _gpu("l40s", "NVIDIA L40S", 89, 142, 99, 96, 0.864, (91.6, 183.0, 362.0)),
        _gpu("rtx4090", "NVIDIA GeForce RTX 4090", 89, 128, 99, 72, 1.008, (82.6, 82.6, 165.2)),
        _gpu("h100", "NVIDIA H100 80GB HBM3", 90, 132, 227, 50, 3.35, (66.9, 494.0, 989.0)),
        _gpu("h100-pcie", "NVIDIA H100 PCIe", 90, 114, 227, 50, 2.0, (51.2, 378.0, 756.0)),
        _gpu("h200", "NVIDIA H200", 90, 132, 227, 60, 4.8, (66.9, 494.0, 989.0)),
        _gpu("b200", "NVIDIA B200", 100, 148, 227, 126, 8.0, (80.0, 1100.0, 2250.0)),
        _gpu("rtx5090", "NVIDIA GeForce RTX 5090", 120, 170, 99, 96, 1.792, (104.8, 104.8, 209.5)),
    )
}


@functools.cache
def _own_capability(device: str) -> int | None:
    """Compute capability of a GPU that is listed, or whose name is that of a family; None of others."""
    listed = (gpu.capability for gpu in GPUS.values() if gpu.device == device)
    alike = (gpu.capability for gpu in GPUS.values() if means(family_of(gpu.name), device, family_of(gpu.name)))
    return next(itertools.chain(listed, alike), None)


# Further names of some, besides their own and PyTorch's.
_ALSO = {"h100": "SXM5", "h200": "SXM5 141GB", "t4": "16GB", "h100-pcie": "80GB"}


def cpu(device: str, lanes: int, threads: int, l1_bytes: int, l2_bytes: int, fp32_flops: float) -> Target:
    """A CPU on which kernels run with `threads` threads."""
    return Target(
        name="cpu",
        device=device,
        kind="cpu",
        capability=0,
        num_sms=threads,
        threads=threads,
        shared_memory_bytes=0,
        registers_per_sm=32 if lanes >= 16 else 16,
        l1_bytes=l1_bytes,
        l2_bytes=l2_bytes,
        memory_bytes_per_s=12e9,
        fp32_flops=fp32_flops,
        tf32_flops=fp32_flops,
        matrix_flops=fp32_flops,
        lanes=lanes,
    )


def target_named(name: str) -> Target:
    """The GPU called `name`, in a datasheet's spelling: "v100", or "V-100 32GB", or "Tesla V100-SXM2-32GB".

    If several go by the name, the first that is listed. The CPU is described by the machine that it is on, not here.

    Raises:
        InputError: no such target.
    """
    if isinstance(name, str):
        exact = GPUS.get(name.lower())
        called = (exact,) if exact else (gpu for gpu in GPUS.values() if is_called(name, gpu))
        for gpu in called:
            return gpu
    raise unknown_name("target", name, [*GPUS, "cpu", "cuda"])


def is_called(name: str, gpu: Target) -> bool:
    """True if a listed GPU goes by that name."""
    return means(name, f"{gpu.device} {gpu.name} {_ALSO.get(gpu.name, '')}", family_of(gpu.name))


def family_of(name: str) -> str:
    """The first part of a name, common to all variants: that of "v100-pcie" is "v100"."""
    return name.partition("-")[0]
