"""Branches and tags: names that move with commits, and names that never do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.surfaces.cli.diff import branch_diff
from omnigraph.surfaces.cli.merge import merge
from omnigraph.surfaces.cli.support.call import Address, GraphUri, call_of
from omnigraph.surfaces.cli.support.command_line import Commands
from omnigraph.surfaces.cli.support.output import graph_and_words, shown_time

if TYPE_CHECKING:
    from omnigraph.engine.branches import Branch

# -- branches ----------------------------------------------------------------------------------------


app = Commands(help="Make, list, rename and delete branches.")
Name = Annotated[list[str], typer.Argument(metavar="[ADDR] NAME", help="The graph, and the branch.")]
Names = Annotated[list[str], typer.Argument(metavar="[ADDR] OLD NEW", help="The graph, and both names.")]


@app.command("create", example="omnigraph branch create kb.og review --from main")
def create(
    ctx: typer.Context,
    words: Name,
    graph_uri: GraphUri = None,
    from_: Annotated[
        str, typer.Option("--from", metavar="BRANCH", help="The branch to fork; main if not given.")
    ] = "main",
    from_commit: Annotated[
        str | None,
        typer.Option("--from-commit", metavar="AT", help="A past state: a commit id, tag or time."),
    ] = None,
) -> None:
    """Fork a branch. Copies no data; costs the same whatever the size of the graph."""
    call = call_of(ctx)
    where, (name,) = graph_and_words(call.settings, words, graph_uri, "NAME")
    if not call.settings.dry_run:
        call.output.target("branch create", where)
    with call.connect(where) as graph:
        branch = graph.branches.create(name, from_, at=from_commit, dry_run=call.settings.dry_run)
        document = {
            "uri": graph.uri,
            "from": branch.parent,
            "name": branch.name,
            "actor_id": call.actor(where),
        }
        verb = "would create" if call.settings.dry_run else "created"
        call.output.result(
            {**document, "graph_commit_id": branch.head, "dry_run": call.settings.dry_run},
            f"{verb} branch {branch.name} from {branch.parent}",
        )


@app.command("list", example="omnigraph branch list kb.og --long --json")
def list_(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    long: Annotated[
        bool, typer.Option("--long", help="Also heads, ages, parents and commit counts.")
    ] = False,
) -> None:
    """List the branches, main first, then by name."""
    call = call_of(ctx)
    with call.connect(address, graph_uri) as graph:
        branches = graph.branches.list(counts=long)
    document: dict[str, object] = {"branches": [branch.name for branch in branches]}
    if long:
        document["details"] = [branch.to_json() for branch in branches]
    call.output.result(document, *(_long_lines(branches) if long else document["branches"]))  # type: ignore[misc]


@app.command("rename", example="omnigraph branch rename kb.og review accepted")
def rename(ctx: typer.Context, words: Names, graph_uri: GraphUri = None) -> None:
    """Give a branch another name, at one instant for everybody."""
    call = call_of(ctx)
    where, (old, new) = graph_and_words(call.settings, words, graph_uri, "OLD", "NEW")
    if not call.settings.dry_run:
        call.output.target("branch rename", where)
    with call.connect(where) as graph:
        renamed = graph.branches.rename(old, new, dry_run=call.settings.dry_run)
        verb = "would rename" if call.settings.dry_run else "renamed"
        call.output.result(
            {
                "uri": graph.uri,
                "from": old.strip(),
                "name": renamed.name,
                "actor_id": call.actor(where),
                "dry_run": call.settings.dry_run,
            },
            f"{verb} branch {old.strip()} to {renamed.name}",
        )


@app.command("delete", example="omnigraph branch delete kb.og review --dry-run")
def delete(ctx: typer.Context, words: Name, graph_uri: GraphUri = None) -> None:
    """Delete a branch that nothing was forked from and nothing of which is tagged."""
    call = call_of(ctx)
    where, (name,) = graph_and_words(call.settings, words, graph_uri, "NAME")
    call.require_yes("branch delete", where, destroys=f"branch {name}")
    if not call.settings.dry_run:
        call.output.target("branch delete", where)
    with call.connect(where) as graph:
        deleted = graph.branches.delete(name, dry_run=call.settings.dry_run)
        verb = "would delete" if call.settings.dry_run else "deleted"
        document = {"uri": graph.uri, "name": deleted.name, "actor_id": call.actor(where)}
        call.output.result(
            {**document, "graph_commit_id": deleted.head, "dry_run": call.settings.dry_run},
            f"{verb} branch {deleted.name}",
            f"  it was at commit {deleted.head}",
        )


def _long_lines(branches: Sequence[Branch]) -> Iterator[str]:
    width = max(len(branch.name) for branch in branches)
    for branch in branches:
        line = f"{branch.name:<{width}}  {branch.head}  {shown_time(branch.created_us)}"
        if branch.parent is not None:
            line += f"  from {branch.parent}: {branch.ahead} ahead, {branch.behind} behind"
        yield line


app.command("merge", example="omnigraph branch merge kb.og review --preview")(merge)
app.command("diff", example="omnigraph branch diff kb.og review --stat")(branch_diff)


# -- tags --------------------------------------------------------------------------------------------


tag_app = Commands(help="Give commits names that never move.")
TagName = Annotated[list[str], typer.Argument(metavar="[ADDR] NAME", help="The graph, and the tag.")]


@tag_app.command("create", example="omnigraph tag create kb.og v1 --message release --as ada")
def create_tag(
    ctx: typer.Context,
    words: TagName,
    graph_uri: GraphUri = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="AT", help="A past state; the head of the branch if not given."),
    ] = None,
    message: Annotated[
        str | None, typer.Option("--message", metavar="TEXT", help="Why; kept with the tag.")
    ] = None,
) -> None:
    """Name the commit at the head of a branch, or a past one."""
    call = call_of(ctx)
    settings = call.settings
    where, (name,) = graph_and_words(settings, words, graph_uri, "NAME")
    if not settings.dry_run:
        call.output.target("tag create", where)
    with call.connect(where) as graph:
        tag = graph.tags.create(
            name,
            at,
            branch=settings.branch,
            actor=call.actor(where),
            message=message,
            dry_run=settings.dry_run,
        )
        verb = "would tag" if settings.dry_run else "tagged"
        call.output.result(
            {"uri": graph.uri, **tag.to_json(), "dry_run": settings.dry_run},
            f"{verb} commit {tag.commit_id} as {tag.name}",
        )


@tag_app.command("list", example="omnigraph tag list kb.og --json")
def list_tags(ctx: typer.Context, address: Address = None, graph_uri: GraphUri = None) -> None:
    """List the tags by name, with their commits."""
    call = call_of(ctx)
    with call.connect(address, graph_uri) as graph:
        tags = graph.tags.list()
    width = max((len(tag.name) for tag in tags), default=0)
    lines = [
        f"{tag.name:<{width}}  {tag.commit_id}  {shown_time(tag.created_us)}  {tag.message or ''}".rstrip()
        for tag in tags
    ]
    call.output.result({"tags": [tag.to_json() for tag in tags]}, *lines)


@tag_app.command("delete", example="omnigraph tag delete kb.og v1 --dry-run")
def delete_tag(ctx: typer.Context, words: TagName, graph_uri: GraphUri = None) -> None:
    """Take a name away; the commit stays."""
    call = call_of(ctx)
    where, (name,) = graph_and_words(call.settings, words, graph_uri, "NAME")
    if not call.settings.dry_run:
        call.output.target("tag delete", where)
    with call.connect(where) as graph:
        deleted = graph.tags.delete(name, dry_run=call.settings.dry_run)
        verb = "would delete" if call.settings.dry_run else "deleted"
        call.output.result(
            {"uri": graph.uri, **deleted.to_json(), "dry_run": call.settings.dry_run},
            f"{verb} tag {deleted.name}",
            f"  it named commit {deleted.commit_id}",
        )
