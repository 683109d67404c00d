"""Parts of Triton source that its printers share: expressions, indices, grids and folds as text.

Knows nothing of compiling.
"""
