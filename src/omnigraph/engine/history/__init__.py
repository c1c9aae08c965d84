"""History: what changed, when, by whom: the past of a graph, read from its commits."""
