"""Measurement on the machines of a Ray cluster: cards that measure, and nodes without one that compile for them.

Imports what `measuring` may, and of that room the local measurer. Ray is imported by `cluster` alone; nothing here
knows of search. What nodes run (`card_server`, `compile_server`, `node`) is imported there by name.
"""
