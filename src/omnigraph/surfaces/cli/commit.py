"""The history of a branch: its commits as a list, as a drawing and one by one; and where its head is."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.surfaces.cli.diff import commit_changes
from omnigraph.surfaces.cli.support.call import Address, GraphUri, call_of
from omnigraph.surfaces.cli.support.command_line import Commands
from omnigraph.surfaces.cli.support.output import graph_and_words, shown_time

if TYPE_CHECKING:
    from omnigraph.engine.graph import Graph
    from omnigraph.storage.manifest.records import CommitRecord

# -- commits -----------------------------------------------------------------------------------------


app = Commands(help="Who changed what, when.")
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="So many commits at most.")]
Before = Annotated[
    str | None, typer.Option("--before", metavar="ID", help="Go on after this commit of the last page.")
]


@app.command("list", example="omnigraph commit list kb.og --actor ada --limit 10 --json")
def list_(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    limit: Limit = 50,
    before: Before = None,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="ACTOR", help="Only the commits of this actor.")
    ] = None,
) -> None:
    """List the commits of a branch, newest first, those it inherited included."""
    from omnigraph.engine.write import commit_json

    call = call_of(ctx)
    with call.connect(address, graph_uri) as graph:
        page = graph.commits.list(call.settings.branch, limit, before, actor=actor)
    lines = list(_table(page.commits))
    if page.next is not None:
        lines.append(f"more: --before {page.next}")
    call.output.result({"commits": [commit_json(commit) for commit in page], "next": page.next}, *lines)


@app.command("show", example="omnigraph commit show kb.og 01M7P8ZYBNVXRX7P3NHXTSGM9Z")
def show(
    ctx: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="[ADDR] ID", help="The graph, and the commit: its id, or a tag.")
    ],
    graph_uri: GraphUri = None,
) -> None:
    """Show one commit, whichever branch made it."""
    from omnigraph.engine.write import commit_json

    call = call_of(ctx)
    where, (at,) = graph_and_words(call.settings, words, graph_uri, "ID")
    with call.connect(where) as graph:
        commit = graph.commits.get(at, branch=call.settings.branch)
    document = commit_json(commit) or {}
    call.output.result(document, *_pairs(document, commit))


app.command("changes", example="omnigraph commit changes kb.og 01M7P8ZYBNVXRX7P3NHXTSGM9Z")(commit_changes)


def log(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    limit: Limit = 50,
    graph: Annotated[
        bool, typer.Option("--graph", help="Draw how commits hang together, merged branches included.")
    ] = False,
) -> None:
    """Show the history of a branch, newest first, one line for each commit."""
    from omnigraph.engine.write import commit_json

    call = call_of(ctx)
    with call.connect(address, graph_uri) as opened:
        if graph:
            commits = opened.commits.graph(call.settings.branch, limit)
        else:
            commits = opened.commits.list(call.settings.branch, limit).commits
    rows = draw(commits) if graph else (("*", commit) for commit in commits)
    lines = [drawn if commit is None else f"{drawn} {_line(commit)}".rstrip() for drawn, commit in rows]
    call.output.result({"commits": [commit_json(commit) for commit in commits]}, *lines)


def _table(commits: tuple[CommitRecord, ...]) -> Iterator[str]:
    branches = max((len(commit.branch) for commit in commits), default=0)
    actors = max((len(commit.actor or "-") for commit in commits), default=0)
    for commit in commits:
        place = f"{commit.id}  {commit.branch:<{branches}}  {commit.manifest_version:>4}"
        about = (
            f"{commit.actor or '-':<{actors}}  {shown_time(commit.authored_at_us)}  {commit.kind.value:<11}"
        )
        yield f"{place}  {about}  {commit.message or ''}".rstrip()


def _line(commit: CommitRecord) -> str:
    about = commit.message or commit.kind.value
    merged = "" if commit.merged_parent is None else f" (merge of {commit.merged_parent})"
    author = f"{commit.branch} {commit.actor or '-'}"
    return f"{commit.id} {shown_time(commit.authored_at_us)} {author}: {about}{merged}"


def _pairs(document: dict[str, Any], commit: CommitRecord) -> Iterator[str]:
    shown = {**document, "created_at": shown_time(commit.authored_at_us)}
    width = max(len(key) for key in shown)
    for key, value in shown.items():
        yield f"{key:<{width}}  {'-' if value is None else value}"
    for change in commit.tables:
        counts = f"{change.inserted} inserted, {change.updated} updated, {change.deleted} deleted"
        yield f"  {change.name}: {counts}"


# -- snapshot ----------------------------------------------------------------------------------------


KINDS = ("node", "edge")


def snapshot(ctx: typer.Context, address: Address = None, graph_uri: GraphUri = None) -> None:
    """Show the commit at the head of a branch, and the number of entities of each type."""
    call = call_of(ctx)
    with call.connect(address, graph_uri) as graph:
        fetch = getattr(graph, "snapshot", None)  # of a served graph, whose store is elsewhere
        branch = call.settings.branch
        document = _snapshot_document(graph, branch) if fetch is None else fetch(branch)
    call.output.result(document, *_snapshot_lines(document))


def _snapshot_document(graph: Graph, branch: str) -> dict[str, Any]:
    from omnigraph.storage.manifest.formats import FORMAT

    head = graph.store.snapshot(branch)
    pins = sorted(head.state.pins.values(), key=lambda pin: (KINDS.index(pin.kind), pin.name))
    return {
        "graph_branch": head.branch,
        "graph_manifest_version": head.state.version,
        "internal_schema_version": FORMAT,
        "graph_commit_id": head.commit_id,
        "datasets": [
            {
                "entity_kind": pin.kind,
                "type_name": pin.name,
                "entity_count": pin.rows,
                "published_dataset_version": str(pin.version),  # beyond what JSON readers keep exactly
            }
            for pin in pins
        ],
    }


def _snapshot_lines(document: dict[str, Any]) -> Iterator[str]:
    place = f"branch {document['graph_branch']}, version {document['graph_manifest_version']}"
    yield f"{place}, commit {document['graph_commit_id']}"
    datasets = document["datasets"]
    width = max((len(dataset["type_name"]) for dataset in datasets), default=0)
    for dataset in datasets:
        yield f"  {dataset['entity_kind']} {dataset['type_name']:<{width}}  {dataset['entity_count']}"


# -- the drawing of `log --graph` --------------------------------------------------------------------
#
# Every commit is a `*` in a lane; a lane leads down to the next commit that it waits for, two that wait for
# the same one join above it, and a merge opens one for its second parent.


Lanes = list[str | None]  # the commit that each lane leads to; None where a lane has ended


def draw(commits: Sequence[CommitRecord]) -> Iterator[tuple[str, CommitRecord | None]]:
    """Yield lines from the top: the drawing, and the commit that stands on it, if one does."""
    shown = {commit.id for commit in commits}
    lanes: Lanes = []
    for commit in newest_first(commits):
        waiting = [at for at, awaited in enumerate(lanes) if awaited == commit.id]
        here = waiting[0] if waiting else _free(lanes, 0)
        for other in waiting[1:]:
            yield _joint(lanes, here, other, "/"), None
            lanes[other] = None
        lanes[here] = commit.id
        yield _row(lanes, here), commit
        lanes[here] = commit.parent if commit.parent in shown else None
        if commit.merged_parent in shown:
            aside = _free(lanes, here + 1)
            lanes[aside] = commit.merged_parent
            yield _joint(lanes, here, aside, "\\"), None
        while lanes and lanes[-1] is None:
            lanes.pop()


def newest_first(commits: Iterable[CommitRecord]) -> Iterator[CommitRecord]:
    """Yield every commit before its parents; of those that may come next, the one with the greatest id."""
    known = {commit.id: commit for commit in commits}
    children = dict.fromkeys(known, 0)
    for commit in known.values():
        for parent in _parents(commit, known):
            children[parent] += 1
    ready = [_Newer(commit_id) for commit_id, count in children.items() if count == 0]
    heapq.heapify(ready)
    while ready:
        commit = known[heapq.heappop(ready)]
        yield commit
        for parent in _parents(commit, known):
            children[parent] -= 1
            if children[parent] == 0:
                heapq.heappush(ready, _Newer(parent))


class _Newer(str):
    """An id that sorts before older ones."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


def _parents(commit: CommitRecord, known: dict[str, CommitRecord]) -> set[str]:
    parents = (commit.parent, commit.merged_parent)
    return {parent for parent in parents if parent is not None and parent in known}


def _free(lanes: Lanes, start: int) -> int:
    """Return the first lane from `start` on that leads nowhere, making one if need be."""
    while len(lanes) <= start:
        lanes.append(None)
    for at in range(start, len(lanes)):
        if lanes[at] is None:
            return at
    lanes.append(None)
    return len(lanes) - 1


def _row(lanes: Lanes, here: int) -> str:
    marks = ["*" if at == here else " " if awaited is None else "|" for at, awaited in enumerate(lanes)]
    return " ".join(marks).rstrip()


def _joint(lanes: Lanes, here: int, other: int, bend: str) -> str:
    """Draw the line between a lane and another one to its right that ends or begins."""
    others = [None if at == other else awaited for at, awaited in enumerate(lanes)]
    marks = list(_row(others, -1).ljust(2 * other + 1))
    marks[2 * here] = "|"
    for at in range(2 * here + 1, 2 * other - 1, 2):
        marks[at] = "_"
    marks[2 * other - 1] = bend
    return "".join(marks).rstrip()
