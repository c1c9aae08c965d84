"""Analytics: what the shape of a graph says of its nodes, computed by Spark on one pinned snapshot."""

from omnigraph.pipeline.analytics.algorithms import (
    connected_components,
    label_propagation,
    pagerank,
    triangle_count,
)
from omnigraph.pipeline.analytics.network import write_back

__all__ = ["connected_components", "label_propagation", "pagerank", "triangle_count", "write_back"]
