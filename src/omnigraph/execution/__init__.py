"""Execution: reads. Plans, operators, topology and search over one pinned snapshot."""
