"""Examine a graph, repair what can be derived, and say what this machine lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.base.errors import counted
from omnigraph.surfaces.cli.support.call import Address, Call, GraphUri, call_of

if TYPE_CHECKING:
    from omnigraph.engine.doctor.report import DoctorReport

SHOWN_INFOS = 20


def doctor(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every byte; compare every index with its rows.")
    ] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Make anew what can be derived; with --dry-run, say what.")
    ] = False,
) -> None:
    """Look at the whole graph, or at one --branch, and read only; exit 1 if something is broken."""
    _examine(call_of(ctx), "doctor", address, graph_uri, deep=deep, fix=fix)


def repair(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte before.")] = False,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Do it; without, say what would be done.")
    ] = False,
) -> None:
    """Do what doctor --fix does, or without --confirm say what that would be."""
    _examine(call_of(ctx), "repair", address, graph_uri, deep=deep, fix=True, preview=not confirm)


def _examine(
    call: Call,
    command: str,
    address: str | None,
    graph_uri: str | None,
    *,
    deep: bool,
    fix: bool,
    preview: bool = False,
) -> None:
    from omnigraph.engine.doctor.doctor import examine
    from omnigraph.storage.location import Location
    from omnigraph.storage.store import GraphStore

    where = call.settings.address(address, graph_uri)
    preview = fix and (preview or call.settings.dry_run)
    branch = call.settings.branch if call.settings.branch_given else None
    if fix and not preview:
        call.output.target(command, where)
    with GraphStore(Location.parse(where), verify="off") as store:  # what does not open is examined, too
        report = examine(store, deep=deep, fix=fix, branch=branch, preview=preview, actor=call.settings.actor)
    call.output.result(report.to_json(), *_lines(report, preview))
    if not report.ok:
        raise typer.Exit(1)


def _lines(report: DoctorReport, preview: bool) -> Iterator[str]:
    for done in report.repairs:
        yield f"{'would repair' if preview else 'repaired' if done.done else 'not repaired'}: {done}"
    infos = 0
    for finding in report.findings:
        infos += finding.severity == "info"
        if infos <= SHOWN_INFOS:
            yield str(finding)
    if infos > SHOWN_INFOS:
        yield f"... and {infos - SHOWN_INFOS} more infos; --json lists them"
    for check in report.checks:
        for limit in check.limits:
            if report.deep or "--deep" not in limit:
                yield f"not looked at ({check.name}): {limit}"
    counts = report.counts
    asked = "every byte" if report.deep else "without --deep"
    yield (
        f"{counted(len(report.checks), 'check')} ({asked}): {counted(counts['error'], 'error')}, "
        f"{counted(counts['warning'], 'warning')}, {counted(counts['info'], 'info')}"
    )
