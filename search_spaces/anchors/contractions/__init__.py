"""What sketches of contractions share: tiles, knobs, copies of operands, split reductions.

Knows no sketch.
"""
