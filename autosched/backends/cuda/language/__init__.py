"""Elements of CUDA C++ text: names and blocks, types, operators, offsets and masks, the grid, and loops.

Knows nothing of layouts of tiles over threads.
"""
