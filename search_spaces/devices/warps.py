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
