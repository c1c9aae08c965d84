"""Query, mutate, explain, profile: the commands that run one query.

Each passes text and parameters on to the engine, which compiles and binds them once, on the snapshot that it
reads.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, counted
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
    Inline,
    OldName,
    Param,
    Params,
    ParamsFile,
    QueryFile,
    QueryRequest,
    Snapshot,
    Words,
    query_request,
    read_at,
)

if TYPE_CHECKING:
    from omnigraph.engine.graph import Graph
    from omnigraph.engine.write import Receipt
    from omnigraph.execution.result import Result

# -- query -------------------------------------------------------------------------------------------


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
    def names(self) -> list[str]:
        """The names of those that are on the line."""
        flags = {
            "--snapshot": self.snapshot is not None,
            "--format": self.format is not None,
            "--explain": self.explain,
            "--with-metadata": self.with_metadata,
            "--out": self.out is not None,
        }
        return [name for name, present in flags.items() if present]


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
    request = query_request(call, words, graph_uri, old_name, query, inline, param, params, params_file)
    run_read(call, request, ReadFlags(snapshot, form, explain, with_metadata, out))


def run_read(call: Call, request: QueryRequest, flags: ReadFlags, *, alias_format: Any = None) -> None:
    """Run a read as its flags say."""
    at = read_at(call.settings, flags.snapshot)
    if flags.explain:
        for name in ("--format", "--with-metadata", "--out"):
            if name in flags.names:
                raise InvalidRequest(
                    f"--explain has no rows, so {name} does not go with it", remedy="Give one"
                )
        _show_plan(call, request, at)
        return
    form = choose(
        call.settings,
        flags.format,
        alias=alias_format,
        with_metadata=flags.with_metadata,
        past=at is not None,
    )
    _refuse_terminal(form, flags.out)
    with call.connect(request.address, stored=request.text is None) as graph:
        result = _read(call, graph, request, at)
    call.output.stream(lambda sink: form.write(result, sink), flags.out)
    if flags.out is not None:
        call.output.note(f"wrote {counted(len(result), 'row')} to {flags.out}")


def _read(call: Call, graph: Graph, request: QueryRequest, at: str | None) -> Result:
    if request.text is not None:
        return graph.query(**request.arguments(), branch=call.settings.branch, at=at)
    assert request.name is not None
    stored = graph.run(
        request.name, request.params, branch=call.settings.branch, at=at, expect_mutation=False
    )
    return cast("Result", stored)


def _refuse_terminal(form: Form, out: Path | None) -> None:
    if form.format is ResultFormat.ARROW and out is None and sys.stdout.isatty():
        raise InvalidRequest(
            "arrow is not for a terminal", remedy="Give --out FILE, or send the output to a program"
        )


# -- mutate ------------------------------------------------------------------------------------------


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
    request = query_request(call, words, graph_uri, old_name, query, inline, param, params, params_file)
    run_mutation(call, request, if_commit=if_commit, message=message, idempotency_key=idempotency_key)


def run_mutation(
    call: Call,
    request: QueryRequest,
    *,
    if_commit: str | None = None,
    message: str | None = None,
    idempotency_key: str | None = None,
) -> None:
    """Run a mutation."""
    settings = call.settings
    with call.connect(request.address, stored=request.text is None) as graph:
        if not settings.dry_run:
            call.output.writing()
        writing: dict[str, Any] = {
            "branch": settings.branch,
            "if_commit": if_commit,
            "idempotency_key": idempotency_key,
        }
        actor = call.actor(request.address)
        receipt = (
            _run_stored(call, graph, request, {**writing, "message": message, "actor": actor})
            if request.text is None
            else graph.mutate(
                **request.arguments(), **writing, message=message, actor=actor, dry_run=settings.dry_run
            )
        )
        _show_receipt(call, graph, request, receipt)


def _show_receipt(call: Call, graph: Graph, request: QueryRequest, receipt: Receipt) -> None:
    if not receipt.dry_run:  # named once it was written to: a fault in the text is shown alone
        call.output.target("mutate", request.address, writes=False)
    for warning in receipt.warnings:
        call.output.note(f"warning: {warning}")
    call.output.result({"uri": graph.uri, **receipt.to_json()}, *_receipt_lines(receipt))


def run_stored(call: Call, request: QueryRequest, flags: ReadFlags, *, alias_format: Any = None) -> None:
    """Run a stored query of which only the graph knows whether it reads or writes."""
    from omnigraph.execution.result import Result

    if call.settings.dry_run or flags.explain:
        raise InvalidRequest("a stored query has no dry run and no plan", remedy="Give its text with -e")
    at = read_at(call.settings, flags.snapshot)
    form = choose(
        call.settings,
        flags.format,
        alias=alias_format,
        with_metadata=flags.with_metadata,
        past=at is not None,
    )
    _refuse_terminal(form, flags.out)
    assert request.name is not None
    with call.connect(request.address, stored=True) as graph:
        call.output.writing()
        answer = graph.run(
            request.name,
            request.params,
            branch=call.settings.branch,
            at=at,
            actor=call.actor(request.address),
        )
        if not isinstance(answer, Result):
            _show_receipt(call, graph, request, answer)
            return
    call.output.stream(lambda sink: form.write(answer, sink), flags.out)


def _run_stored(call: Call, graph: Graph, request: QueryRequest, writing: dict[str, Any]) -> Receipt:
    if call.settings.dry_run:
        raise InvalidRequest("a stored mutation has no dry run", remedy="Give its text with --query or -e")
    assert request.name is not None
    return cast("Receipt", graph.run(request.name, request.params, **writing, expect_mutation=True))


def _receipt_lines(receipt: Receipt) -> list[str]:
    name, branch = receipt.query_name, receipt.branch
    counts = f"{counted(receipt.affected_nodes, 'node')}, {counted(receipt.affected_edges, 'edge')}"
    if receipt.dry_run:
        return [f"would change {branch} via {name}: {counts}", "  nothing was written"]
    if receipt.commit is None:
        return [f"nothing matched {name} on {branch}: no commit was made"]
    first = f"changed {branch} via {name}: {counts}"
    if receipt.replayed:
        first = f"changed {branch} via {name} before, under the same idempotency key: nothing to do"
    return [first, f"  actor {receipt.actor or '-'}", f"  commit {receipt.commit_id}"]


# -- explain and profile -----------------------------------------------------------------------------


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
    request = query_request(call, words, graph_uri, None, query, inline, param, params, params_file)
    _show_plan(call, request, read_at(call.settings, snapshot))


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
    request = query_request(call, words, graph_uri, None, query, inline, param, params, params_file)
    _show_plan(call, request, read_at(call.settings, snapshot), measured=True)


def _show_plan(call: Call, request: QueryRequest, at: str | None, *, measured: bool = False) -> None:
    """Print the plan of a read; if `measured`, with what running it showed."""
    with call.connect(request.address) as graph:
        describe = graph.profile if measured else graph.explain
        explanation = describe(**request.arguments(), branch=call.settings.branch, at=at)
    call.output.result(explanation.to_json(), str(explanation))
