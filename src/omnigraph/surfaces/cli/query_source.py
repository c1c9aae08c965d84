"""Query source: which graph, which query and whose text a command line means.

Room    surfaces.cli. Shared by every command that runs a query.
Rule    a word with `/`, `.` or `:`, an existing path or a configured name is the graph; any other is the
        name of a query. A file that is not where it is said to be is looked for in the project's query roots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from omnigraph.base.errors import InvalidRequest
from omnigraph.base.moment import FORMS, TimeAt, VersionAt, read_moment
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.query import CheckedQuery, CheckedRead, compile_query
from omnigraph.engine.query_text import read_query
from omnigraph.surfaces.cli.frame import Call
from omnigraph.surfaces.cli.params import GivenParams, read_params
from omnigraph.surfaces.cli.settings import Settings

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ADDR] [NAME]", help="The graph, and the query where the text has several."),
]
QueryFile = Annotated[
    Path | None, typer.Option("--query", metavar="FILE", help="The file with the query (.gq).")
]
Inline = Annotated[
    str | None,
    typer.Option("-e", "--query-string", metavar="GQ", help="The query itself, instead of a file."),
]
OldName = Annotated[str | None, typer.Option("--name", hidden=True, help="Old spelling of the query's name.")]
Snapshot = Annotated[str | None, typer.Option("--snapshot", metavar="AT", help=f"Read the past: {FORMS}.")]


@dataclass(frozen=True)
class QuerySource:
    """The text of one or more queries, and what messages call it."""

    text: str
    file: str


@dataclass(frozen=True)
class Asked:
    """A query as a call asks for it: on which graph, which one of which text, with what parameters."""

    where: str
    name: str | None
    source: QuerySource
    given: GivenParams

    def check(self, catalog: Catalog) -> CheckedQuery:
        """Return the query, checked against a schema."""
        return compile_query(self.source.text, catalog, self.name, file=self.source.file)

    def check_read(self, catalog: Catalog) -> CheckedRead:
        """Return the query if it is a read."""
        checked = self.check(catalog)
        if not isinstance(checked, CheckedRead):
            raise InvalidRequest(
                f"query {checked.name!r} changes the graph", remedy="Run it with mutate, not query"
            )
        return checked


def asked(
    call: Call,
    words: Sequence[str] | None,
    graph_uri: str | None,
    old_name: str | None,
    query: Path | None,
    inline: str | None,
    param: Sequence[str] | None,
    params: str | None,
    params_file: Path | None,
) -> Asked:
    """Read the flags that all commands share which run a query."""
    if old_name is not None:
        call.output.note("'--name NAME' is now the word NAME alone")
    where, name = graph_and_name(call.settings, words, graph_uri, old_name)
    source = read_source(call.settings, query, inline)
    return Asked(where, name, source, read_params(param, params, params_file))


def moment(settings: Settings, snapshot: str | None) -> str | None:
    """Return the state to read, if one was named; a branch has a say only in a time or a version."""
    if snapshot is None or not settings.branch_given:
        return snapshot
    if not isinstance(read_moment(snapshot), TimeAt | VersionAt):
        raise InvalidRequest("--branch and --snapshot exclude each other", remedy="Give one")
    return snapshot


def graph_and_name(
    settings: Settings, words: Sequence[str] | None, graph_uri: str | None, old_name: str | None
) -> tuple[str, str | None]:
    """Return the address of the graph and the name of the query, if one was given."""
    addresses = [word for word in words or () if settings.is_address(word)]
    names = [word for word in words or () if not settings.is_address(word)]
    names += [old_name] if old_name is not None else []
    if len(names) > 1:
        raise InvalidRequest(
            f"{names[0]!r} and {names[1]!r} both read as names of a query",
            remedy="Name one; a graph is a path that exists, a configured name, or has '/', '.' or ':' in it",
        )
    where = settings.address(*addresses, graph_uri)
    return where, names[0] if names else None


def read_source(settings: Settings, file: Path | None, inline: str | None) -> QuerySource:
    """Read the text that the flags name."""
    if (file is None) == (inline is None):
        problem = "no query text was given" if file is None else "--query and -e exclude each other"
        raise InvalidRequest(problem, remedy="Give one of --query FILE and -e 'query ...'")
    if inline is not None:
        return QuerySource(inline, "-e")
    assert file is not None
    path = next((one for one in settings.query_files(file) if one.is_file()), file)
    return QuerySource(read_query(path)[0], path.name)
