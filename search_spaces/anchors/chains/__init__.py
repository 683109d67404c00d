"""Chains of products: the tiles of a program, iterations that masks rule out, its knobs and their rules.

Imports the structure, `programs`, `schedules`, and the common parts of rows and dots; knows no backend.
"""
