"""Download: an export of a remote graph into a folder here, from the stream of lines that a server gives.

The lines come type by type, in the order of the export; each type is written into files of its own, as by an
embedded export, and the folder is whole or has no manifest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, Unavailable
from omnigraph.base.ids import SystemClock
from omnigraph.base.times import At
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import TableType
from omnigraph.engine.export.export import Report, named_rows
from omnigraph.engine.export.files import (
    ExportedFile,
    ExportReport,
    destination_at,
    file_name,
    write_files,
)
from omnigraph.engine.export.plan import ExportPlan, check_format
from omnigraph.engine.load.conform import LoadProblems
from omnigraph.engine.load.sources.json import END
from omnigraph.engine.load.sources.opening import open_source
from omnigraph.storage.location import Location
from omnigraph.surfaces.client.calls import Calls, moment
from omnigraph.surfaces.client.rows import RemoteState
from omnigraph.surfaces.client.transport import NDJSON, Payload, RemoteRequest

COMMIT_HEADER = "Graph-Commit-Id"


@dataclass(frozen=True)
class ExportStream:
    """Which entities are exported, and of which state."""

    calls: Calls
    types: list[str] | None
    branch: str
    at: At | None
    framed: bool = False

    @contextmanager
    def open(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Return the commit, and the bytes of the stream."""
        body = {
            "branch": self.branch,
            "snapshot": moment(self.at),
            "type_names": self.types or [],
            "framed": self.framed or None,
        }
        request = RemoteRequest("POST", "/export", body=Payload.of(body), accept=NDJSON)
        with self.calls.transport.stream(request) as (headers, chunks):
            yield headers[COMMIT_HEADER], chunks

    def rows(self, commit_id: str, types: Iterable[TableType]) -> int:
        """Return how many rows these types have at a commit."""
        names = {(declared.kind.value, declared.name) for declared in types}
        counted = self.calls.read("/snapshot", branch=self.branch, snapshot=commit_id)["datasets"]
        return sum(
            entry["entity_count"] for entry in counted if (entry["entity_kind"], entry["type_name"]) in names
        )


def export_folder(
    stream: ExportStream,
    catalog: Callable[[At], Catalog],
    destination: str | os.PathLike[str],
    *,
    format: str,
    storage_options: Mapping[str, str] | None,
    progress: Report | None,
) -> ExportReport:
    """Write the types of one commit into a new or empty folder, a file for each.

    `progress` is told the rows that are done, and all there are.
    """
    chosen = check_format(format)
    here = Location.parse(os.getcwd(), None)
    with destination_at(destination, here, storage_options) as place, stream.open() as (commit_id, chunks):
        schema = catalog(commit_id)
        types = chosen_types(schema, stream.types)
        state: Any = RemoteState(stream.branch, commit_id)  # all that a plan is asked for here
        plan = ExportPlan(state, schema, types)
        files: dict[str, list[ExportedFile]] = {declared.id: [] for declared in types}
        done = 0
        total = 0 if progress is None else stream.rows(commit_id, types)

        def followed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            nonlocal done
            for batch in batches:
                yield batch
                done += batch.num_rows
                if progress is not None:
                    progress(done, total)

        rows = _entities(chunks, schema)
        for declared, batches in groupby(rows, key=lambda entry: entry[0]):
            new_name = partial(file_name, schema, declared, 0, chosen)
            of_type = followed(batch for _, batch in batches)
            files[declared.id] += write_files(place.staging, new_name, of_type, declared, chosen)
        for declared in types:
            if not files[declared.id]:
                new_name = partial(file_name, schema, declared, 0, chosen)
                files[declared.id] = write_files(place.staging, new_name, (), declared, chosen)
        return place.complete(plan, chosen, files)


def chosen_types(catalog: Catalog, names: list[str] | None) -> tuple[TableType, ...]:
    """Return the types of an export in its order."""
    if names is None:
        return catalog.tables
    chosen = {catalog.named(name).id for name in names}
    return tuple(declared for declared in catalog.tables if declared.id in chosen)


def _entities(chunks: Iterator[bytes], catalog: Catalog) -> Iterator[tuple[TableType, pa.RecordBatch]]:
    """Read lines of entities as a load does."""
    problems = LoadProblems()
    source = open_source(
        _whole(chunks), catalog=catalog, now_ms=SystemClock().now_us() // 1000, format="jsonl"
    )
    for block in source.blocks(catalog, problems, lambda _: None):
        yield block.declared, named_rows(block.rows, block.declared)
    problems.findings().refuse("the export cannot be read")


def _whole(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a framed stream; one that broke off without an end is no export."""
    tail = b""
    for chunk in chunks:
        tail = (tail + chunk)[-(1 << 16) :]
        yield chunk
    last = tail.rstrip(b"\n").rpartition(b"\n")[2]
    if not last.startswith(json.dumps({END: 0}).partition(":")[0].encode()):
        raise Unavailable("the export broke off before its end", remedy="Export again")


def refuse_one_text(types: Iterable[str] | None) -> list[str] | None:
    """Return the names of types as a list."""
    if isinstance(types, str):
        raise InvalidRequest(f"types={types!r} is one text", remedy="Give a list of names")
    return None if types is None else list(types)
