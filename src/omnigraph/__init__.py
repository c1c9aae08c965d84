"""OmniGraph: a typed, versioned property-graph database kept as open Lance files.

The public names are re-exported here; everything else is internal.
"""

from importlib.metadata import PackageNotFoundError, version

from omnigraph.base.errors import GraphError, Kind
from omnigraph.engine.graph import Graph, connect, init

try:
    __version__ = version("omnigraph")
except PackageNotFoundError:  # running from a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["Graph", "GraphError", "Kind", "__version__", "connect", "init"]
