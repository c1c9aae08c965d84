"""One commit as files or as a stream, in the form that a load takes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from omnigraph.base.errors import InvalidRequest, counted
from omnigraph.surfaces.cli.support.call import Call, GraphUri, call_of
from omnigraph.surfaces.cli.support.params import Snapshot, read_at
from omnigraph.surfaces.cli.support.progress import spark_here, task_bar

if TYPE_CHECKING:
    from omnigraph.engine.export.files import ExportReport
    from omnigraph.engine.graph import Graph
    from omnigraph.storage.location import Location

SPARK_ROWS = 5_000_000  # from here on the time that Spark needs to start is made up for
ONE_FILE = ".jsonl"


class ExportFormat(StrEnum):
    """How the data is written."""

    JSONL = "jsonl"
    PARQUET = "parquet"


class ExportEngine(StrEnum):
    """Who writes."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ADDR] [DEST]", help="The graph, and where to: as --out."),
]
Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="DEST",
        help=f"A new or empty folder, also on an object store; with the ending {ONE_FILE} one file; "
        "standard output if not given.",
    ),
]
FormatFlag = Annotated[
    ExportFormat | None, typer.Option("--format", help="How to write a folder; parquet if not given.")
]
Types = Annotated[
    list[str] | None, typer.Option("--type", metavar="T", help="Only this type. Repeat for more.")
]
EngineFlag = Annotated[
    ExportEngine,
    typer.Option(
        "--engine", help=f"Who writes a folder. auto: Spark from {SPARK_ROWS:,} rows on, if it is there."
    ),
]
Framed = Annotated[
    bool,
    typer.Option(
        "--framed", help="With a first and a last line, by which a load knows that the file is whole."
    ),
]
OldJsonl = Annotated[bool, typer.Option("--jsonl", hidden=True, help="Old spelling: it is the default.")]
Arguments = dict[str, Any]


def export(
    ctx: typer.Context,
    words: Words = None,
    graph_uri: GraphUri = None,
    out: Out = None,
    form: FormatFlag = None,
    types: Types = None,
    snapshot: Snapshot = None,
    engine: EngineFlag = ExportEngine.AUTO,
    framed: Framed = False,
    old_jsonl: OldJsonl = False,
) -> None:
    """Write the entities of one commit as JSON lines or Parquet, to be loaded again or read elsewhere."""
    call = call_of(ctx)
    if old_jsonl:
        call.output.note("'export --jsonl' is now 'export'")
    if call.settings.dry_run:
        raise InvalidRequest("export has no dry run", remedy="See what there is with snapshot")
    address, destination = _graph_and_destination(words or [], out)
    chosen = {
        "types": types or None,
        "branch": call.settings.branch,
        "at": read_at(call.settings, snapshot),
    }
    with call.connect(address, graph_uri) as graph:
        if destination is None or destination.endswith(ONE_FILE):
            _check_stream(form, engine, destination, call)
            _to_stream(call, graph, destination, framed, chosen)
        elif framed:
            raise InvalidRequest(
                "--framed is for one stream", remedy=f"Give --out FILE{ONE_FILE}, or nothing"
            )
        else:
            _to_folder(call, graph, destination, form or ExportFormat.PARQUET, engine, chosen)


def _graph_and_destination(words: list[str], out: str | None) -> tuple[str | None, str | None]:
    """Return the graph and the destination, each if it is on the line."""
    places = [*words[1:], *([] if out is None else [out])]
    if len(places) > 1:
        raise InvalidRequest(f"two destinations given: {places[0]!r} and {places[1]!r}", remedy="Give one")
    return (words[0] if words else None), (places[0] if places else None)


# -- one stream --------------------------------------------------------------------------------------


def _check_stream(
    form: ExportFormat | None, engine: ExportEngine, destination: str | None, call: Call
) -> None:
    if form is ExportFormat.PARQUET:
        raise InvalidRequest("Parquet is written into a folder", remedy="Give --out FOLDER")
    if engine is ExportEngine.SPARK:
        raise InvalidRequest("Spark writes into a folder", remedy="Give --out FOLDER")
    if destination is None and call.settings.json:
        raise InvalidRequest("standard output has the data", remedy="Leave out --json, or give --out")


def _to_stream(call: Call, graph: Graph, destination: str | None, framed: bool, chosen: Arguments) -> None:
    from rich.filesize import decimal

    chunks = _lines_of(graph, framed, chosen)
    written = 0

    def write(sink: BinaryIO) -> None:
        nonlocal written
        for chunk in chunks:
            sink.write(chunk)
            written += len(chunk)

    if destination is not None and "://" in destination:
        with _place_of(graph).reach(destination).new_file() as file:
            write(file)
    else:
        call.output.stream(write, None if destination is None else Path(destination))
    if destination is not None:
        call.output.result(
            {"uri": graph.uri, "file": destination, "bytes": written},
            f"exported {graph.uri} to {destination}: {decimal(written)}",
        )


def _lines_of(graph: Graph, framed: bool, chosen: Arguments) -> Iterator[bytes]:
    """Return the stream; what is wrong with the arguments is said before anything is written."""
    served = getattr(graph, "export_stream", None)
    if served is None:
        from omnigraph.engine.export.export import export_lines

        return export_lines(graph.store, framed=framed, **chosen)
    chunks: Iterator[bytes] = served(framed=framed, **chosen)
    first = next(chunks, b"")
    return chain([first], chunks)


def _place_of(graph: Graph) -> Location:
    from omnigraph.storage.location import Location

    return graph.store.location if hasattr(graph, "store") else Location.parse(Path.cwd(), None)


# -- a folder ----------------------------------------------------------------------------------------


def _to_folder(
    call: Call, graph: Graph, destination: str, form: ExportFormat, engine: ExportEngine, chosen: Arguments
) -> None:
    with task_bar(call.output.watched, "exporting") as progress:
        write = _writer(call, graph, engine, chosen)
        report = write(destination, format=form.value, progress=progress, **chosen)
    document = {"uri": graph.uri, "destination": report.destination, **report.to_json()}
    call.output.result(document, *_lines(report))


def _writer(call: Call, graph: Graph, engine: ExportEngine, chosen: Arguments) -> Callable[..., ExportReport]:
    """Return who writes: Spark where it was asked for, or where it pays and can be had."""
    from omnigraph.engine.export.export import export_files
    from omnigraph.engine.export.plan import plan_export

    if not hasattr(graph, "store"):
        if engine is ExportEngine.SPARK:
            raise InvalidRequest(
                "an export by Spark works on the storage of a graph, and a server does not give that out",
                remedy="Use --engine local",
            )
        return graph.export
    local = partial(export_files, graph.store)
    if engine is ExportEngine.LOCAL:
        return local
    if engine is ExportEngine.AUTO and plan_export(graph.store, **chosen).rows < SPARK_ROWS:
        return local
    try:
        return _on_spark(graph)
    except InvalidRequest as error:
        if engine is ExportEngine.SPARK:
            raise
        call.output.note(f"without Spark: {error.message}")
        return local


def _on_spark(graph: Graph) -> Callable[..., ExportReport]:
    spark = spark_here()
    from omnigraph.pipeline import export as export_on_spark

    return partial(export_on_spark, spark, graph)


def _lines(report: ExportReport) -> Iterator[str]:
    from rich.filesize import decimal

    nodes, edges = counted(report.of_kind("node"), "node"), counted(report.of_kind("edge"), "edge")
    counts = f"{nodes}, {edges}, {decimal(report.bytes)}"
    yield f"exported {report.branch} to {report.destination} ({report.format}): {counts}"
    yield f"  commit {report.commit_id}"
    width = max((len(written.name) for written in report.types), default=0)
    for written in report.types:
        files = counted(len(written.files), "file")
        yield f"  {written.kind} {written.name:<{width}}  {written.rows} in {files}"
