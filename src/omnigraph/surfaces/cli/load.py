"""Load data from a file, a folder or standard input, as one commit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.base.errors import InvalidRequest, counted
from omnigraph.surfaces.cli.support.call import (
    Address,
    Call,
    GraphUri,
    IdempotencyKey,
    IfCommit,
    Message,
    call_of,
)
from omnigraph.surfaces.cli.support.progress import load_bar

if TYPE_CHECKING:
    from omnigraph.engine.load.assembly import LoadProgress, Report
    from omnigraph.engine.write import Receipt

STDIN = "-"


class LoadModeFlag(StrEnum):
    """What happens to entities that exist."""

    APPEND = "append"
    MERGE = "merge"
    OVERWRITE = "overwrite"


class LoadFormat(StrEnum):
    """How the data is written."""

    JSONL = "jsonl"
    CSV = "csv"
    TSV = "tsv"
    PARQUET = "parquet"
    ARROW = "arrow"


class LoadEngineFlag(StrEnum):
    """Who carries the load out."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


class OnViolation(StrEnum):
    """What happens to rows that break a rule."""

    FAIL = "fail"
    REJECT = "reject"


Data = Annotated[str, typer.Option("--data", metavar="FILE|-", help="A file or folder; - is standard input.")]
ModeFlag = Annotated[
    LoadModeFlag,
    typer.Option(
        "--mode",
        help="append: every id is new. merge: an entity that exists is replaced. "
        "overwrite: the types in the data get exactly these rows.",
    ),
]
FromBranch = Annotated[
    str | None, typer.Option("--from", metavar="BASE", help="Make the branch from this one if it is missing.")
]
MapFlag = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="COLUMN=PROPERTY", help="What a column of a table is. Repeat for more."),
]
FromCol = Annotated[str | None, typer.Option("--from-col", metavar="COLUMN", help="Where edges start.")]
ToCol = Annotated[str | None, typer.Option("--to-col", metavar="COLUMN", help="Where edges end.")]
FormatFlag = Annotated[LoadFormat | None, typer.Option("--format", help="How the data is written.")]
TypeFlag = Annotated[
    str | None, typer.Option("--type", metavar="T", help="The type of all rows; tables need it.")
]
EngineFlag = Annotated[
    LoadEngineFlag,
    typer.Option("--engine", help="auto: Spark for many gigabytes of files, else this process."),
]
OnViolationFlag = Annotated[
    OnViolation,
    typer.Option("--on-violation", help="reject: load the good rows, and set the others aside (Spark)."),
]
Rejects = Annotated[
    str | None, typer.Option("--rejects", metavar="FILE", help="Where rejected rows go, as Parquet.")
]
ReplaceType = Annotated[
    list[str] | None,
    typer.Option("--replace-type", metavar="T", help="With overwrite: empty this type too. Repeat for more."),
]


def load(
    ctx: typer.Context,
    data: Data,
    mode: ModeFlag,
    address: Address = None,
    graph_uri: GraphUri = None,
    from_branch: FromBranch = None,
    form: FormatFlag = None,
    type_name: TypeFlag = None,
    replace_type: ReplaceType = None,
    mapped: MapFlag = None,
    from_col: FromCol = None,
    to_col: ToCol = None,
    if_commit: IfCommit = None,
    message: Message = None,
    idempotency_key: IdempotencyKey = None,
    engine: EngineFlag = LoadEngineFlag.AUTO,
    on_violation: OnViolationFlag = OnViolation.FAIL,
    rejects: Rejects = None,
) -> None:
    """Load data: every record of the input in one commit, or nothing."""
    call = call_of(ctx)
    settings = call.settings
    where = settings.address(address, graph_uri)
    if mode is LoadModeFlag.OVERWRITE:
        rows = f"all rows of each type in {data}"
        call.require_yes("load --mode overwrite", where, destroys=rows, can_ask=data != STDIN)
    if not settings.dry_run:
        early = from_branch is not None or idempotency_key is not None  # a branch or a claim comes first
        call.output.target("load", where, writes=early)
    with call.connect(where) as graph:
        with load_bar(call.output.watched) as shown:
            receipt = graph.load(
                sys.stdin.buffer if data == STDIN else data,
                mode=mode.value,
                type=type_name,
                format=_format(form, data),
                columns=_columns(mapped, from_col, to_col),
                branch=settings.branch,
                from_branch=from_branch,
                replace_types=replace_type or (),
                if_commit=if_commit,
                idempotency_key=idempotency_key,
                message=message,
                actor=call.actor(where),
                progress=_followed(call, shown),
                dry_run=settings.dry_run,
                engine=engine.value,
                on_violation=on_violation.value,
                rejects=rejects,
            )
        for warning in receipt.warnings:
            call.output.note(f"warning: {warning}")
        call.output.result({"uri": graph.uri, **receipt.to_json()}, *_lines(receipt, data))


def ingest(
    ctx: typer.Context,
    data: Data,
    mode: ModeFlag = LoadModeFlag.MERGE,
    address: Address = None,
    graph_uri: GraphUri = None,
    from_branch: FromBranch = "main",
    form: FormatFlag = None,
    type_name: TypeFlag = None,
) -> None:
    """Old spelling of load --from main --mode merge."""
    call_of(ctx).output.note("'ingest' is now 'load --from main --mode merge'")
    load(ctx, data, mode, address, graph_uri, from_branch, form, type_name)


def _followed(call: Call, shown: Report | None) -> Report:
    """Note when reading ends and writing begins, for a deadline; and show it."""

    def report(now: LoadProgress) -> None:
        if now.stage == "writing" and not call.settings.dry_run:
            call.output.writing()
        if shown is not None:
            shown(now)

    return report


def _columns(mapped: list[str] | None, from_col: str | None, to_col: str | None) -> dict[str, str]:
    """Return which property each named column is."""
    properties: dict[str, str] = {}
    for mapping in mapped or ():
        column, sign, member = mapping.rpartition("=")
        if not sign or not column or not member:
            raise InvalidRequest(f"--map {mapping!r} is not understood", remedy="Write --map COLUMN=PROPERTY")
        properties[column] = member
    ends = {from_col: "from", to_col: "to"}
    return properties | {column: end for column, end in ends.items() if column is not None}


def _format(form: LoadFormat | None, data: str) -> str | None:
    if form is None:
        return LoadFormat.JSONL.value if data == STDIN else None
    return form.value


def _lines(receipt: Receipt, data: str) -> Iterator[str]:
    facts = receipt.facts
    counts = f"{counted(receipt.affected_nodes, 'node')}, {counted(receipt.affected_edges, 'edge')}"
    verb = "would load" if receipt.dry_run else "loaded"
    name = "standard input" if data == STDIN else data
    if receipt.replayed:
        yield f"loaded {name} into {receipt.branch} before, under the same idempotency key: nothing to do"
    else:
        yield f"{verb} {name} into {receipt.branch} ({facts['mode']}): {counts}"
    if facts["branch_created"]:
        yield f"  created branch {receipt.branch} from {facts['base_branch']}"
    if facts["mode"] == LoadModeFlag.OVERWRITE.value:
        nodes, edges = (sum(count.deleted for count in kind) for kind in (receipt.nodes, receipt.edges))
        verb = "would replace" if receipt.dry_run else "replaced"
        yield f"  {verb} {counted(nodes, 'node')}, {counted(edges, 'edge')}"
    if facts.get("rejected"):
        yield f"  rejected {counted(facts['rejected'], 'row')}: {facts['rejects'] or 'a dry run keeps none'}"
    yield "  nothing was written" if receipt.dry_run else f"  commit {receipt.commit_id}"
