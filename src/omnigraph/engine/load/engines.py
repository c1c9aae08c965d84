"""Engines: who carries a load out, found by name.

Room    engine.load. The engine in this process is always there. Others are plug-ins that an installed package
        announces under the entry point `omnigraph.engines`; Spark is one, so nothing here imports it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal, Protocol

from omnigraph.base.errors import InvalidRequest
from omnigraph.engine.receipt import Receipt

Engine = Literal["auto", "local", "spark"]
GROUP = "omnigraph.engines"
SPARK_ABOVE = 8 << 30  # bytes of files; below, one process is done before a cluster would have started


class LoadEngine(Protocol):
    """Loads data into an open graph; takes what `graph.load` takes."""

    def __call__(self, graph: Any, data: Any, **options: Any) -> Receipt:
        """Load it as one commit."""
        ...


def load_engine(name: str) -> LoadEngine | None:
    """Return the engine of a name; None is the one in this process."""
    if name == "local":
        return None
    found = _plugins(name)
    if not found:
        known = ", ".join(sorted({"auto", "local", *(point.name for point in _plugins())}))
        raise InvalidRequest(
            f"there is no engine {name!r}",
            remedy="Install it with: pip install 'omnigraph[spark]'" if name == "spark" else f"Use {known}",
        )
    engine: LoadEngine = found[0].load()
    return engine


def chosen_engine(data: Any) -> Engine:
    """Return the engine that suits an input: this process, unless the files are many gigabytes."""
    sources = data.values() if isinstance(data, Mapping) else [data]
    size = sum(_size(path) for source in sources for path in _paths(source))
    return "spark" if size >= SPARK_ABOVE and _plugins("spark") else "local"


def _plugins(name: str | None = None) -> list[EntryPoint]:
    return [point for point in entry_points(group=GROUP) if name is None or point.name == name]


def _paths(source: Any) -> list[Path]:
    """Return the files or folders that a source names; what records hold is never a path."""
    listed = source if isinstance(source, list | tuple) else [source]
    if not listed or not isinstance(listed[0], str | os.PathLike):
        return []
    return [Path(one) for one in listed if isinstance(one, str | os.PathLike) and os.fspath(one)]


def _size(path: Path) -> int:
    try:
        if path.is_dir():
            return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
        return path.stat().st_size
    except (OSError, ValueError):
        return 0  # whoever reads it says what is wrong
