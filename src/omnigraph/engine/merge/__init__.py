"""Merge: two lines of work folded into one commit."""
