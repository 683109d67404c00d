"""Limits of the times in records."""

# Latencies are between these, so that the ratio of two, and its square, are finite and not 0.
SHORTEST_S, LONGEST_S = 1e-15, 1e15
# The last second that dates can be written for, that of the year 9999.
LATEST_S = 253402300799.0
