"""Changes: the feed of a branch, the changes of one commit, the versions of one entity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from omnigraph.base.errors import EntityNotFound, InvalidRequest
from omnigraph.engine.history.feed import Block, FeedPage
from omnigraph.engine.history.packing import LIMIT
from omnigraph.surfaces.cli.changed import (
    Kinds,
    Limit,
    Ops,
    Types,
    cause_line,
    change_line,
    step_lines,
)
from omnigraph.surfaces.cli.frame import Address, GraphUri, call_of
from omnigraph.surfaces.cli.words import graph_and_words

app = typer.Typer(help="Follow what happens to a branch.", no_args_is_help=True)
entity_app = typer.Typer(help="One entity through time.", no_args_is_help=True)
PageToken = Annotated[
    str | None, typer.Option("--page-token", metavar="T", help="Go on where the last page ended.")
]


@app.command("poll")
def poll(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="C", help="What happened since; from an earlier poll.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--start", "--from", metavar="WHERE", help="now, beginning or after:COMMIT; now if not given."
        ),
    ] = None,
    page_token: PageToken = None,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    limit: Limit = LIMIT,
    wait: Annotated[
        float | None, typer.Option("--wait", metavar="SECONDS", help="Wait so long for something to happen.")
    ] = None,
) -> None:
    """Show the commits of a branch since a cursor, with what each of them changed."""
    call = call_of(ctx)
    if wait is not None and page_token is not None:
        raise InvalidRequest("--wait and --page-token exclude each other", remedy="Read the page first")
    with call.connect(address, graph_uri) as graph:
        page = graph.changes.wait(
            cursor,
            timeout=wait or 0.0,
            branch=call.settings.branch,
            start=start,
            page_token=page_token,
            kinds=kind,
            types=type_,
            ops=op,
            limit=limit,
        )
    call.output.result(page.to_json(), *_page_lines(page))


def commit_changes(
    ctx: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="[ADDR] ID", help="The graph, and the commit: its id, or a tag.")
    ],
    graph_uri: GraphUri = None,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    limit: Limit = LIMIT,
    page_token: PageToken = None,
) -> None:
    """Show what one commit changed, against the commit before it."""
    call = call_of(ctx)
    where, (at,) = graph_and_words(call.settings, words, graph_uri, "ID")
    with call.connect(where) as graph:
        commit = graph.commits.get(at, branch=call.settings.branch)
        found = graph.changes.of(
            commit.id, kinds=kind, types=type_, ops=op, limit=limit, page_token=page_token
        )
    lines = list(_block_lines(found.block))
    if found.page_token is not None:
        lines.append(f"more: --page-token {found.page_token}")
    call.output.result(found.to_json(), *lines)


@entity_app.command("history")
def entity_history(
    ctx: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="[ADDR] TYPE ID", help="The graph, a type, and an entity of it.")
    ],
    graph_uri: GraphUri = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="So many versions at most.")] = 50,
) -> None:
    """List the versions of one entity, newest first: who changed what, when."""
    call = call_of(ctx)
    where, (type_name, entity_id) = graph_and_words(call.settings, words, graph_uri, "TYPE", "ID")
    with call.connect(where) as graph:
        found = graph.entity(type_name, entity_id).history(branch=call.settings.branch, limit=limit)
    if not found.versions and not found.reclaimed:
        raise EntityNotFound(
            f"{call.settings.branch!r} never had a {found.type_name} {entity_id!r}",
            remedy="Check the type, the id and the branch",
            type_name=found.type_name,
            entity_id=entity_id,
        )
    lines = [f"{found.kind} {found.type_name} {found.id}"]
    for version in found:
        lines += [cause_line(version.cause), f"  {change_line(version.change)}"]
    if found.more:
        lines.append("… there are older versions: give a higher --limit")
    if found.reclaimed:
        lines.append("… older history was cleaned")
    call.output.result(found.to_json(), *lines)


def _page_lines(page: FeedPage) -> Iterator[str]:
    for block in page.blocks:
        yield from _block_lines(block)
    if page.page_token is not None:
        yield f"more: --page-token {page.page_token}"
        return
    yield "caught up" if page.caught_up else "there is more"
    yield f"cursor {page.cursor}"


def _block_lines(block: Block) -> Iterator[str]:
    yield cause_line(block.cause)
    yield from (f"  {line}" for line in step_lines(block.schema))
    yield from (f"  {change_line(change)}" for change in block.changes)
