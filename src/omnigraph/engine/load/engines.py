"""Engines: who carries a load out, found by name.

Room    engine.load. The engine in this process is always there. Others are plug-ins that an installed package
        announces under the entry point `omnigraph.engines`; Spark is one, so nothing here imports it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
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
    size = sum(map(_size, _paths(data)))
    return "spark" if size >= SPARK_ABOVE and _plugins("spark") else "local"


def _plugins(name: str | None = None) -> list[EntryPoint]:
    return [point for point in entry_points(group=GROUP) if name is None or point.name == name]


def _paths(data: Any) -> Iterable[Path]:
    if isinstance(data, str | os.PathLike):
        return [Path(data)] if "\n" not in os.fspath(data) else []
    if isinstance(data, Mapping):
        return [path for one in data.values() for path in _paths(one)]
    return [path for one in data for path in _paths(one)] if isinstance(data, list | tuple) else []


def _size(path: Path) -> int:
    try:
        if path.is_dir():
            return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
        return path.stat().st_size
    except OSError:
        return 0  # whoever reads it says what is wrong
