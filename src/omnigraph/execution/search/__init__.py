"""Search: full text and vectors, over the entities of one table version.

It knows nothing of queries: it takes tables, columns and values, and gives ordinals and scores.
"""
