"""Validate: constraints as functions on Arrow data that return findings."""
