"""Base: errors, ids and clock. No I/O, no imports from the rest of the package."""
