"""The NumPy interpreter of tile programs: the oracle of the tests.

Imports programs; knows no backend.
"""
