"""Searches for the kernels of graphs: all segments together, or in a process of its own while a model is used."""
