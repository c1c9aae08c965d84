"""Options: what callers say to the format `omnigraph`, whichever way they use it.

Spark makes a source from options alone and does not say what for, so each use checks that every option it
was given is one of its own: nothing is ignored.

Given   texts by name; names come in lower case.
Gives   addresses, types and numbers, or errors whose text holds their code: only the text leaves a process
        of Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.sql.types import StructType

from omnigraph.base.errors import GraphError, InvalidRequest
from omnigraph.language.diagnostics import did_you_mean
from omnigraph.storage.location import Location
from omnigraph.storage.store import GraphStore

NAME = "omnigraph"
STORAGE = "storage."
PLACE = ("uri", "path", "branch")
READ = (*PLACE, "type", "kind", "at", "columns", "partition_bytes")
QUERY = (*PLACE, "query", "query_name", "params", "at")
CHANGES = (*PLACE, "changes", "type", "types", "kind", "starting", "max_commits")
WRITE = (*PLACE, "type", "kind", "load_mode", "message", "actor", "driver_rows")
BATCH = (*WRITE, "if_commit", "idempotency_key")
STREAM = (*WRITE, "sink_id")
KNOWN = tuple(dict.fromkeys((*READ, *QUERY, *CHANGES, *BATCH, *STREAM)))
SPARKS = ("checkpointlocation", "queryname")  # what Spark itself adds to the options of a stream
Options = Mapping[str, str]
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # of a file system that Spark knows
_PATTERN = re.compile(r"([{}\[\]*?\\])")


def literal_path(path: str) -> str:
    """Return a path that means itself where Spark takes patterns.

    >>> literal_path("/data/[old]")
    '/data/\\\\[old\\\\]'
    """
    return _PATTERN.sub(r"\\\1", path)


def location_of(options: Options) -> Location:
    """Read from options where the graph is."""
    uri = options.get("uri") or options.get("path")
    if not uri:
        raise InvalidRequest("option 'uri' is missing", remedy="Give the graph's address")
    storage = {
        name[len(STORAGE) :]: value for name, value in options.items() if name.lower().startswith(STORAGE)
    }
    return Location.parse(uri, storage)


def open_store(location: Location) -> GraphStore:
    """Open the graph that an option or a value names; reads the head of main."""
    return GraphStore.open(location.uri, storage_options=location.options)


def check_names(options: Options) -> None:
    """Refuse options that no use has."""
    for name in options:
        if name.lower() not in (*KNOWN, *SPARKS) and not name.lower().startswith(STORAGE):
            hint = did_you_mean(name.lower(), KNOWN)
            raise InvalidRequest(
                f"unknown option {name!r}" + (f"; {hint}" if hint else ""),
                remedy=f"The options are {', '.join(KNOWN)}, and storage options after {STORAGE!r}",
            )


def check_use(options: Options, known: Sequence[str], doing: str) -> None:
    """Refuse options that are for another use."""
    for name in options:
        if name.lower() not in (*known, *SPARKS) and not name.lower().startswith(STORAGE):
            raise InvalidRequest(
                f"option {name!r} does not go with {doing}",
                remedy=f"The options are {', '.join(known)}, and storage options after {STORAGE!r}",
            )


def type_name(options: Options) -> str:
    """Return the name of the type that is meant, its kind before it if that was given."""
    name, kind = options.get("type"), options.get("kind")
    if not name:
        raise InvalidRequest("option 'type' is missing", remedy="Give the graph's address and a type")
    if kind not in (None, "node", "edge"):
        raise InvalidRequest(f"option 'kind' is {kind!r}", remedy="Use 'node' or 'edge'")
    return name if kind is None else f"{kind}:{name}"


def number(options: Options, name: str, default: int) -> int:
    """Return an option that is a whole number above 0."""
    text = options.get(name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise InvalidRequest(f"option {name!r} is {text!r}", remedy="Give a whole number above 0")
    return int(text)


def flag(options: Options, name: str) -> bool:
    """Return an option that is true or false."""
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise InvalidRequest(f"option {name!r} is {text!r}", remedy="Give 'true' or 'false'")
    return text == "true"


def check_columns(columns: StructType, declared: StructType) -> None:
    """Refuse columns that there are not, and other types: these are not guessed."""
    known = {column.name: column.dataType for column in declared}
    for column in columns:
        if column.name not in known:
            raise InvalidRequest(
                f"there is no column {column.name!r}", remedy=f"The columns are {', '.join(known)}"
            )
        if column.dataType != known[column.name]:
            raise InvalidRequest(
                f"column {column.name!r} is {known[column.name].simpleString()}, "
                f"not {column.dataType.simpleString()}",
                remedy="Name the column with its own type, and cast it afterwards",
            )


@contextmanager
def coded() -> Iterator[None]:
    """Only the text of an error leaves a process of Spark's: let it hold the code."""
    try:
        yield
    except GraphError as error:
        error.add_note(f"omnigraph error code: {error.code}")
        raise
