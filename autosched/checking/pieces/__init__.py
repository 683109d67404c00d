"""References in pieces: workloads whose intermediate values would not fit in memory, cut along an axis.

May import workloads and PyTorch; knows nothing of how a piece is evaluated.
"""
