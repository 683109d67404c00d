"""What pointwise sketches share: which axes their tiles have.

Knows no sketch.
"""
