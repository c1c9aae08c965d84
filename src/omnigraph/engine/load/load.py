"""Load: `graph.load` in this process, and the choice of who carries a load out.

    input -> blocks -> spools -> draft -> **one commit**

The input is read once and checked whole. A load that fails names file and line, and publishes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal, Protocol

from omnigraph.base.cancellation import stoppable
from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.change import Catalogs
from omnigraph.engine.load.assembly import (
    REFUSED,
    LoadProgress,
    LoadRequest,
    LoadRun,
    Modes,
    Report,
    silent,
)
from omnigraph.engine.load.conform import LoadProblems, LoadSource
from omnigraph.engine.load.draft import Input, LoadDraft, Spools
from omnigraph.engine.load.fingerprint import Fingerprint
from omnigraph.engine.load.sources.opening import open_source
from omnigraph.engine.options import WriteOptions
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.write import ExecutorFor, Receipt
from omnigraph.storage.claims import Claims
from omnigraph.storage.manifest.records import CommitRecord
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot


class Loads:
    """Loads data into one graph."""

    def __init__(
        self,
        store: GraphStore,
        catalogs: Catalogs,
        claims: Claims,
        executor: ExecutorFor = LocalExecutor,
    ) -> None:
        self._store = store
        self._catalogs = catalogs
        self._claims = claims
        self._executor = executor

    def load(self, request: LoadRequest, options: WriteOptions, progress: Report | None) -> Receipt:
        """Load an input as one commit, whole or not at all."""
        columns = next(iter(request.columns.values()), {})  # the façade gives the same for every type
        report = progress or silent
        reader = LocalReader(self._store, self._catalogs, request, columns, self._executor, report)
        run = LoadRun(self._store, self._catalogs, self._claims, request, reader, report)
        return run.run(options.intent)


class LocalReader:
    """Reads the input of a load in this process."""

    engine = "local"

    def __init__(
        self,
        store: GraphStore,
        catalogs: Catalogs,
        request: LoadRequest,
        columns: Mapping[str, str],
        executor: ExecutorFor,
        report: Report,
    ) -> None:
        self._store = store
        self._catalogs = catalogs
        self._request = request
        self._columns = columns
        self._executor = executor
        self._report = report

    @property
    def repeatable(self) -> bool:
        """Say whether reading a second time gives the same: not for iterators, readers and open files."""
        data = self._request.data
        return not any(hasattr(data, name) for name in ("__next__", "read", "read_next_batch"))

    def fingerprint(self, branch: str, commit: CommitRecord) -> Fingerprint:
        """Read the input under the schema of a commit, and keep nothing but its fingerprint."""
        fingerprint = Fingerprint()
        problems = LoadProblems(fingerprint=fingerprint)
        catalog = self._catalogs.get(commit.schema)
        for _ in self._source(catalog).blocks(catalog, problems, lambda _: None):
            pass
        problems.findings().refuse(REFUSED)
        return fingerprint

    @contextmanager
    def draft(
        self, base: PinnedSnapshot, catalog: Catalog, modes: Modes, facts: Mapping[str, Any]
    ) -> Iterator[LoadDraft]:
        """Read the input and check each row by itself; spilled rows go at the end."""
        spools = Spools()
        try:
            yield LoadDraft(self._read(catalog, spools), modes, facts, self._executor)
        finally:
            spools.close()

    def _source(self, catalog: Catalog) -> LoadSource:
        return open_source(
            self._request.data,
            catalog=catalog,
            now_ms=self._store.clock.now_us() // 1000,
            type=self._request.type,
            format=self._request.format,
            columns=self._columns,
        )

    def _read(self, catalog: Catalog, spools: Spools) -> Input:
        source = self._source(catalog)
        fingerprint = None if self._request.idempotency_key is None else Fingerprint()
        problems, rows, total = LoadProblems(fingerprint=fingerprint), 0, source.size_bytes
        bytes_read = 0

        def advanced(done: int) -> None:
            nonlocal bytes_read
            bytes_read = done

        for block in stoppable(source.blocks(catalog, problems, advanced)):
            if not problems:
                spools.add(block)
            rows += block.rows.num_rows
            self._report(LoadProgress("reading", rows, bytes_read, total))
        problems.findings().refuse(REFUSED)
        self._report(LoadProgress("checking", rows, bytes_read, total))
        return Input(catalog, spools.by_type, fingerprint)


# -- engines -----------------------------------------------------------------------------------------
#
# The engine in this process is always there. Others are plug-ins that an installed package announces under
# the entry point `omnigraph.engines`; Spark is one, so nothing here imports it.


Engine = Literal["auto", "local", "spark"]
GROUP = "omnigraph.engines"
SPARK_ABOVE = 8 << 30  # bytes of files; below, one process is done before a cluster would have started


class LoadEngine(Protocol):
    """Loads data into an open graph, as `graph.load` does."""

    def __call__(
        self,
        graph: Any,
        request: LoadRequest,
        options: WriteOptions,
        progress: Report | None,
        *,
        rejects: str | os.PathLike[str] | None,
    ) -> Receipt:
        """Load it as one commit."""
        ...


def load_engine(name: str) -> LoadEngine | None:
    """Return the engine of a name; None is the one in this process."""
    if name == "local":
        return None
    plugins = _plugins(name)
    if not plugins:
        known = ", ".join(sorted({"auto", "local", *(point.name for point in _plugins())}))
        raise InvalidRequest(
            f"there is no engine {name!r}",
            remedy="Install it with: pip install 'omnigraph[spark]'" if name == "spark" else f"Use {known}",
        )
    engine: LoadEngine = plugins[0].load()
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
    members = source if isinstance(source, list | tuple) else [source]
    if not members or not isinstance(members[0], str | os.PathLike):
        return []
    return [Path(path) for path in members if isinstance(path, str | os.PathLike) and os.fspath(path)]


def _size(path: Path) -> int:
    try:
        if path.is_dir():
            return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        return path.stat().st_size
    except (OSError, ValueError):
        return 0  # whoever reads it says what is wrong
