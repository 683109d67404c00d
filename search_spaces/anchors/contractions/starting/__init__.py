"""Starting points of contractions on a GPU.

Imports the decisions and the tiles of contractions; makes no program.
"""
