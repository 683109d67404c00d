"""Choices among makers and among kernels, by latencies in their place: rivals, libraries, cuts, early launches."""
