"""`autosched simulate`: repeated searches of recorded tables, and their scores.

Runs nothing on a device. Imports strategies and recorded tables; knows nothing of kernels.
"""
