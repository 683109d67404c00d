"""`autosched simulate`: searches of recorded tables, replayed as often as one likes, and how well they did.

Runs nothing on a device. Imports strategies, the loop of all searches and recorded tables; knows nothing of kernels.
"""
