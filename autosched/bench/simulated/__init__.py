"""`autosched simulate`: repeated searches of recorded tables, and their scores.

Runs nothing on a device. Imports strategies, the loop of all searches and recorded tables; knows nothing of kernels.
"""
