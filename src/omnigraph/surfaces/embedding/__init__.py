"""Providers of vectors: what turns texts into vectors over a network, or with a model on this machine."""
