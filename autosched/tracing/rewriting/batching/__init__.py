"""Equal terms as one term with a dimension more."""
