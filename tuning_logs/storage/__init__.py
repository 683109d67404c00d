"""The file of a log: lines that are appended under a lock, and read as a whole, through an index, or unpacked.

Imports records, their ranking and selection; `tuning_logs.log` chooses among the ways of reading.
"""
