"""Sums of products of tensors (einsums, and sums of these): read from values, put in the cheapest order, and built."""
