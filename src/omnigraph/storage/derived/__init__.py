"""Derived: what is worked out from data files once and kept beside them. Never an authority."""
