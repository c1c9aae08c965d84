"""Catalog: the resolved schema: stable ids, Arrow types, constraints, migrations. Pure values, no I/O.

resolve.py    checked schema + accepted catalog -> desired catalog
catalog.py    the catalog: lookups, bytes, hashes; its parts are in model.py, constraints.py, types.py
plan.py       accepted + desired catalog -> steps (steps.py)
keys.py       stored values -> canonical text and node ids
lint.py       text -> findings; diagram.py: catalog -> picture
"""
