"""The same graph through several doors: opened here, and behind a server; and what answers have in common.

Given   a template of a graph, a folder that a server serves.
Gives   copies, opened in this process or behind the server; values without what changes from run to run:
        ids of commits, times, addresses, costs, tokens.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import count
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

import omnigraph as og
from omnigraph.base.errors import GraphError
from omnigraph.execution.result import Rows
from omnigraph.surfaces.cli.support.output import exit_code
from omnigraph.surfaces.client.open import open_remote
from tests.support.served import PATIENCE, SOURCE, _listens

FOLDER_SERVER = Path(__file__).with_name("folder_server.py")
ULID = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b")
TIME = re.compile(r"\b20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\b")
VOLATILE = frozenset(
    {
        *("cost", "created_at", "authored_at", "uri", "request_id", "elapsed_ms", "seconds", "requests"),
        *("cursor", "resume_cursor", "next_page_token", "published_dataset_version", "idempotency_key"),
        *("destination", "bytes", "attempts", "path"),
    }
)


@dataclass(frozen=True)
class Doors:
    """A folder of graphs, and the server before it."""

    folder: Path
    url: str
    template: Path
    queries: Path
    _numbers: Iterator[int]

    def place(self) -> Path:
        """Return a fresh copy of the template, which the server finds by its name."""
        place = self.folder / f"g{next(self._numbers)}"
        shutil.copytree(self.template, place)
        return place

    def address(self, place: Path) -> str:
        """Return the address of a copy behind the server."""
        return f"{self.url}/graphs/{place.name}"

    def opened(self, address: str) -> Any:
        """Open a copy by its path, or by its address behind the server."""
        if address.startswith(self.url):
            return open_remote(address)
        return og.connect(address, durability="os", queries=self.queries, embedding="mock")

    @contextmanager
    def embedded(self) -> Iterator[Any]:
        """Open a copy in this process."""
        with self.opened(str(self.place())) as graph:
            yield graph

    @contextmanager
    def served(self) -> Iterator[Any]:
        """Open a copy behind the server."""
        with self.opened(self.address(self.place())) as graph:
            yield graph


@contextmanager
def doors(folder: Path, template: Path, queries: Path) -> Iterator[Doors]:
    """Run a server for a folder of copies, which all have the same stored queries."""
    for name in ("first", "second"):
        shutil.copytree(template, folder / name)
    errors = folder.with_suffix(".stderr")
    with errors.open("w") as sink:
        process = subprocess.Popen(
            [sys.executable, str(FOLDER_SERVER), str(folder), str(queries)],
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE), "EMBEDDINGS_MOCK": "1"},
        )
    try:
        yield Doors(folder, f"http://{_listens(process, errors)}", template, queries, count(1))
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        cast(IO[str], process.stdout).close()


# -- what answers have in common ---------------------------------------------------------------------


class Plain:
    """Turns answers into plain values; an id is named by the order in which it was met."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def __call__(self, value: Any) -> Any:
        match value:
            case None | bool() | int() | float():
                return value
            case str():
                return TIME.sub("TIME", ULID.sub(lambda found: self._name(found[0]), value))
            case Enum():
                return self(value.value)
            case bytes():
                return self(value.decode())
            case Mapping():
                return {str(key): self(item) for key, item in value.items() if key not in VOLATILE}
            case Rows():
                return self._rows(value)
            case pa.Schema():
                return str(value)
            case GraphError():
                return failure(value, self)
        if hasattr(value, "to_json"):
            return self(value.to_json())
        if hasattr(value, "__iter__"):
            return [self(item) for item in value]
        return self(str(value))

    def _rows(self, rows: Rows) -> Any:
        sink = pa.BufferOutputStream()
        table = rows.table.replace_schema_metadata(None).combine_chunks()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        about = {
            name: self(getattr(rows, name, None)) for name in ("commit_id", "query_name", "branch", "columns")
        }
        described = [column.to_json() for column in getattr(rows, "described", ())]
        return about | {"described": described, "arrow": sink.getvalue().to_pybytes().hex()}

    def _name(self, found: str) -> str:
        return self._names.setdefault(found, f"ID{len(self._names)}")


def failure(error: GraphError, plain: Plain) -> dict[str, Any]:
    """Return an error: class, code, kind, message, remedy, details, exit code."""
    hidden = ("request_id", "source", "spans", "diagnostics", "elapsed_ms")
    fields = {name: value for name, value in error.fields.items() if name not in hidden}
    return {
        "class": type(error).__name__,
        "code": error.code,
        "kind": error.kind.value,
        "retryable": error.retryable,
        "exit": exit_code(error),
        "text": plain(str(error)),
        "fields": plain(fields),
    }
