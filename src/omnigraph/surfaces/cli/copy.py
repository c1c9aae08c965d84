"""Copies of a whole graph to another address and back, and one commit as a new graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.base.errors import InvalidRequest, counted
from omnigraph.base.times import FORMS
from omnigraph.surfaces.cli.support.call import Call, GraphUri, call_of
from omnigraph.surfaces.cli.support.params import read_at
from omnigraph.surfaces.cli.support.progress import task_bar

if TYPE_CHECKING:
    from omnigraph.engine.backup import CloneReport, CopyReport

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ADDR] DEST", help="The graph, and where to: a path or s3://..."),
]
Moment = Annotated[
    str | None, typer.Option("--at", "--snapshot", metavar="AT", help=f"Which commit: {FORMS}.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Clear what a failed clone or init left at the destination.")
]


def backup(ctx: typer.Context, words: Words = None, graph_uri: GraphUri = None) -> None:
    """Copy a graph with all history, branches and tags, while writers go on. Repeated, copies what is new."""
    call = call_of(ctx)
    address, destination = _places(call, words, graph_uri)
    with call.open_here("backup", address, graph_uri) as graph:
        with task_bar(call.output.watched, "copying") as progress:
            report = graph.backup(destination, progress=progress)
        call.output.result(report.to_json(), *_copy_lines(report))
        _check_sound(report)


def restore(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SRC", help="The backup.")],
    destination: Annotated[str, typer.Argument(metavar="DEST", help="Where the graph is to be.")],
) -> None:
    """Copy a backup to where its graph is to be, with all history, branches and tags."""
    from omnigraph.engine.backup import restore as copy_back

    call = call_of(ctx)
    _check_no_dry_run(call)
    with task_bar(call.output.watched, "copying") as progress:
        report = copy_back(call.refuse_served("restore", source), destination, progress=progress)
    call.output.result(report.to_json(), *_copy_lines(report))
    _check_sound(report)


def clone(
    ctx: typer.Context,
    words: Words = None,
    graph_uri: GraphUri = None,
    at: Moment = None,
    force: Force = False,
) -> None:
    """Make a new graph of one commit of a branch: all rows with their ids, no history."""
    call = call_of(ctx)
    address, destination = _places(call, words, graph_uri)
    with call.open_here("clone", address, graph_uri) as graph:
        with task_bar(call.output.watched, "cloning") as progress:
            report = graph.clone(
                destination,
                call.settings.branch,
                read_at(call.settings, at),
                actor=call.settings.actor,
                force=force,
                progress=progress,
            )
        call.output.result(report.to_json(), *_clone_lines(report))
        _check_sound(report)


def _places(call: Call, words: list[str] | None, graph_uri: str | None) -> tuple[str | None, str]:
    """Return the graph, if it is among the words, and the destination, which is the last of them."""
    _check_no_dry_run(call)
    *addresses, destination = words or [""]
    if not destination or len(addresses) > 1 or (addresses and graph_uri):
        raise InvalidRequest(
            "a graph and one destination are needed", remedy="Give them as: [ADDR] DEST", words=words or []
        )
    return (addresses[0] if addresses else None), destination


def _check_no_dry_run(call: Call) -> None:
    if call.settings.dry_run:
        raise InvalidRequest(
            "copies have no dry run", remedy="Run it: nothing is changed at the source or overwritten"
        )


def _check_sound(report: CopyReport | CloneReport) -> None:
    if not report.ok:
        raise typer.Exit(1)


def _broken_lines(report: CopyReport | CloneReport) -> Iterator[str]:
    if not report.ok:
        broken = counted(len(report.findings), "thing")
        yield f"  {broken} broken in the copy; 'omnigraph doctor' says whether it is so in the source"
    yield from (f"  {finding}" for finding in report.findings)


def _copy_lines(report: CopyReport) -> Iterator[str]:
    from rich.filesize import decimal

    yield f"copied {report.source} to {report.destination}"
    yield (
        f"  {counted(report.copied, 'file')} of {report.files} written ({decimal(report.copied_bytes)} of "
        f"{decimal(report.bytes)}), {report.skipped} there already"
    )
    width = max(map(len, report.commits))
    for branch, commit_id in report.commits.items():
        yield f"  {branch:<{width}}  {commit_id}"
    if report.tags:
        yield f"  {counted(report.tags, 'tag')}"
    yield from _broken_lines(report)


def _clone_lines(report: CloneReport) -> Iterator[str]:
    from rich.filesize import decimal

    yield f"cloned {report.branch} of {report.source} to {report.destination}"
    yield f"  {counted(report.rows, 'row')}, {counted(report.files, 'file')}, {decimal(report.bytes)}"
    yield f"  commit {report.source_commit_id} is now {report.graph_commit_id}"
    yield from _broken_lines(report)
