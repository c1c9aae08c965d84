"""Query: run one read and write its rows."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.query import CheckedMutation
from omnigraph.engine.receipt import Receipt
from omnigraph.surfaces.cli.support.call import (
    Call,
    GraphUri,
    IdempotencyKey,
    IfCommit,
    Message,
    call_of,
    note_old_spelling,
)
from omnigraph.surfaces.cli.support.formats import Form, ResultFormat, choose
from omnigraph.surfaces.cli.support.params import (
    Asked,
    Inline,
    OldName,
    Param,
    Params,
    ParamsFile,
    QueryFile,
    Snapshot,
    Words,
    asked,
    moment,
)

# -- explain and profile -------------------------------------------------------------------------
#
# How a read would run, and what each of its steps did.


def explain(
    ctx: typer.Context,
    words: Words = None,
    graph_uri: GraphUri = None,
    query: QueryFile = None,
    inline: Inline = None,
    param: Param = None,
    params: Params = None,
    params_file: ParamsFile = None,
    snapshot: Snapshot = None,
) -> None:
    """Say how a read would run; run nothing."""
    call = call_of(ctx)
    wanted = asked(call, words, graph_uri, None, query, inline, param, params, params_file)
    show_plan(call, wanted, moment(call.settings, snapshot))


def profile(
    ctx: typer.Context,
    words: Words = None,
    graph_uri: GraphUri = None,
    query: QueryFile = None,
    inline: Inline = None,
    param: Param = None,
    params: Params = None,
    params_file: ParamsFile = None,
    snapshot: Snapshot = None,
) -> None:
    """Run a read and say what each step did: rows, time, requests, choices."""
    call = call_of(ctx)
    wanted = asked(call, words, graph_uri, None, query, inline, param, params, params_file)
    show_plan(call, wanted, moment(call.settings, snapshot), measured=True)


def show_plan(call: Call, wanted: Asked, at: str | None, *, measured: bool = False) -> None:
    """Print the plan of a read; if `measured`, with what running it showed."""
    with call.connect(wanted.where) as graph:
        checked = wanted.check_read(graph.schema.for_reads(call.settings.branch, at))
        describe = graph.profile if measured else graph.explain
        found = describe(
            wanted.source.text,
            wanted.given.bound(checked.parameters),
            query_name=checked.name,
            branch=call.settings.branch,
            at=at,
        )
    call.output.result(found.to_json(), str(found))


# -- query ---------------------------------------------------------------------------------------


FormatFlag = Annotated[
    ResultFormat | None, typer.Option("--format", help="How to write the rows; a table if not given.")
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
    format: ResultFormat | None = None
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
    if form.format is ResultFormat.ARROW and out is None and sys.stdout.isatty():
        raise InvalidRequest(
            "arrow is not for a terminal", remedy="Give --out FILE, or send the output to a program"
        )


# -- mutate --------------------------------------------------------------------------------------
#
# Run one mutation as one commit.


def mutate(
    ctx: typer.Context,
    words: Words = None,
    graph_uri: GraphUri = None,
    query: QueryFile = None,
    inline: Inline = None,
    param: Param = None,
    params: Params = None,
    params_file: ParamsFile = None,
    if_commit: IfCommit = None,
    message: Message = None,
    idempotency_key: IdempotencyKey = None,
    old_name: OldName = None,
) -> None:
    """Insert, update or delete: one mutation, one commit, or none when nothing matched."""
    call = call_of(ctx)
    note_old_spelling(ctx, "mutate")
    wanted = asked(call, words, graph_uri, old_name, query, inline, param, params, params_file)
    write(call, wanted, if_commit=if_commit, message=message, idempotency_key=idempotency_key)


def write(
    call: Call,
    wanted: Asked,
    *,
    if_commit: str | None = None,
    message: str | None = None,
    idempotency_key: str | None = None,
) -> None:
    """Run a mutation."""
    settings = call.settings
    with call.connect(wanted.where) as graph:
        checked = wanted.check(graph.schema.catalog(settings.branch))
        if not isinstance(checked, CheckedMutation):
            raise InvalidRequest(
                f"query {checked.name!r} reads and changes nothing", remedy="Run it with query, not mutate"
            )
        values = wanted.given.bound(checked.parameters)
        if not settings.dry_run:
            call.output.target("mutate", wanted.where)
        receipt = graph.mutate(
            wanted.source.text,
            values,
            query_name=checked.name,
            branch=settings.branch,
            if_commit=if_commit,
            idempotency_key=idempotency_key,
            message=message,
            actor=settings.actor,
            dry_run=settings.dry_run,
        )
        for warning in receipt.warnings:
            call.output.note(f"warning: {warning}")
        call.output.result({"uri": graph.uri, **receipt.to_json()}, *_lines(receipt, checked.name))


def _lines(receipt: Receipt, name: str) -> list[str]:
    counts = f"{receipt.affected_nodes} nodes, {receipt.affected_edges} edges"
    if receipt.dry_run:
        return [f"would change {receipt.branch} via {name}: {counts}", "  nothing was written"]
    if receipt.commit is None:
        return [f"nothing matched {name} on {receipt.branch}: no commit was made"]
    done = f"changed {receipt.branch} via {name}: {counts}"
    if receipt.replayed:
        done = f"changed {receipt.branch} via {name} before, under the same idempotency key: nothing to do"
    return [done, f"  actor {receipt.actor or '-'}", f"  commit {receipt.commit_id}"]
