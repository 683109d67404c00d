"""Chains on a CPU, whose intermediate points stay in a core's cache.

Imports the pieces that chains of all devices share; knows nothing of GPUs.
"""
