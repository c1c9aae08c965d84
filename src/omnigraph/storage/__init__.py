"""Storage: a graph as Lance files. Manifest, tables, schema objects, snapshot, publish, cost.

`GraphStore` (store.py) is the door; the rest are its rooms.
"""
