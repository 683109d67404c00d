"""What sketches of row reductions share: walks over columns, and folds.

Knows no sketch.
"""
