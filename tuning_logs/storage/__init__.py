"""The file of a log: lines that are appended under a lock, and read as a whole, through an index, or unpacked.

Imports records, how they are ranked and which are alike; `tuning_logs.log` chooses among the ways of reading.
"""
