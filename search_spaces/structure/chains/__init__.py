"""Chains: products, folds of what they make, and products of those, in one walk: what they are, where they are found.

Imports the rest of `structure`; knows nothing of how a chain is tiled.
"""
