"""Surfaces: what a person or a program touches. The command line so far."""
