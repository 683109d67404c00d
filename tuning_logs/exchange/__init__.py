"""Recorded tuning tables, of other tuners and of our own logs: read, written, and fitted to a search space.

Knows files and formats; nothing of how a space is searched.
"""
