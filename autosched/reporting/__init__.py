"""Reports of tuning logs: an HTML file, and a search under way in a terminal.

Imports everything but the commands, which alone import it.
"""
