"""Alias: a short name of the project file for one query, with its words as parameters.

Room    surfaces.cli. `aliases.<name>` has `command` (query or mutate), `query` (a file), `name` (a query of
        it), `args` (parameters for the words after the alias), `params` (fixed ones) and `format`.
Rule    strongest first: `--param`, then `--params`, then the words, then the fixed parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.base.errors import InvalidRequest, NotFound
from omnigraph.engine.load.texts import InvalidJson, parse
from omnigraph.language.diagnostics import did_you_mean
from omnigraph.surfaces.cli.query import Explain, FormatFlag, Out, ReadFlags, WithMetadata, read, write
from omnigraph.surfaces.cli.settings import PROJECT_FILE, WRITES, Settings
from omnigraph.surfaces.cli.support.call import GraphUri, call_of, note_old_spelling
from omnigraph.surfaces.cli.support.params import (
    Asked,
    GivenParams,
    Param,
    Params,
    ParamsFile,
    Snapshot,
    read_params,
    read_source,
)


@dataclass(frozen=True)
class Alias:
    """What the project file says about one alias."""

    name: str
    file: Path
    writes: bool = False
    query_name: str | None = None
    args: tuple[str, ...] = ()
    params: Mapping[str, Any] | None = None
    format: Any = None

    def given(self, words: Sequence[str], flags: GivenParams) -> GivenParams:
        """Return the parameters of one call, the stronger over the weaker."""
        if len(words) > len(self.args):
            takes = f"takes {len(self.args)}: {', '.join(self.args)}" if self.args else "takes none"
            raise InvalidRequest(
                f"alias {self.name!r} was given {len(words)} words and {takes}",
                remedy="Put words that belong together in quotes",
            )
        named = {name: _value(word) for name, word in zip(self.args, words, strict=False)}
        weaker = {
            name: value for name, value in {**(self.params or {}), **named}.items() if name not in flags.texts
        }
        return GivenParams({**weaker, **flags.values}, flags.texts)


def alias(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The alias, of omnigraph.yaml.")],
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
    """Run the query that the project file has a short name for."""
    call = call_of(ctx)
    note_old_spelling(ctx, "alias")
    settings = call.settings
    found = find_alias(settings, name)
    given = found.given(words or (), read_params(param, params, params_file))
    where = settings.address(graph_uri)
    wanted = Asked(where, found.query_name, read_source(settings, found.file, None), given)
    flags = ReadFlags(snapshot, form, explain, with_metadata, out)
    if not found.writes:
        read(call, wanted, flags, alias_format=found.format)
        return
    if flags.given:
        raise InvalidRequest(f"alias {name!r} changes the graph, so {flags.given[0]} does not go with it")
    write(call, wanted)


def find_alias(settings: Settings, name: str) -> Alias:
    """Return an alias of the project file."""
    aliases = settings.config.find("project", "aliases") or {}
    if name not in aliases:
        hint = did_you_mean(name, aliases)
        listed = f"; {hint}" if hint else ""
        raise NotFound(f"{PROJECT_FILE} has no alias {name!r}{listed}", remedy="`aliases` there lists them")
    entry = aliases[name]
    return Alias(
        name,
        settings.alias_file(entry["query"]),
        entry["command"] in WRITES,
        entry["name"],
        entry["args"],
        entry["params"],
        entry["format"],
    )


def _value(word: str) -> Any:
    """Return a word as JSON if it is JSON, else as text.

    >>> _value("29"), _value('"29"'), _value("Ada"), _value("2026-05-01")
    (29, '29', 'Ada', '2026-05-01')
    """
    try:
        return parse(word)
    except InvalidJson:
        return word
