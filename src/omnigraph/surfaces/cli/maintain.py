"""Make a graph, compact and index it, check its files, delete those nothing needs, and upgrade its format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.base.errors import InvalidRequest, counted
from omnigraph.surfaces.cli.support.call import Address, GraphUri, call_of
from omnigraph.surfaces.cli.support.progress import Worker, WorkerFlag, spark_here, stage_bar, task_bar

if TYPE_CHECKING:
    from omnigraph.engine.graph import Graph
    from omnigraph.engine.indexes import IndexReport, TypeIndexes
    from omnigraph.engine.optimize import OptimizeProgress
    from omnigraph.storage.checksums import Verified
    from omnigraph.storage.cleanup import Cleaned, CleanedPart
    from omnigraph.storage.manifest.upgrade import UpgradeReport

# -- init --------------------------------------------------------------------------------------------


def init(
    ctx: typer.Context,
    schema: Annotated[Path, typer.Option("--schema", help="The schema file (.pg).")],
    address: Address = None,
    graph_uri: GraphUri = None,
    force: Annotated[bool, typer.Option("--force", help="Clear what a failed init left behind.")] = False,
) -> None:
    """Make an empty graph with a schema."""
    from omnigraph.engine.open import init as make

    call = call_of(ctx)
    where = call.refuse_served("init", address, graph_uri)
    if call.settings.dry_run:
        from omnigraph.engine.schema.schema import load_schema
        from omnigraph.storage.diagnose import check_free
        from omnigraph.storage.location import Location

        load_schema(schema)
        check_free(Location.parse(where), force=force)
        call.output.result(
            {"uri": where, "dry_run": True}, f"the schema is fine; nothing was made at {where}"
        )
        return
    call.output.target("init", where)
    with make(where, schema, actor=call.settings.actor, force=force) as graph:
        catalog = graph.schema.catalog()
        nodes, edges = [t.name for t in catalog.nodes], [t.name for t in catalog.edges]
        call.output.result(
            {
                "uri": graph.uri,
                "graph_commit_id": graph.store.snapshot().commit_id,
                "node_types": nodes,
                "edge_types": edges,
            },
            f"initialized {graph.uri}",
            f"  {counted(len(nodes), 'node type')}, {counted(len(edges), 'edge type')}",
        )


# -- optimize ----------------------------------------------------------------------------------------


def optimize(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only this type; may be given again.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Tables that are rewritten at the same time.")
    ] = None,
    engine: WorkerFlag = Worker.LOCAL,
) -> None:
    """Merge small files, rewrite those with many deleted rows, and complete indexes. Changes no answer.

    With --engine spark executors rewrite files and build indexes.
    """
    call = call_of(ctx)
    if call.settings.dry_run:
        raise InvalidRequest("optimize has no dry run", remedy="Run it: it changes no answer, only its speed")
    on_spark = engine is Worker.SPARK
    if on_spark and concurrency:
        raise InvalidRequest("--concurrency is for --engine local", remedy="Leave it out")
    with call.open_here("optimize", address, graph_uri) as graph:
        call.output.target("optimize", call.settings.address(address, graph_uri))
        with task_bar(call.output.watched, "optimizing") as progress:
            report = _optimizer(graph, concurrency, on_spark=on_spark)(
                branch=call.settings.branch,
                types=types or None,
                actor=call.settings.actor,
                progress=partial(_shown, progress),
            )
        call.output.result({"uri": graph.uri, **report.to_json()}, *_index_lines(report))
    if any(row.error for row in report.types):
        raise typer.Exit(1)


def _optimizer(graph: Graph, concurrency: int | None, *, on_spark: bool) -> Callable[..., IndexReport]:
    if on_spark:
        spark = spark_here()
        from omnigraph.pipeline import optimize as optimize_on_spark

        return partial(optimize_on_spark, spark, graph)
    from omnigraph.storage.tables.compaction import OptimizePolicy

    policy = OptimizePolicy() if concurrency is None else OptimizePolicy(concurrency=concurrency)
    return partial(graph.optimize, policy=policy)


def _shown(progress: Callable[[int, int], None] | None, now: OptimizeProgress) -> None:
    counts = ((now.tasks_done, now.tasks), (now.tables_done, now.tables), (now.rows, now.rows_total))
    done, total = next(((done, total) for done, total in counts if total), (0, 0))
    if progress is not None and total:
        progress(done, total)


def _index_lines(report: IndexReport) -> Iterator[str]:
    for indexes in report.types:
        yield f"  {indexes.kind} {indexes.type}: {_index_state(indexes)}"
    if report.commit_id is None:
        derived = any(indexes.derived for indexes in report.types)
        yield f"nothing to commit on {report.branch}" if derived else f"nothing to do on {report.branch}"
    else:
        compacted = any(indexes.files and indexes.files.changed for indexes in report.types)
        done = "optimized" if compacted else "indexed"
        yield f"{done} {report.branch}: commit {report.commit_id}"


def _index_state(indexes: TypeIndexes) -> str:
    parts, files = [], indexes.files
    if files is not None and files.changed:
        parts.append(
            f"{counted(files.fragments_before, 'fragment')} to {files.fragments_after}, "
            f"{files.bytes_before:,} bytes to {files.bytes_after:,}"
        )
    if indexes.created:
        parts.append(f"built {', '.join(indexes.created)}")
    if indexes.extended:
        parts.append(f"extended {', '.join(indexes.extended)}")
    if indexes.derived:
        parts.append(f"derived {', '.join(indexes.derived)}")
    parts += [f"{pending.property} pending ({pending.reason})" for pending in indexes.pending]
    if indexes.skipped:
        parts.append(f"skipped: {indexes.skipped}")
    if indexes.error:
        parts.append(f"failed: {indexes.error}")
    return "; ".join(parts) or "up to date"


# -- verify ------------------------------------------------------------------------------------------


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
    with call.open_here("verify", address, graph_uri) as graph:
        report = graph.verify(branch=branch, at=at, history=history, record=record)
        call.output.result({"uri": graph.uri, **report.to_json()}, *_verify_lines(report))
    if not report.ok:
        raise typer.Exit(1)


def _verify_lines(report: Verified) -> Iterator[str]:
    yield from (f"damaged: {file}" for file in report.damaged)
    damaged = len(report.damaged) or "none"
    yield f"{counted(report.files, 'file')}, {report.bytes:,} bytes checked: {damaged} damaged"
    for file in report.derived_damaged:
        yield f"derived file damaged, no data is lost: {file}"
    if report.derived_damaged:
        yield "delete them, or let 'omnigraph optimize' write them anew"
    if report.added:
        yield f"{counted(report.added, 'checksum')} recorded"
    for file in report.unrecorded[:SHOWN]:
        yield f"no checksum: {file}"
    if report.unrecorded:
        verb = "has" if len(report.unrecorded) == 1 else "have"
        yield (
            f"{counted(len(report.unrecorded), 'file')} {verb} no checksum; "
            "--record gives them one, as they are now"
        )


# -- cleanup -----------------------------------------------------------------------------------------


SHORT_GRACE_US = 3_600_000_000


def cleanup(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    keep: Annotated[
        int | None,
        typer.Option("--keep", metavar="N", min=0, help="Keep the newest N commits of each branch."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Keep commits that are younger: --older-than 30d."),
    ] = None,
    grace: Annotated[
        str,
        typer.Option(
            "--grace", metavar="AGE", help="Keep younger files, and commits that were the head since then."
        ),
    ] = "7d",
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Delete; without it, say what would be deleted.")
    ] = False,
) -> None:
    """Delete history that is not kept, and files that nothing needs; heads and tags always stay.

    Says what it would delete, unless --confirm is given. Exit 1 if something could not be deleted.
    """
    from omnigraph.base.times import read_duration

    call = call_of(ctx)
    dry_run = call.settings.dry_run or not confirm
    branch = call.settings.branch if call.settings.branch_given else None
    where = call.refuse_served("cleanup", address, graph_uri)
    if not dry_run:
        call.require_yes("cleanup", where, destroys="the history that is not kept")
        if read_duration(grace) < SHORT_GRACE_US and not call.settings.yes:
            raise InvalidRequest(
                f"a grace period of {grace} may cost writers that are at work what they have prepared",
                remedy="Say --yes if none are, or that they may begin again; or give --grace 1h or more",
            )
    with call.open_here("cleanup", address, graph_uri) as graph:
        if not dry_run:
            call.output.target("cleanup", where)
        with stage_bar(call.output.watched) as show:
            report = graph.cleanup(
                keep=keep,
                older_than=older_than,
                grace=grace,
                branch=branch,
                dry_run=dry_run,
                progress=None if show is None else lambda now: show(now.stage, now.done, now.total),
            )
        age = None if older_than is None else read_duration(older_than) // 1_000_000
        asked = {"uri": graph.uri, "keep_versions": keep, "older_than_secs": age}
        call.output.result({**asked, **report.to_json()}, *_cleanup_lines(report))
    if not report.ok:
        raise typer.Exit(1)


def _cleanup_lines(report: Cleaned) -> Iterator[str]:
    yield from (f"  {_cleaned_line(part)}" for part in report.parts)
    gives_up = "would give up" if report.dry_run else "gave up"
    for branch in report.given_up:
        commits = counted(branch.commits, "commit")
        yield f"{branch.branch}: {gives_up} {commits}; the oldest that stays is {branch.oldest_kept}"
    if not report.parts and not report.given_up:
        yield "nothing to delete"
        return
    done = "would delete" if report.dry_run else "deleted"
    yield f"{done} {counted(report.files, 'file')}, {report.bytes:,} bytes"
    if report.dry_run:
        yield "repeat with --confirm to do that"


def _cleaned_line(part: CleanedPart) -> str:
    versions = f" ({counted(part.versions, 'version')})" if part.versions else ""
    failed = f"; {part.error}" if part.error else ""
    return f"{part.kind} {part.name}: {counted(part.files, 'file')}{versions}, {part.bytes:,} bytes{failed}"


# -- upgrade -----------------------------------------------------------------------------------------


def upgrade(ctx: typer.Context, address: Address = None, graph_uri: GraphUri = None) -> None:
    """Bring a graph that an older release wrote to the format of this one, in place, with all its history.

    Older releases refuse the graph from then on. An upgrade that was interrupted is finished by the next.
    """
    from omnigraph.engine.open import upgrade as upgrade_graph

    call = call_of(ctx)
    where = call.refuse_served("upgrade", address, graph_uri)
    if not call.settings.dry_run:
        call.output.target("upgrade", where)
    with task_bar(call.output.watched, "upgrading") as progress:
        report = upgrade_graph(where, progress=progress, dry_run=call.settings.dry_run)
    call.output.result(report.to_json(), *_upgrade_lines(report))


def _upgrade_lines(report: UpgradeReport) -> Iterator[str]:
    if not report.needed:
        yield f"nothing to upgrade: {report.uri} is in storage format {report.to_format}"
        return
    done = "would upgrade" if report.dry_run else "upgraded"
    yield f"{done} {report.uri} from storage format {report.from_format} to {report.to_format}"
    for branch in report.branches:
        state = "" if branch.from_format < report.to_format else ", was upgraded before"
        yield f"  {branch.name}: commit {branch.commit_id}{state}"
