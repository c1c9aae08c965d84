"""OmniGraph: a typed, versioned property-graph database kept as open Lance files.

The public names are re-exported here; everything else is internal. They are imported when they are first
used: the command line shows its help and its version without loading the engine and Lance.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph.base.errors import GraphError, Kind
    from omnigraph.engine.graph import Graph, connect, init

    __version__: str

_HOMES = {
    "Graph": "omnigraph.engine.graph",
    "GraphError": "omnigraph.base.errors",
    "Kind": "omnigraph.base.errors",
    "connect": "omnigraph.engine.graph",
    "init": "omnigraph.engine.graph",
}

__all__ = ["Graph", "GraphError", "Kind", "__version__", "connect", "init"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("omnigraph")
    except PackageNotFoundError:  # running from a source tree that was never installed
        return "0+unknown"
