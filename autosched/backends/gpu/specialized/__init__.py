"""Warp-specialised kernels, decomposed for printers: loads of the producer, dots of the consumers, and the epilogue.

Knows nothing of the languages that kernels are printed in.
"""
