"""What CUDA C++ is made of: names and blocks, types, operators, offsets and masks, the grid, and loops.

Knows nothing of which thread holds what of a tile.
"""
