"""Check of a stand-alone file before its first call: its kernels on random inputs, between guard bands."""

from __future__ import annotations

from collections.abc import Iterable

from autosched.standalone.launchers import FIRST_CALL

_GUARDS = '''\
# Bytes before and after every tensor while the kernels are checked.
_BAND = 2**16


class _Guards:
    """Allocates like torch.empty_strided, between two guard bands, all filled with bits that no kernel computes."""

    def __init__(self):
        self.memory = []
        self.bands = []

    def __call__(self, shape, strides, dtype, device):
        size = (1 + sum((size - 1) * stride for size, stride in zip(shape, strides))) * dtype.itemsize
        # NaN in every floating-point type.
        fill = 0xFF if dtype.is_floating_point else 0x5A
        memory = torch.full((size + 2 * _BAND,), fill, dtype=torch.uint8, device=device)
        self.memory.append(memory)
        self.bands += [(memory[:_BAND], fill), (memory[-_BAND:], fill)]
        return memory[_BAND:-_BAND].view(dtype).as_strided(shape, strides)

    def damaged(self):
        """True if a band was written to."""
        return any(bool((band != fill).any()) for band, fill in self.bands)'''

_WORST = '''\
def _worst(device):
    """The kernels' largest error on random inputs, as a fraction of the tolerance.

    Infinite if they leave a part of a result unwritten, or write to their inputs or outside any tensor.
    """
    guards = _Guards()
    inputs = _inputs(torch.Generator(device).manual_seed(0), guards)
    before = [memory.clone() for memory in guards.memory]
    got = {launched}(*inputs, guards)
    if guards.damaged() or not all(map(torch.equal, guards.memory, before)):
        return math.inf
{compared}
    return max(_error(*tensors) for tensors in zip(got, exact, usual))'''

_CHECKED = '''\
@functools.cache
def {checked}(device):
    """Raise RuntimeError unless the kernels are right on this device: checked once, before the first call there."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("{function} checks its kernels at its first call; expected one before a graph is captured")
    worst = _worst(device)
    if worst > 1:
        raise RuntimeError(
            f"{function} is wrong here: on random inputs its largest error is {{worst:.2g}} of what is allowed "
            "(inf: something was left unwritten, or written elsewhere); nothing was computed, tune it again"
        )'''


def first_call_text(function: str, launched: str, compared: Iterable[str]) -> str:
    """The function that is called before all else, and its helpers.

    `launched` takes the inputs and an allocator. `compared`: lines that define `exact` and `usual`, and make sequences
    of all results.
    """
    lines = "\n".join(f"    {line}" for line in compared)
    worst = _WORST.format(launched=launched, compared=lines)
    return "\n\n\n".join([_GUARDS, worst, _CHECKED.format(checked=FIRST_CALL, function=function)])
