"""Chains of products on a GPU: the tiles of a program, where masks let it do less, its knobs and their rules.

Imports the structure, `programs`, `schedules`, and what rows and dots share; knows no backend.
"""
