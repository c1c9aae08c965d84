"""Catalog: the resolved schema: stable ids, Arrow types, constraints, migrations. Pure values, no I/O.

resolve.py    checked schema + accepted catalog -> desired catalog
catalog.py    the catalog: lookups, bytes, hashes; its parts are in model.py and types.py
plan.py       accepted + desired catalog -> steps (steps.py)
identity.py   where ids come from; types under other ids
past.py       a state under the names of today; types in which two states compare
keys.py       stored values -> canonical text and node ids
lint.py       text -> findings; diagram.py: catalog -> picture
"""
