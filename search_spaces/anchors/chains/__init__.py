"""Chains of products (back-to-back GEMMs): tiles of a program, main loops under masks, decisions and their rules.

Imports the structure, `programs`, `schedules`, and the common parts of rows and dots; knows no backend.
"""
