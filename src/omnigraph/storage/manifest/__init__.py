"""Manifest: what a graph version is, the chains of versions, and the names that point at them."""
