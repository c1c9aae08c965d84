"""Query: run one read and write its rows."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.base.errors import InvalidRequest
from omnigraph.surfaces.cli.explain import show_plan
from omnigraph.surfaces.cli.formats import Form, Format, choose
from omnigraph.surfaces.cli.frame import Call, GraphUri, call_of, note_old_spelling
from omnigraph.surfaces.cli.params import Param, Params, ParamsFile
from omnigraph.surfaces.cli.query_source import (
    Asked,
    Inline,
    OldName,
    QueryFile,
    Snapshot,
    Words,
    asked,
    moment,
)

FormatFlag = Annotated[
    Format | None, typer.Option("--format", help="How to write the rows; a table if not given.")
]
Explain = Annotated[bool, typer.Option("--explain", help="Say how it would run, and run nothing.")]
WithMetadata = Annotated[
    bool, typer.Option("--with-metadata", help="With jsonl: a first line about the query and its commit.")
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write to a file instead of standard output.")
]


@dataclass(frozen=True)
class ReadFlags:
    """The flags that only reads have."""

    snapshot: str | None = None
    format: Format | None = None
    explain: bool = False
    with_metadata: bool = False
    out: Path | None = None

    @property
    def given(self) -> list[str]:
        """The names of those that were given."""
        flags = {
            "--snapshot": self.snapshot is not None,
            "--format": self.format is not None,
            "--explain": self.explain,
            "--with-metadata": self.with_metadata,
            "--out": self.out is not None,
        }
        return [name for name, given in flags.items() if given]


def query(
    ctx: typer.Context,
    words: Words = None,
    graph_uri: GraphUri = None,
    query: QueryFile = None,
    inline: Inline = None,
    param: Param = None,
    params: Params = None,
    params_file: ParamsFile = None,
    snapshot: Snapshot = None,
    form: FormatFlag = None,
    explain: Explain = False,
    with_metadata: WithMetadata = False,
    out: Out = None,
    old_name: OldName = None,
) -> None:
    """Run one read on one snapshot: the head of a branch, or a past commit."""
    call = call_of(ctx)
    note_old_spelling(ctx, "query")
    wanted = asked(call, words, graph_uri, old_name, query, inline, param, params, params_file)
    read(call, wanted, ReadFlags(snapshot, form, explain, with_metadata, out))


def read(call: Call, wanted: Asked, flags: ReadFlags, *, alias_format: Any = None) -> None:
    """Run a read as its flags say."""
    at = moment(call.settings, flags.snapshot)
    if flags.explain:
        for name in ("--format", "--with-metadata", "--out"):
            if name in flags.given:
                raise InvalidRequest(
                    f"--explain has no rows, so {name} does not go with it", remedy="Give one"
                )
        show_plan(call, wanted, at)
        return
    form = choose(
        call.settings,
        flags.format,
        alias=alias_format,
        with_metadata=flags.with_metadata,
        past=at is not None,
    )
    _refuse_terminal(form, flags.out)
    with call.connect(wanted.where) as graph:
        checked = wanted.check_read(graph.schema.for_reads(call.settings.branch, at))
        result = graph.query(
            wanted.source.text,
            wanted.given.bound(checked.parameters),
            query_name=checked.name,
            branch=call.settings.branch,
            at=at,
        )
    call.output.stream(lambda sink: form.write(result, sink), flags.out)
    if flags.out is not None:
        call.output.note(f"wrote {len(result)} rows to {flags.out}")


def _refuse_terminal(form: Form, out: Path | None) -> None:
    if form.format is Format.ARROW and out is None and sys.stdout.isatty():
        raise InvalidRequest(
            "arrow is not for a terminal", remedy="Give --out FILE, or send the output to a program"
        )
