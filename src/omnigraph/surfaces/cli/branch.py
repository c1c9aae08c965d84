"""Branch commands: create, list, rename, delete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from omnigraph.engine.branches import Branch
from omnigraph.surfaces.cli.commit import shown_time
from omnigraph.surfaces.cli.support.call import Address, GraphUri, call_of
from omnigraph.surfaces.cli.support.output import graph_and_words

app = typer.Typer(help="Make, list, rename and delete branches.", no_args_is_help=True)
Name = Annotated[list[str], typer.Argument(metavar="[ADDR] NAME", help="The graph, and the branch.")]
Names = Annotated[list[str], typer.Argument(metavar="[ADDR] OLD NEW", help="The graph, and both names.")]


@app.command("create")
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
        made = graph.branches.create(name, from_, at=from_commit, dry_run=call.settings.dry_run)
        document = {"uri": graph.uri, "from": made.parent, "name": made.name, "actor_id": call.settings.actor}
        said = "would create" if call.settings.dry_run else "created"
        call.output.result(
            {**document, "graph_commit_id": made.head, "dry_run": call.settings.dry_run},
            f"{said} branch {made.name} from {made.parent}",
        )


@app.command("list")
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
        found = graph.branches.list(counts=long)
    document: dict[str, object] = {"branches": [branch.name for branch in found]}
    if long:
        document["details"] = [branch.to_json() for branch in found]
    call.output.result(document, *(_long_lines(found) if long else document["branches"]))  # type: ignore[misc]


@app.command("rename")
def rename(ctx: typer.Context, words: Names, graph_uri: GraphUri = None) -> None:
    """Give a branch another name, at one instant for everybody."""
    call = call_of(ctx)
    where, (old, new) = graph_and_words(call.settings, words, graph_uri, "OLD", "NEW")
    if not call.settings.dry_run:
        call.output.target("branch rename", where)
    with call.connect(where) as graph:
        made = graph.branches.rename(old, new, dry_run=call.settings.dry_run)
        said = "would rename" if call.settings.dry_run else "renamed"
        call.output.result(
            {
                "uri": graph.uri,
                "from": old.strip(),
                "name": made.name,
                "actor_id": call.settings.actor,
                "dry_run": call.settings.dry_run,
            },
            f"{said} branch {old.strip()} to {made.name}",
        )


@app.command("delete")
def delete(ctx: typer.Context, words: Name, graph_uri: GraphUri = None) -> None:
    """Delete a branch that nothing was forked from and nothing of which is tagged."""
    call = call_of(ctx)
    where, (name,) = graph_and_words(call.settings, words, graph_uri, "NAME")
    call.require_yes("branch delete", where, destroys=f"branch {name}")
    if not call.settings.dry_run:
        call.output.target("branch delete", where)
    with call.connect(where) as graph:
        was = graph.branches.delete(name, dry_run=call.settings.dry_run)
        said = "would delete" if call.settings.dry_run else "deleted"
        document = {"uri": graph.uri, "name": was.name, "actor_id": call.settings.actor}
        call.output.result(
            {**document, "graph_commit_id": was.head, "dry_run": call.settings.dry_run},
            f"{said} branch {was.name}",
            f"  it was at commit {was.head}",
        )


def _long_lines(found: Sequence[Branch]) -> Iterator[str]:
    width = max(len(branch.name) for branch in found)
    for branch in found:
        line = f"{branch.name:<{width}}  {branch.head}  {shown_time(branch.created_us)}"
        if branch.parent is not None:
            line += f"  from {branch.parent}: {branch.ahead} ahead, {branch.behind} behind"
        yield line


# -- tag commands --------------------------------------------------------------------------------
#
# Create, list, delete.


tag_app = typer.Typer(help="Give commits names that never move.", no_args_is_help=True)
TagName = Annotated[list[str], typer.Argument(metavar="[ADDR] NAME", help="The graph, and the tag.")]


@tag_app.command("create")
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
        made = graph.tags.create(
            name, at, branch=settings.branch, actor=settings.actor, message=message, dry_run=settings.dry_run
        )
        said = "would tag" if settings.dry_run else "tagged"
        call.output.result(
            {"uri": graph.uri, **made.to_json(), "dry_run": settings.dry_run},
            f"{said} commit {made.commit_id} as {made.name}",
        )


@tag_app.command("list")
def list_tags(ctx: typer.Context, address: Address = None, graph_uri: GraphUri = None) -> None:
    """List the tags by name, with their commits."""
    call = call_of(ctx)
    with call.connect(address, graph_uri) as graph:
        found = graph.tags.list()
    width = max((len(tag.name) for tag in found), default=0)
    lines = [
        f"{tag.name:<{width}}  {tag.commit_id}  {shown_time(tag.created_us)}  {tag.message or ''}".rstrip()
        for tag in found
    ]
    call.output.result({"tags": [tag.to_json() for tag in found]}, *lines)


@tag_app.command("delete")
def delete_tag(ctx: typer.Context, words: TagName, graph_uri: GraphUri = None) -> None:
    """Take a name away; the commit stays."""
    call = call_of(ctx)
    where, (name,) = graph_and_words(call.settings, words, graph_uri, "NAME")
    if not call.settings.dry_run:
        call.output.target("tag delete", where)
    with call.connect(where) as graph:
        was = graph.tags.delete(name, dry_run=call.settings.dry_run)
        said = "would delete" if call.settings.dry_run else "deleted"
        call.output.result(
            {"uri": graph.uri, **was.to_json(), "dry_run": call.settings.dry_run},
            f"{said} tag {was.name}",
            f"  it named commit {was.commit_id}",
        )
