"""Mutate: run one mutation as one commit."""

from __future__ import annotations

import typer

from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.query import CheckedMutation
from omnigraph.engine.receipt import Receipt
from omnigraph.surfaces.cli.frame import (
    Call,
    GraphUri,
    IdempotencyKey,
    IfCommit,
    Message,
    call_of,
    note_old_spelling,
)
from omnigraph.surfaces.cli.params import Param, Params, ParamsFile
from omnigraph.surfaces.cli.query_source import Asked, Inline, OldName, QueryFile, Words, asked


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
