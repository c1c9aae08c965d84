"""What changed: between two states, in one commit, since a cursor, and to one entity through time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.base.errors import EntityNotFound, InvalidRequest, counted
from omnigraph.base.times import FORMS
from omnigraph.surfaces.cli.support.call import Address, Call, GraphUri, call_of
from omnigraph.surfaces.cli.support.command_line import Commands
from omnigraph.surfaces.cli.support.output import graph_and_words, shown_time

if TYPE_CHECKING:
    from omnigraph.catalog.steps import Step
    from omnigraph.engine.history.changes import Cause, Change
    from omnigraph.engine.history.diff import Diff
    from omnigraph.engine.history.feed import FeedCommit, FeedPage

LIMIT = 1_000  # changes
SIGNS = {"insert": "+", "update": "~", "delete": "-"}
WIDTH = 60  # characters of a value

Kinds = Annotated[
    list[str] | None, typer.Option("--kind", metavar="node|edge", help="Only changes of nodes, or of edges.")
]
Types = Annotated[
    list[str] | None, typer.Option("--type", metavar="T", help="Only changes of this type; repeatable.")
]
Ops = Annotated[
    list[str] | None,
    typer.Option("--op", metavar="insert|update|delete", help="Only changes of this sort; repeatable."),
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="So many changes at most.")]


def change_line(change: Change) -> str:
    """Return a change as one line."""
    line = f"{SIGNS[change.op.value]} {change.kind} {change.text}"
    before, after = change.before or {}, change.after or {}
    updates = [f"{name}: {value_text(before, name)} -> {value_text(after, name)}" for name in change.fields]
    return f"{line}  {', '.join(updates)}" if updates else line


def value_text(image: Any, name: str) -> str:
    """Return a value of an image, shortened; a blob is not in it."""
    if name not in image:
        return "(blob)"
    text = json.dumps(image[name], ensure_ascii=False, default=str)
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def cause_line(cause: Cause) -> str:
    """Return a commit as the head of its changes."""
    about = cause.message or cause.kind
    return (
        f"{cause.commit_id}  {shown_time(cause.authored_at)}  {cause.branch}  {cause.actor or '-'}: {about}"
    )


def step_lines(steps: Iterable[Step]) -> Iterator[str]:
    """Yield schema steps as lines."""
    from omnigraph.engine.history.diff import steps_json

    for step in steps_json(steps):
        name = step.get("type_name") or step.get("name") or step.get("from") or step.get("message")
        place = f"{name}.{step['property_name']}" if "property_name" in step else name
        renamed = f" -> {step['to']}" if isinstance(step.get("to"), str) else ""
        yield f"* {step['kind']} {place}{renamed}"


# -- changes of commits and entities -----------------------------------------------------------------


app = Commands(help="Follow what happens to a branch.")
entity_app = Commands(help="One entity through time.")
PageToken = Annotated[
    str | None, typer.Option("--page-token", metavar="T", help="Go on where the last page ended.")
]


@app.command("poll", example="omnigraph changes poll kb.og --start beginning --json")
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
        page = graph.changes.of(
            commit.id, kinds=kind, types=type_, ops=op, limit=limit, page_token=page_token
        )
    lines = list(_commit_lines(page.block))
    if page.page_token is not None:
        lines.append(f"more: --page-token {page.page_token}")
    call.output.result(page.to_json(), *lines)


@entity_app.command("history", example="omnigraph entity history kb.og Person Ada")
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
        history = graph.entity(type_name, entity_id).history(branch=call.settings.branch, limit=limit)
    if not history.versions and not history.reclaimed:
        raise EntityNotFound(
            f"{call.settings.branch!r} never had a {history.type_name} {entity_id!r}",
            remedy="Check the type, the id and the branch",
            type_name=history.type_name,
            entity_id=entity_id,
        )
    lines = [f"{history.kind} {history.type_name} {history.id}"]
    for version in history:
        lines += [cause_line(version.cause), f"  {change_line(version.change)}"]
    if history.more:
        lines.append("… there are older versions: give a higher --limit")
    if history.reclaimed:
        lines.append("… older history was cleaned")
    call.output.result(history.to_json(), *lines)


def _page_lines(page: FeedPage) -> Iterator[str]:
    for commit in page.blocks:
        yield from _commit_lines(commit)
    if page.page_token is not None:
        yield f"more: --page-token {page.page_token}"
        return
    yield "caught up" if page.caught_up else "there is more"
    yield f"cursor {page.cursor}"


def _commit_lines(commit: FeedCommit) -> Iterator[str]:
    yield cause_line(commit.cause)
    yield from (f"  {line}" for line in step_lines(commit.schema))
    yield from (f"  {change_line(change)}" for change in commit.changes)


# -- differences of two states -----------------------------------------------------------------------


Sides = Annotated[
    list[str],
    typer.Argument(metavar="[ADDR] A [B]", help=f"The graph, and two states: a branch, {FORMS}."),
]
Branches = Annotated[
    list[str], typer.Argument(metavar="[ADDR] NAME [INTO]", help="The graph, a branch, and another one.")
]
Stat = Annotated[bool, typer.Option("--stat", help="Only the numbers.")]


def diff(
    ctx: typer.Context,
    words: Sides,
    graph_uri: GraphUri = None,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    stat: Stat = False,
    limit: Limit = LIMIT,
) -> None:
    """Show what leads from A to B; without B, to the head of the branch."""
    call = call_of(ctx)
    where, (a, *b) = graph_and_sides(call, words, graph_uri)
    with call.connect(where) as graph:
        difference = graph.diff(a, b[0] if b else call.settings.branch, kinds=kind, types=type_, ops=op)
        show(call, difference, stat=stat, limit=limit)


def branch_diff(
    ctx: typer.Context,
    words: Branches,
    graph_uri: GraphUri = None,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    stat: Stat = False,
    limit: Limit = LIMIT,
) -> None:
    """Show what a branch has that another one, main if not given, has not, and the other way round."""
    call = call_of(ctx)
    where, (name, *into) = graph_and_sides(call, words, graph_uri)
    with call.connect(where) as graph:
        difference = graph.diff(into[0] if into else "main", name, kinds=kind, types=type_, ops=op)
        show(call, difference, stat=stat, limit=limit)


def show(call: Call, difference: Diff, *, stat: bool, limit: int) -> None:
    """Print a diff, numbers first."""
    if limit < 1:
        raise InvalidRequest(f"--limit {limit} shows nothing", remedy="Give --stat for the numbers alone")
    if call.settings.json:
        document = difference.to_json(limit)
        if stat:
            from omnigraph.engine.history.diff import stats_json, steps_json

            document = {"from": difference.from_commit_id, "to": difference.to_commit_id}
            document |= {"stats": stats_json(difference.types), "schema": steps_json(difference.schema)}
        call.output.result(document)
        return
    call.output.result({}, *_numbers(difference), *(() if stat else _changes(difference, limit)))


def graph_and_sides(call: Call, words: Sequence[str], graph_uri: str | None) -> tuple[str, list[str]]:
    """Tell a graph from one or two states: it is the first of three words, or of two if it reads as one."""
    first = graph_uri is None and (
        len(words) == 3 or (len(words) == 2 and call.settings.is_address(words[0]))
    )
    sides = list(words[1:] if first else words)
    if len(sides) not in (1, 2):
        raise InvalidRequest(
            f"{counted(len(words), 'word')} on the line", remedy="Give A, or A and B, after the graph"
        )
    return call.settings.address(words[0] if first else None, graph_uri), sides


def _numbers(difference: Diff) -> Iterator[str]:
    sides = [f"{side.commit_id} ({side.branch})" for side in (difference.before, difference.after)]
    yield f"from {sides[0]} to {sides[1]}"
    yield from step_lines(difference.schema)
    for counts in difference.types:
        numbers = f"{counts.inserted} inserted, {counts.updated} updated, {counts.deleted} deleted"
        yield f"  {counts.kind} {counts.name}: {numbers}"
    if not difference.types and not difference.schema:
        yield "no difference"


def _changes(difference: Diff, limit: int) -> Iterator[str]:
    yield from (change_line(change) for change in islice(difference.changes(), limit))
    left = sum(counts.inserted + counts.updated + counts.deleted for counts in difference.types) - limit
    if left > 0:
        yield f"… {left} more: give a higher --limit, or choose with --type and --op"
