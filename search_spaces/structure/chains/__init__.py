"""Chains (back-to-back GEMMs): products, folds of their results, and products of those, in one loop.

Imports the rest of `structure`; knows nothing of the tiling of a chain.
"""
