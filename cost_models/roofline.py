"""Analytic latencies: a bound at nominal rates, and an estimate for one tile program.

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 52(4), 2009; wave quantisation as in NVIDIA's "Matrix multiplication background", section 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cost_models.program_counts import KernelCounts, count
from cost_models.reuse import Nest
from search_spaces import Target, TileProgram, Workload
from search_spaces.programs.tile_program import Kernel
from search_spaces.schedules.limits import UNLIMITED, Limits, Resources
from search_spaces.structure.multiplied import multiplied
from search_spaces.structure.pairs_in_segments import needed_parts

# Seconds to launch one kernel: about 3 µs back to back on a GPU; a function call handed to waiting threads on a CPU.
GPU_LAUNCH_S = 3e-6
CPU_LAUNCH_S = 1e-6
# The L2 cache of a GPU delivers about this many times the bandwidth of its memory.
_L2_SPEEDUP = 2.5
# Bytes per cycle and core from L2 over those from memory, on a server CPU.
_CPU_L2_SPEEDUP = 4.0
# Tensor cores reach their peak from tiles of 128 x 128 on; smaller ones starve on operand bandwidth.
_FULL_TILE = 128.0
# Resident threads and programs of a streaming multiprocessor (CUDA programming guide, compute capabilities).
_MOST_THREADS = 2048
_MOST_PROGRAMS = 32
# Occupancy, in warps per streaming multiprocessor, above which memory latency is hidden.
_ENOUGH_WARPS = 8
# Fused multiply-adds a core keeps in flight: 2 ports times 4 cycles.
_ENOUGH_ACCUMULATORS = 8
# Steps of a reduction that loading and storing its accumulators takes.
_EDGE_STEPS = 4
# Share of the parts that do not overlap: latencies are between the longest part and the sum.
_NOT_OVERLAPPED = 0.25


def bound_s(workload: Workload, target: Target) -> float:
    """Seconds at nominal rates: all operations at the peak, or each byte from or to memory once, whichever is longer.

    A lower bound for kernels whose operands come from memory; operands in a cache can beat it. Operations of dots run
    at the rate of their operands' dtype, all others at the float32 rate. Segments count as if they had equal lengths.
    """
    operands = multiplied(workload)
    multiplying = [s for s in workload.stages if s.name in operands]
    parts = needed_parts(workload)
    dots = sum(
        parts[s.name] * s.dot_flops / target.flops_per_s(operands[s.name], workload.precision) for s in multiplying
    )
    # Recomputing an operand of a dot is the schedule's choice: it counts for nothing here.
    plain = sum(parts[s.name] * s.flops for s in workload.stages if s.name not in operands)
    rest = plain / target.fp32_flops
    return max(dots, rest, workload.min_bytes / target.memory_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The breakdown of a kernel's time, in seconds; bytes are those of device memory and of the cache before it."""

    dot_s: float
    map_s: float
    memory_s: float
    cache_s: float
    launch_s: float
    memory_bytes: float
    cache_bytes: float
    resident: int  # occupancy: programs on one unit at a time
    tail: float  # useful part of the waves: 1 when the last wave is full
    need: Resources | None  # of one program, on a GPU

    @property
    def latency_s(self) -> float:
        parts = (self.dot_s, self.map_s, self.memory_s, self.cache_s)
        longest = max(parts)
        return longest + _NOT_OVERLAPPED * (sum(parts) - longest) + self.launch_s


def latency_s(program: TileProgram, target: Target, limits: Limits = UNLIMITED) -> float:
    """The estimated latency of a tile program: kernels run one after the other.

    `limits` are those of the backend that makes them: occupancy follows from their resources.
    """
    return sum(estimate(Nest(counts), target, limits).latency_s for counts in count(program))


def estimate(nest: Nest, target: Target, limits: Limits) -> Estimate:
    """The breakdown of one kernel's time."""
    if target.kind == "cpu":
        return _on_cpu(nest, target)
    return _on_gpu(nest, target, limits.needs(nest.counts.program, nest.counts.kernel, target))


def _on_gpu(nest: Nest, target: Target, need: Resources | None) -> Estimate:
    counts = nest.counts
    kernel = counts.kernel
    resident = _resident(kernel, target, need)
    tiles = counts.grid_tiles
    slots = target.num_sms * resident
    tail = tiles / (math.ceil(tiles / slots) * slots)
    # Wave quantisation: a unit with one program more than the others ends last.
    busy = tiles / (math.ceil(tiles / target.num_sms) * target.num_sms)
    warps = min(resident, math.ceil(tiles / target.num_sms)) * kernel.launch.num_warps
    hidden = min(1.0, (warps / _ENOUGH_WARPS) ** 0.5)
    memory = nest.device_memory_bytes(slots, target.l2_bytes)
    cache = tiles * sum(t.bytes_per_program / _coalescing(t.run_bytes, 32) for t in nest.reads)
    fill = min(1.0, tiles * kernel.launch.num_warps / (4.0 * target.num_sms))
    return Estimate(
        dot_s=_dot_s(counts, target) * tiles / (busy * hidden),
        map_s=tiles * counts.issued / (target.fp32_flops * busy),
        memory_s=memory / (target.memory_bytes_per_s * fill),
        cache_s=cache / (_L2_SPEEDUP * target.memory_bytes_per_s * busy),
        launch_s=GPU_LAUNCH_S,
        memory_bytes=memory,
        cache_bytes=cache,
        resident=resident,
        tail=tail,
        need=need,
    )


def _resident(kernel: Kernel, target: Target, need: Resources | None) -> int:
    """Occupancy: programs on a multiprocessor at a time; as many as threads allow where no more is known."""
    most = min(_MOST_THREADS // (kernel.launch.num_warps * target.wave), _MOST_PROGRAMS)
    if need is not None:
        by_shared = target.shared_memory_bytes // max(1, need.shared_memory_bytes)
        by_registers = target.registers_per_sm // max(1, need.registers_per_thread * need.threads)
        most = min(most, by_shared, by_registers)
    return max(1, most)


def _dot_s(counts: KernelCounts, target: Target) -> float:
    """Seconds that the dots of one program would take the whole device."""
    total = 0.0
    for d in counts.dots:
        rate = target.flops_per_s(d.a.dtype, d.statement.precision)
        starved = min(1.0, math.sqrt(d.m * d.n) / _FULL_TILE) * min(1.0, d.k / 32)
        total += 2.0 * d.m * d.n * d.k * d.times / (rate * max(starved, 0.01))
    return total


def _on_cpu(nest: Nest, target: Target) -> Estimate:
    counts = nest.counts
    tiles = counts.grid_tiles
    busy = tiles / (math.ceil(tiles / target.num_sms) * target.num_sms)
    memory = nest.bytes_through(target.l2_bytes)
    cache = nest.bytes_through(target.l1_bytes)
    width = min(1.0, max(1, counts.kernel.launch.lanes) / target.lanes)
    flops = sum(2.0 * d.m * d.n * d.k * d.times / microkernel_rate(d.m, d.n, d.k, target.lanes) for d in counts.dots)
    return Estimate(
        dot_s=tiles * flops / (target.fp32_flops * busy),
        map_s=tiles * (counts.map_flops + counts.reduced) / (target.fp32_flops * busy * width),
        memory_s=memory / (target.memory_bytes_per_s * min(1.0, busy)),
        cache_s=cache / (_CPU_L2_SPEEDUP * target.memory_bytes_per_s * busy),
        launch_s=CPU_LAUNCH_S,
        memory_bytes=memory,
        cache_bytes=cache,
        resident=1,
        tail=busy,
        need=None,
    )


def microkernel_rate(m: int, n: int, k: int, lanes: int) -> float:
    """The part of a core's peak that an (m, n) register tile reaches over k steps of the reduction.

    A step issues a multiply-add per accumulator, and loads a row of b and broadcasts a column of a at the same rate; it
    takes at least the latency of one multiply-add. Filling and emptying the accumulators adds a few steps.
    """
    vectors = math.ceil(n / lanes)
    accumulators = m * vectors
    step = max(accumulators, vectors + m, _ENOUGH_ACCUMULATORS)
    useful = n / (vectors * lanes)
    return useful * accumulators / step * k / (k + _EDGE_STEPS)


def _coalescing(run_bytes: int, sector: int) -> float:
    """The useful part of each memory sector."""
    return run_bytes / (math.ceil(run_bytes / sector) * sector)
