"""Examine a graph, repair what can be derived, and say what this machine lacks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.base.errors import InvalidRequest, counted
from omnigraph.surfaces.cli.support.call import Address, Call, GraphUri, call_of
from omnigraph.surfaces.cli.support.progress import stage_bar

if TYPE_CHECKING:
    from omnigraph.engine.doctor.report import DoctorReport

SHOWN_INFOS = 20
APART = "Leave out --deep and --fix, and run doctor again for those"


def doctor(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep", help="Read every byte that heads and tags need; compare every index with its rows."
        ),
    ] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Make anew what can be derived; with --dry-run, say what.")
    ] = False,
    environment: Annotated[
        bool, typer.Option("--environment", help="Say what this machine lacks; with ADDR, also the store.")
    ] = False,
) -> None:
    """Look at the whole graph, or at one --branch, and read only; exit 1 if something is broken."""
    call = call_of(ctx)
    if environment:
        if deep or fix:
            raise InvalidRequest("--environment looks at this machine, not at a graph", remedy=APART)
        _environment(call, address, graph_uri)
        return
    _examine(call, "doctor", address, graph_uri, deep=deep, fix=fix)


def repair(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every byte that heads and tags need before.")
    ] = False,
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

    where = call.refuse_served(command, address, graph_uri)
    preview = fix and (preview or call.settings.dry_run)
    branch = call.settings.branch if call.settings.branch_given else None
    if fix and not preview:
        call.output.target(command, where)
    with (
        GraphStore(Location.parse(where), verify="off") as store,  # what does not open is examined, too
        stage_bar(call.output.watched) as show,
    ):
        report = examine(
            store,
            deep=deep,
            fix=fix,
            branch=branch,
            preview=preview,
            actor=call.settings.actor,
            progress=None if show is None else lambda now: show(now.check, now.checks_done, now.checks),
        )
    call.output.result(report.to_json(), *_lines(report, preview))
    if not report.ok:
        raise typer.Exit(1)


# -- the machine -------------------------------------------------------------------------------------


def _environment(call: Call, address: str | None, graph_uri: str | None) -> None:
    from omnigraph.engine.doctor.environment import inspect_environment

    named = address is not None or graph_uri is not None
    where = call.refuse_served("doctor --environment", address, graph_uri) if named else None
    report = inspect_environment(where, _java)
    call.output.result(report.to_json(), *map(str, report.items))
    if not report.ok:
        raise typer.Exit(1)


def _java() -> int:
    from omnigraph.pipeline.session import check_java

    return check_java(os.environ)


# -- words -------------------------------------------------------------------------------------------


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
    asked = "every byte of heads and tags" if report.deep else "without --deep"
    yield (
        f"{counted(len(report.checks), 'check')} ({asked}): {counted(counts['error'], 'error')}, "
        f"{counted(counts['warning'], 'warning')}, {counted(counts['info'], 'info')}"
    )
