"""Stored queries: a folder of `.gq` files, each query checked against a schema and called by its name.

`og.connect(..., queries=DIR)` reads the folder once; a server looks at it again and again. What a call of
one may say is the same for both. Every call is compiled against the branch that it works on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from omnigraph.base.arguments import checked_methods
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, PermissionDenied, QueryNotFound
from omnigraph.base.times import At
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.query import compile_query, query_entry
from omnigraph.engine.access import Action
from omnigraph.engine.options import View
from omnigraph.engine.schema.schema import Schemas
from omnigraph.language.query import parse_query
from omnigraph.storage.manifest.records import MAIN

SUFFIX = ".gq"


@dataclass(frozen=True)
class StoredQuery:
    """One query: the text of its file, and what is known of it."""

    name: str
    text: str
    file: str
    mutation: bool
    entry: Mapping[str, Any]

    def check(
        self,
        *,
        at: At | None,
        if_commit: str | None,
        message: str | None,
        expect_mutation: bool | None,
    ) -> None:
        """Refuse a call that means the other kind of query."""
        if expect_mutation not in (None, self.mutation):
            does = "changes the graph" if self.mutation else "only reads"
            raise InvalidRequest(
                f"query {self.name!r} {does}", remedy="Leave out expect_mutation, or call another"
            )
        if self.mutation and at is not None:
            raise InvalidRequest(
                f"query {self.name!r} changes the graph", remedy="Name a branch, and no state of the past"
            )
        for option, value in (("message", message), ("if_commit", if_commit)):
            if value is not None and not self.mutation:
                raise InvalidRequest(
                    f"query {self.name!r} only reads: it has no {option}", remedy="Leave it out"
                )


QueriesByName = Mapping[str, StoredQuery]
NO_QUERIES: QueriesByName = MappingProxyType({})


def stored_in(folder: str | os.PathLike[str] | None, schema: Schemas) -> QueriesByName:
    """Return the queries of a graph that is opened, if it was given a folder."""
    return NO_QUERIES if folder is None else read_queries(Path(folder), schema.catalog())


def query_files(folder: Path) -> list[Path]:
    """Return the files of a folder and of those below it, in order."""
    return sorted(folder.rglob(f"*{SUFFIX}"))


def read_queries(folder: Path, catalog: Catalog) -> QueriesByName:
    """Return the queries of a folder; one that does not fit the schema, or a name used twice, is refused."""
    if not folder.is_dir():
        raise InvalidRequest(f"there is no folder {str(folder)!r}", remedy="Check the path of the queries")
    queries: dict[str, StoredQuery] = {}
    for path in query_files(folder):
        for query in _of_file(path, catalog):
            if query.name in queries:
                raise InvalidRequest(
                    f"{path.name} and {queries[query.name].file} both have a query {query.name!r}",
                    remedy="Rename one of them",
                )
            queries[query.name] = query
    return MappingProxyType(queries)


def no_query(name: str) -> QueryNotFound:
    """Return the answer for a query that there is not, or that the caller may not call."""
    return QueryNotFound(
        f"there is no stored query {name[:128]!r}",
        remedy="queries.list() of the graph, `omnigraph queries list` or GET /queries says which there are",
        name=name[:128],
    )


def _of_file(path: Path, catalog: Catalog) -> list[StoredQuery]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path.name} cannot be read", remedy="Save it as UTF-8 text") from error
    queries = []
    for syntax in parse_query(text, path.name).queries:
        checked = compile_query(text, catalog, syntax.name.text, file=path.name)
        queries.append(StoredQuery(checked.name, text, path.name, syntax.mutation, query_entry(checked)))
    return queries


@checked_methods
class GraphQueries:
    """The stored queries of one graph: `graph.queries`."""

    def __init__(self, queries: QueriesByName, view: View) -> None:
        self._queries = queries
        self._view = view

    def list(self) -> tuple[dict[str, Any], ...]:
        """Return what is known of each: name, parameters, whether it writes, description."""
        self._view.allow(Action.READ, MAIN)
        return tuple(dict(self._queries[name].entry) for name in sorted(self._queries))

    def _called(self, name: str) -> StoredQuery:
        """Return a query to run; one that may not be called is answered like one that there is not."""
        try:
            self._view.allow(Action.INVOKE_QUERY)
        except PermissionDenied:
            raise no_query(name) from None
        if name not in self._queries:
            raise no_query(name)
        return self._queries[name]
