"""Query: reads on one snapshot."""
