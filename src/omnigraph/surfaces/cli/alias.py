"""Alias: a short name for one query, with its words as parameters.

`aliases.<name>` of the project file has `command` (query or mutate), `query` (a file), `name` (a query of
it), `args` (parameters for the words after the alias), `params` (fixed ones) and `format`. That of the
operator config, which comes first, has `server`, `graph` and `query`, the name of a stored query, in place
of the first three.

Strongest first: `--param`, then `--params`, then the words, then the fixed parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, NotFound, counted
from omnigraph.language.diagnostics import did_you_mean
from omnigraph.surfaces.cli.query import (
    Explain,
    FormatFlag,
    Out,
    ReadFlags,
    WithMetadata,
    run_mutation,
    run_read,
    run_stored,
)
from omnigraph.surfaces.cli.settings import PROJECT_FILE, WRITES, Settings
from omnigraph.surfaces.cli.support.call import GraphUri, call_of, note_old_spelling
from omnigraph.surfaces.cli.support.params import (
    Param,
    Params,
    ParamsFile,
    QueryRequest,
    Snapshot,
    read_params,
    read_text,
)


@dataclass(frozen=True)
class Alias:
    """What a file says about one alias."""

    name: str
    file: Path | None  # None: a stored query
    address: str | None = None
    writes: bool = False
    query_name: str | None = None
    args: tuple[str, ...] = ()
    params: Mapping[str, Any] | None = None
    format: Any = None

    def bind(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the parameters of one call, those from its words over the fixed ones."""
        if len(words) > len(self.args):
            takes = f"takes {len(self.args)}: {', '.join(self.args)}" if self.args else "takes none"
            raise InvalidRequest(
                f"alias {self.name!r} got {counted(len(words), 'word')} and {takes}",
                remedy="Put words that belong together in quotes",
            )
        from_words = {name: _value(word) for name, word in zip(self.args, words, strict=False)}
        return {**(self.params or {}), **from_words}


def alias(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The alias, of config.yaml or omnigraph.yaml.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="Its parameters, in their order.")
    ] = None,
    graph_uri: GraphUri = None,
    param: Param = None,
    params: Params = None,
    params_file: ParamsFile = None,
    snapshot: Snapshot = None,
    form: FormatFlag = None,
    explain: Explain = False,
    with_metadata: WithMetadata = False,
    out: Out = None,
) -> None:
    """Run the query that the operator config or the project file has a short name for."""
    call = call_of(ctx)
    note_old_spelling(ctx, "alias")
    settings = call.settings
    known = find_alias(settings, name)
    bound = {**known.bind(words or ()), **read_params(param, params, params_file)}
    address = known.address if known.address and not graph_uri else settings.address(graph_uri)
    flags = ReadFlags(snapshot, form, explain, with_metadata, out)
    if known.file is None:
        request = QueryRequest(address, known.query_name, None, name, bound)
        run_stored(call, request, flags, alias_format=known.format)
        return
    text, file = read_text(settings, known.file, None)
    request = QueryRequest(address, known.query_name, text, file, bound)
    if not known.writes:
        run_read(call, request, flags, alias_format=known.format)
        return
    if flags.names:
        raise InvalidRequest(f"alias {name!r} changes the graph, so {flags.names[0]} does not go with it")
    run_mutation(call, request)


def find_alias(settings: Settings, name: str) -> Alias:
    """Return an alias of the operator config, or else of the project file."""
    own, aliases = (settings.config.find(file, "aliases") or {} for file in ("operator", "project"))
    if name in own:
        return _of_operator(settings, name, own[name])
    if name not in aliases:
        hint = did_you_mean(name, [*own, *aliases])
        listed = f"; {hint}" if hint else ""
        raise NotFound(f"{PROJECT_FILE} has no alias {name!r}{listed}", remedy="`aliases` there lists them")
    entry = aliases[name]
    return Alias(
        name,
        settings.alias_file(entry["query"]),
        writes=entry["command"] in WRITES,
        query_name=entry["name"],
        args=entry["args"],
        params=entry["params"],
        format=entry["format"],
    )


def _of_operator(settings: Settings, name: str, entry: Mapping[str, Any]) -> Alias:
    """Return an alias of one person: it is for a stored query."""
    if entry["query"] is None:
        raise InvalidRequest(
            f"alias {name!r} of the operator config names no query", remedy="Add query: NAME, of a stored one"
        )
    server = entry["server"]
    address = None if server is None else settings.config.served(server, entry["graph"])
    return Alias(
        name,
        None,
        address,
        query_name=entry["query"],
        args=entry["args"],
        params=entry["params"],
        format=entry["format"],
    )


def _value(word: str) -> Any:
    """Return a word as JSON if it is JSON, else as text.

    >>> _value("29"), _value('"29"'), _value("Ada"), _value("2026-05-01")
    (29, '29', 'Ada', '2026-05-01')
    """
    from omnigraph.engine.load.texts import InvalidJson, parse

    try:
        return parse(word)
    except InvalidJson:
        return word
