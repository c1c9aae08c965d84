"""Algorithms: what the shape of a graph says of its nodes, computed by Spark on one pinned snapshot."""

from omnigraph.pipeline.algorithms.components import connected_components
from omnigraph.pipeline.algorithms.labels import label_propagation
from omnigraph.pipeline.algorithms.pagerank import pagerank
from omnigraph.pipeline.algorithms.triangles import triangle_count
from omnigraph.pipeline.algorithms.writeback import write_back

__all__ = ["connected_components", "label_propagation", "pagerank", "triangle_count", "write_back"]
