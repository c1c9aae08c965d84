"""The routes, one file for each group of the wire table."""
