"""Which query a command line means, on which graph and with which parameters.

Shared by every command that runs a query. Nothing is compiled or converted here: the engine compiles the text
once, on the snapshot that it reads, and binds the parameters to the types that the query declares.

Graph       a word with `/`, `.` or `:`, an existing path or a configured name; any other word names a query.
Text        `--query FILE`, also looked for in the query roots of the project, or `-e`.
Parameters  `--params` or `--params-file`, a JSON object; `--param k=v`, read as the declared type says;
            `--param k:=JSON`. `--param` is stronger than the object.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.times import FORMS, TimeAt, VersionAt, read_moment
from omnigraph.surfaces.cli.settings import Settings, is_served
from omnigraph.surfaces.cli.support.call import Call

# -- flags -------------------------------------------------------------------------------------------


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
Snapshot = Annotated[str | None, typer.Option("--snapshot", metavar="AT", help=f"Read the past: {FORMS}.")]
OldName = Annotated[str | None, typer.Option("--name", hidden=True, help="Old spelling of the query's name.")]


# -- the query of a call -----------------------------------------------------------------------------


@dataclass(frozen=True)
class QueryRequest:
    """A query as a command line names it."""

    address: str
    name: str | None  # of several in the text, or of a stored query
    text: str | None  # None: it is a stored one
    file: str  # what messages call the text
    params: dict[str, Any]

    def arguments(self) -> dict[str, Any]:
        """Return what `graph.query` and its like take."""
        from omnigraph.engine.query import NamedQuery

        if self.text is None:
            raise InvalidRequest(
                "this needs the text of the query", remedy="Give one of --query FILE and -e 'query ...'"
            )
        return {"gq": NamedQuery(self.text, self.file), "params": self.params, "query_name": self.name}


def query_request(
    call: Call,
    words: Sequence[str] | None,
    graph_uri: str | None,
    old_name: str | None,
    query: Path | None,
    inline: str | None,
    param: Sequence[str] | None,
    params: str | None,
    params_file: Path | None,
) -> QueryRequest:
    """Read the flags that all commands share which run a query."""
    if old_name is not None:
        call.output.note("'--name NAME' is now the word NAME alone")
    address, name = graph_and_name(call.settings, words, graph_uri, old_name)
    bound = read_params(param, params, params_file)
    if query is None and inline is None and name is not None and _keeps_queries(call.settings, address):
        return QueryRequest(address, name, None, name, bound)
    text, file = read_text(call.settings, query, inline)
    return QueryRequest(address, name, text, file, bound)


def _keeps_queries(settings: Settings, address: str) -> bool:
    return is_served(address) or settings.config.stored_queries(address) is not None


def graph_and_name(
    settings: Settings, words: Sequence[str] | None, graph_uri: str | None, old_name: str | None
) -> tuple[str, str | None]:
    """Return the address of the graph and the name of the query, if there is one."""
    addresses = [word for word in words or () if settings.is_address(word)]
    names = [word for word in words or () if not settings.is_address(word)]
    names += [old_name] if old_name is not None else []
    if len(names) > 1:
        raise InvalidRequest(
            f"{names[0]!r} and {names[1]!r} both read as names of a query",
            remedy="Name one; a graph is a path that exists, a configured name, or has '/', '.' or ':' in it",
        )
    return settings.address(*addresses, graph_uri), names[0] if names else None


def read_text(settings: Settings, file: Path | None, inline: str | None) -> tuple[str, str]:
    """Return the text that the flags name, and what messages call it."""
    if (file is None) == (inline is None):
        problem = "no query text was given" if file is None else "--query and -e exclude each other"
        raise InvalidRequest(
            problem,
            remedy="Give one of --query FILE and -e 'query ...'; a name alone is for graphs with stored "
            "queries: those of servers, or with graphs.NAME.queries in omnigraph.yaml",
        )
    if inline is not None:
        return inline, "-e"
    from omnigraph.engine.query import read_query

    assert file is not None
    path = next((candidate for candidate in settings.query_files(file) if candidate.is_file()), file)
    return read_query(path)


def read_at(settings: Settings, snapshot: str | None) -> str | None:
    """Return the state to read, if one was named; a branch has a say only in a time or a version."""
    if snapshot is None or not settings.branch_given:
        return snapshot
    if not isinstance(read_moment(snapshot), TimeAt | VersionAt):
        raise InvalidRequest("--branch and --snapshot exclude each other", remedy="Give one")
    return snapshot


# -- parameters --------------------------------------------------------------------------------------


def read_params(single: Iterable[str] | None, whole: str | None, file: Path | None) -> dict[str, Any]:
    """Return JSON values and, where a type has to say what is meant, texts.

    >>> read_params(["name=Ada", "tags:=[1]"], '{"name": "Bo", "age": 3}', None)
    {'name': 'Ada', 'age': 3, 'tags': [1]}
    """
    if whole is not None and file is not None:
        raise InvalidRequest("--params and --params-file exclude each other", remedy="Give one")
    params = _json_object(whole, file)
    names: set[str] = set()
    for assignment in single or ():
        name, value = _assignment(assignment)
        if name in names:
            raise InvalidRequest(f"--param {name} is given twice", remedy="Give it once")
        names.add(name)
        params[name] = value
    return params


def _json_object(text: str | None, file: Path | None) -> dict[str, Any]:
    where = "--params"
    if file is not None:
        where = str(file)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"cannot read {where}: {error}", remedy="Check the path") from error
    if text is None:
        return {}
    value = _json(text, where)
    if value is not None and not isinstance(value, dict):
        raise InvalidRequest(f"{where}: params must be a JSON object", remedy='Write {"name": value}')
    return value or {}


def _assignment(text: str) -> tuple[str, Any]:
    """Read `k=v` or `k:=JSON`."""
    from omnigraph.catalog.query import ParamText

    name, equals, value = text.partition("=")
    is_json = name.endswith(":")
    name = name.removesuffix(":").removeprefix("$")
    if not equals or not name:
        raise InvalidRequest(f"--param {text!r} is not k=v", remedy="Write name=value, or name:=JSON")
    return name, _json(value, f"--param {name}") if is_json else ParamText(value)


def _json(text: str, where: str) -> Any:
    from omnigraph.engine.load.texts import BLANKS, InvalidJson, parse

    try:
        return parse(text.strip(BLANKS))
    except InvalidJson as error:
        raise InvalidRequest(f"{where}: not JSON: {error}", remedy="Text needs double quotes") from None
