"""The picture of a benchmark: its roofline, with a label at every point. Needs matplotlib.

Knows nothing of tuning or timing.
"""
