"""Check: parsed queries against a catalog. compile.py is the entry; every other file checks one part."""
