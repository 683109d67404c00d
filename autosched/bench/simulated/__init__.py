"""`autosched simulate`: searches of recorded tables, replayed as often as one likes, and how well they did.

Runs nothing on a device. Imports strategies and recorded tables; knows nothing of kernels.
"""
