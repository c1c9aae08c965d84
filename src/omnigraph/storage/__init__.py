"""Storage: a graph as Lance files: manifest, tables, schema objects, publishing, cost.

`GraphStore` (store.py) is what the layers above hold; it puts the other modules together.
"""
