"""`autosched bench`: a suite tuned, then measured against everything else in one run, with a table and a picture.

Imports everything but `cli` and `standalone`; nothing but `cli` imports it.
"""
