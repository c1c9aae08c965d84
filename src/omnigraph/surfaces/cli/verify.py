"""Verify: compare stored files with the checksums of when they were written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from omnigraph.storage.checksums import Verified
from omnigraph.surfaces.cli.frame import Address, GraphUri, call_of

SHOWN = 20


def verify(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    at: Annotated[
        str | None, typer.Option("--snapshot", metavar="AT", help="Only what this state needs.")
    ] = None,
    history: Annotated[bool, typer.Option("--history", help="Every stored file, not just heads.")] = False,
    record: Annotated[
        bool, typer.Option("--record", help="Give files without a checksum one, as they are now.")
    ] = False,
) -> None:
    """Compare stored files with their checksums; exit 1 if one is damaged or missing."""
    call = call_of(ctx)
    branch = call.settings.branch if call.settings.branch_given else None
    with call.connect(address, graph_uri) as graph:
        report = graph.verify(branch=branch, at=at, history=history, record=record)
        call.output.result({"uri": graph.uri, **report.to_json()}, *_lines(report))
    if not report.ok:
        raise typer.Exit(1)


def _lines(report: Verified) -> Iterator[str]:
    yield from (f"damaged: {one}" for one in report.damaged)
    yield f"{report.files} files, {report.bytes:,} bytes checked: {len(report.damaged) or 'none'} damaged"
    if report.added:
        yield f"{report.added} checksums recorded"
    for file in report.unrecorded[:SHOWN]:
        yield f"no checksum: {file}"
    if report.unrecorded:
        yield f"{len(report.unrecorded)} files have no checksum; --record gives them one, as they are now"
