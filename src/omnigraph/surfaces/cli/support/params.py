"""Params: the parameters of a query as a command line gives them.

Room    surfaces.cli. Shared by every command that runs a query: the flags, how they combine, what a value is.
Given   `--params` or `--params-file`, a JSON object; `--param k=v`, text; `--param k:=JSON`.
Gives   `GivenParams`; with the parameters that a query declares, the values to bind.
Rule    text is read as the declared type says, never guessed. `--param` is stronger than the object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.base.errors import InvalidRequest
from omnigraph.base.times import FORMS, TimeAt, VersionAt, read_moment
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.query import (
    BadParameters,
    CheckedQuery,
    CheckedRead,
    Parameter,
    bind_params,
    compile_query,
    param_from_text,
)
from omnigraph.engine.load.texts import BLANKS, InvalidJson, parse
from omnigraph.engine.query import read_query
from omnigraph.surfaces.cli.settings import Settings
from omnigraph.surfaces.cli.support.call import Call

Param = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="K=V",
        help="One parameter: k=v, read as its declared type; or k:=JSON. Repeat it for more.",
    ),
]
Params = Annotated[
    str | None, typer.Option("--params", metavar="JSON", help="All parameters as a JSON object.")
]
ParamsFile = Annotated[
    Path | None, typer.Option("--params-file", metavar="FILE", help="The same, read from a file.")
]


@dataclass(frozen=True)
class GivenParams:
    """What was given, before anybody knows the types: JSON values, and texts."""

    values: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)

    def bound(self, declared: Sequence[Parameter]) -> dict[str, Any]:
        """Return the JSON values of a query's parameters, or refuse with everything that does not fit.

        >>> from omnigraph.catalog.types import PropertyType, Scalar
        >>> GivenParams(texts={"age": "36"}).bound([Parameter("age", PropertyType(Scalar.I32))])
        {'age': 36}
        """
        known = {parameter.name: parameter for parameter in declared}
        found: dict[str, Any] = dict(self.values)
        wrong: list[BadParameters] = []
        for name, text in self.texts.items():
            try:
                found[name] = param_from_text(known[name], text) if name in known else text
            except BadParameters as error:
                wrong.append(error)
        if wrong:
            problems = [problem for error in wrong for problem in error.fields["problems"]]
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise BadParameters(f"{problems[0]}{more}", remedy=wrong[0].remedy, problems=tuple(problems))
        bind_params(declared, found)
        return found


def read_params(single: Iterable[str] | None, whole: str | None, file: Path | None) -> GivenParams:
    """Read the flags.

    >>> read_params(["name=Ada", "tags:=[1]"], '{"name": "Bo", "age": 3}', None)
    GivenParams(values={'age': 3, 'tags': [1]}, texts={'name': 'Ada'})
    """
    if whole is not None and file is not None:
        raise InvalidRequest("--params and --params-file exclude each other", remedy="Give one")
    values = _whole(whole, file)
    texts: dict[str, str] = {}
    seen: set[str] = set()
    for one in single or ():
        name, is_json, text = _single(one)
        if name in seen:
            raise InvalidRequest(f"--param {name} is given twice", remedy="Give it once")
        seen.add(name)
        values.pop(name, None)
        if is_json:
            values[name] = _json(text, f"--param {name}")
        else:
            texts[name] = text
    return GivenParams(values, texts)


def _whole(text: str | None, file: Path | None) -> dict[str, Any]:
    where = "--params"
    if file is not None:
        where = str(file)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"cannot read {where}: {error}", remedy="Check the path") from error
    found = {} if text is None else _json(text, where)
    if found is not None and not isinstance(found, dict):
        raise InvalidRequest(f"{where}: params must be a JSON object", remedy='Write {"name": value}')
    return found or {}


def _single(given: str) -> tuple[str, bool, str]:
    name, equals, text = given.partition("=")
    is_json = name.endswith(":")
    name = name.removesuffix(":").removeprefix("$")
    if not equals or not name:
        raise InvalidRequest(f"--param {given!r} is not k=v", remedy="Write name=value, or name:=JSON")
    return name, is_json, text


def _json(text: str, where: str) -> Any:
    try:
        return parse(text.strip(BLANKS))
    except InvalidJson as error:
        raise InvalidRequest(f"{where}: not JSON: {error}", remedy="Text needs double quotes") from None


# -- query source --------------------------------------------------------------------------------
#
# Which graph, which query and whose text a command line means.
# Shared by every command that runs a query.
# Rule    a word with `/`, `.` or `:`, an existing path or a configured name is the graph; any other is
# the
# name of a query. A file that is not where it is said to be is looked for in the project's query roots.


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
