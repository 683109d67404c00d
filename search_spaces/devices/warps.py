"""How the threads of a GPU stand together, and what one of them can have."""

# Threads.
WARP = 32
# Warps that issue one dot together, and the rows of that dot (PTX ISA, wgmma).
WARP_GROUP = 4
GROUP_ROWS = 64
# Threads of one program, CUDA programming guide, table "technical specifications".
MAX_THREADS = 1024
# 32-bit registers one thread can have.
MAX_REGISTERS = 255

# Registers that a thread keeps that does nothing but bring operands, and the most that one needs that computes; all
# warps of a group have the same number, a multiple of 8 (PTX ISA, setmaxnreg).
PRODUCER_REGISTERS = 24
_MOST_REGISTERS = 240
_REGISTER_STEP = 8
_REGISTERS = 64 * 1024


def first_registers(groups: int, cap: int = 0) -> int:
    """Registers that every thread has at first, of several warp groups that compute and one that brings operands: at
    most `cap` (0: as many as there are)."""
    shared = _REGISTERS // ((groups + 1) * WARP_GROUP * WARP)
    return min(cap or shared, shared, MAX_REGISTERS) // _REGISTER_STEP * _REGISTER_STEP


def group_registers(groups: int, cap: int = 0) -> int:
    """Registers of a thread of one of several warp groups that compute, beside one that brings operands: what that
    leaves of all."""
    left = ((groups + 1) * first_registers(groups, cap) - PRODUCER_REGISTERS) // groups
    return min(left // _REGISTER_STEP * _REGISTER_STEP, _MOST_REGISTERS)
