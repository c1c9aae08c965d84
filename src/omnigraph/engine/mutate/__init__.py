"""Mutate: the statements of a mutation as one change."""
