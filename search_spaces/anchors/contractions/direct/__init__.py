"""Direct contractions on a CPU: sums over taps and channels in one register tile, columns in panels (oneDNN, XNNPACK).

Imports decisions and programs; knows nothing of GPUs.
"""
