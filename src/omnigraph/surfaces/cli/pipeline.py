"""Declared pipelines: check a file, run it on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.base.errors import InvalidRequest
from omnigraph.language.diagnostics import SourceText, render
from omnigraph.surfaces.cli.support.call import Call, call_of
from omnigraph.surfaces.cli.support.command_line import Commands
from omnigraph.surfaces.cli.support.progress import pipeline_bar

if TYPE_CHECKING:  # Spark is an extra, and slow to import: other commands do without
    from omnigraph.pipeline.declared import Pipeline, PipelineCheck, RunProgress, RunReport

app = Commands(help="Run declared pipelines on Spark, and check them first.")
File = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file (YAML).")]
GraphFlag = Annotated[
    str | None,
    typer.Option(
        "--graph", "--graph-uri", "-g", "--store", "--uri", help="The graph, instead of the file's."
    ),
]
Master = Annotated[str | None, typer.Option("--master", metavar="URL", help="The Spark to run on.")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark. Repeat it for more."),
]
SAID = {
    "published": "published",
    "nothing_new": "nothing new since the last run: no commit was made",
    "rehearsed": "would be published: nothing was written",
}


@app.command("check", example="omnigraph pipeline check people.yaml --graph kb.og")
def check(
    ctx: typer.Context, file: File, graph_uri: GraphFlag = None, master: Master = None, conf: Conf = None
) -> int:
    """Check a pipeline against its sources and the graph, without running it; exit 1 if it has errors."""
    call = call_of(ctx)
    declared = _declared()
    try:
        pipeline = _pipeline(call, file)
    except declared.PipelineError as error:
        _refused(call, error.source, [diagnostic.to_json() for diagnostic in error.diagnostics], str(error))
        return 1
    with call.open_here("pipeline check", _address(call, pipeline, graph_uri)) as graph:
        checked = declared.check(_spark(ctx, master, conf), graph, pipeline)
        call.output.result({"uri": graph.uri, **checked.to_json()}, *_check_lines(checked))
    return 1 if checked.errors else 0


@app.command("run", example="omnigraph pipeline run people.yaml --branch nightly --dry-run")
def run(
    ctx: typer.Context,
    file: File,
    graph_uri: GraphFlag = None,
    since: Annotated[
        bool, typer.Option("--since", help="Read only what came after the last run on the branch.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Write report.json and report.html there."),
    ] = None,
    master: Master = None,
    conf: Conf = None,
) -> int:
    """Run a pipeline: check it, read, transform, expect, and publish one commit."""
    call = call_of(ctx)
    declared = _declared()
    pipeline = _pipeline(call, file)
    where = call.refuse_served("pipeline run", _address(call, pipeline, graph_uri))
    replaced = [target.type for target in pipeline.targets if target.mode == "overwrite"]
    if replaced:
        call.require_yes("pipeline run", where, destroys=f"all rows of {', '.join(replaced)}")
    call.output.target("pipeline run", where, writes=False)
    with call.connect(where) as graph:
        with pipeline_bar(call.output.watched) as shown:
            done = declared.run(
                _spark(ctx, master, conf),
                graph,
                pipeline,
                since=since,
                report=report,
                actor=call.settings.actor,
                progress=_followed(call, shown),
                dry_run=call.settings.dry_run,
            )
        for warning in done.warnings:
            call.output.note(f"warning: {warning}")
        call.output.result({"uri": graph.uri, **done.to_json()}, *_run_lines(done, report))
    conflicts = done.merge is not None and done.merge["outcome"] == "conflicts"
    return 5 if conflicts else 0


# -- what is run, and on what --------------------------------------------------------------------------


def _declared() -> Any:
    try:
        from omnigraph.pipeline import declared
    except ImportError as error:
        raise InvalidRequest(str(error)) from error
    return declared


def _spark(ctx: typer.Context, master: str | None, conf: list[str] | None) -> Any:
    from omnigraph.pipeline import spark_session

    # When Spark is asked for a name it makes a folder for tables, in the working directory if not told.
    tables = ctx.with_resource(TemporaryDirectory(prefix="omnigraph-", ignore_cleanup_errors=True))
    settings = {"spark.log.level": "ERROR", "spark.sql.warehouse.dir": tables}  # what fails is told by us
    for setting in conf or ():
        name, sign, value = setting.partition("=")
        if not sign or not name:
            raise InvalidRequest(f"--conf {setting!r} is not understood", remedy="Write --conf NAME=VALUE")
        settings[name] = value
    return spark_session(master, settings)


def _pipeline(call: Call, file: Path) -> Pipeline:
    """Read the file; a branch on the line is stronger than the one in it."""
    from omnigraph.pipeline.declared import read_pipeline

    pipeline = read_pipeline(file)
    if not call.settings.branch_given:
        return pipeline
    branch = call.settings.branch
    if pipeline.then is not None and pipeline.then.into == branch:
        raise InvalidRequest(
            f"the file says to merge into {branch!r}, which is the branch of this run",
            remedy="Give another --branch",
        )
    return replace(pipeline, branch=branch)


def _address(call: Call, pipeline: Pipeline, address: str | None) -> str:
    """Return the graph: that of the line, of the file, or the configured one."""
    settings, named = call.settings, pipeline.graph
    if address is not None or named is None:
        return settings.address(address)
    configured = settings.config.graph_uri(named) is not None
    return settings.address(named if configured else pipeline.address(named))


# -- what is shown meanwhile ---------------------------------------------------------------------------


def _followed(call: Call, shown: Callable[[RunProgress], None] | None) -> Callable[[RunProgress], None]:
    """Tell the one who watches the clock when reading ends and writing begins."""

    def report(now: RunProgress) -> None:
        if now.kind in ("load", "merge") and not call.settings.dry_run:
            call.output.writing()
        if shown is not None:
            shown(now)

    return report


# -- what is said ----------------------------------------------------------------------------------------


def _refused(call: Call, source: SourceText, diagnostics: list[dict[str, Any]], shown: str) -> None:
    document = {"status": "error", "file": source.file, "errors": len(diagnostics), "warnings": 0}
    total = f"ERROR {source.file}: {len(diagnostics)} errors, 0 warnings"
    call.output.result({**document, "diagnostics": diagnostics}, shown, "", total)


def _check_lines(check: PipelineCheck) -> Iterator[str]:
    source = check.pipeline.source
    if check.diagnostics:
        yield render(source, check.diagnostics)
        yield ""
    for name, columns in check.sources.items():
        yield f"  source {name}  {columns}"
    if check.order:
        yield f"  transforms in order: {', '.join(check.order)}"
    word = "ERROR" if check.errors else "OK"
    yield f"{word} {source.file}: {len(check.errors)} errors, {len(check.warnings)} warnings"


def _run_lines(done: RunReport, folder: Path | None) -> Iterator[str]:
    yield f"{done.pipeline} on {done.branch}: {SAID[done.outcome]}"
    width = max((len(f"{stage.kind} {stage.name}") for stage in done.stages), default=0)
    for stage in done.stages:
        rows = "" if stage.rows is None else f"  {stage.rows:,} rows"
        yield f"  {f'{stage.kind} {stage.name}':<{width}}  {stage.seconds:6.1f} s{rows}"
    for target in done.targets:
        counts = f"+{target.inserted} ~{target.updated} -{target.deleted}"
        yield f"  {target.kind} {target.type} ({target.mode}): {counts}"
    if done.rejected:
        yield f"  {done.rejected:,} rows rejected: {done.rejects}"
    if done.merge is not None:
        said = "a merge would give" if done.merge["preview"] else "merged"
        yield f"  {said} {done.merge['source']} into {done.merge['target']}: {done.merge['outcome']}"
    if done.commit_id is not None:
        yield f"  commit {done.commit_id}"
    if folder is not None:
        yield f"  report {folder / 'report.html'}"
