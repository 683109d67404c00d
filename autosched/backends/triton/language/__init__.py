"""Common parts of Triton's printers: expressions, indices, grids and folds as text.

Knows nothing of compiling.
"""
