"""Make the vectors that `@embed` properties lack, from their texts, as one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.base.errors import InvalidRequest, counted
from omnigraph.surfaces.cli.support.call import Address, GraphUri, Message, call_of
from omnigraph.surfaces.cli.support.progress import stage_bar

if TYPE_CHECKING:
    from omnigraph.engine.embed.request import EmbeddedProperty, EmbedProgress, EmbedReport

Types = Annotated[
    list[str] | None, typer.Option("--type", metavar="T", help="Only this type; may be given again.")
]
Select = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        metavar="T:FIELD=VALUE",
        help="Only rows of a type with this value. Two values of one field mean either of them.",
    ),
]
ReembedAll = Annotated[
    bool,
    # The second spelling is the one of earlier guides.
    typer.Option("--reembed-all", "--reembed_all", help="Make all vectors anew, not just missing ones."),
]
Clean = Annotated[bool, typer.Option("--clean", help="Remove vectors instead of making them.")]
Batch = Annotated[
    int, typer.Option("--batch", min=1, max=128, metavar="N", help="Texts of one request, at most.")
]
Spool = Annotated[
    str | None,
    typer.Option("--spool", metavar="FOLDER", help="Where finished vectors wait for the commit."),
]


def embed(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    types: Types = None,
    select: Select = None,
    reembed_all: ReembedAll = False,
    clean: Clean = False,
    batch: Batch = 128,
    spool: Spool = None,
    message: Message = None,
) -> None:
    """Make the vectors that @embed properties lack, from their texts, as one commit.

    Texts go to the provider that the environment names. After an interruption the same command asks only for
    the rest. --dry-run counts rows and characters, and asks nobody.
    """
    call = call_of(ctx)
    settings = call.settings
    where = settings.address(address, graph_uri)
    if clean and not settings.dry_run:
        call.require_yes("embed --clean", where, destroys="the vectors of @embed properties")
    with call.connect(where) as graph:
        if not settings.dry_run:
            call.output.target("embed", where, writes=False)  # it writes when all texts are embedded
        with stage_bar(call.output.watched) as shown:
            report = graph.embed(
                types=types,
                select=_selection(select or ()),
                reembed_all=reembed_all,
                clean=clean,
                branch=settings.branch,
                message=message,
                actor=settings.actor,
                dry_run=settings.dry_run,
                batch=batch,
                spool=spool,
                progress=_followed(shown, call.output.writing),
            )
        for warning in report.warnings:
            call.output.note(f"warning: {warning}")
        call.output.result({"uri": graph.uri, **report.to_json()}, *_lines(report))


def _selection(texts: Iterable[str]) -> dict[str, dict[str, list[Any]]]:
    """Return which values rows are to have, by type and field; the type of the field says what is meant."""
    from omnigraph.catalog.query import ParamText

    selection: dict[str, dict[str, list[Any]]] = {}
    for text in texts:
        name, colon, rest = text.partition(":")
        field, equals, value = rest.partition("=")
        if not (name and colon and field and equals):
            raise InvalidRequest(
                f"--select {text!r} is not understood", remedy="Write --select T:FIELD=VALUE"
            )
        selection.setdefault(name, {}).setdefault(field, []).append(ParamText(value))
    return selection


def _followed(
    shown: Callable[[str, int, int], None] | None, writing: Callable[[], None]
) -> Callable[[EmbedProgress], None]:
    """Show how far it is, and note when it begins to write, for a deadline."""

    def report(now: EmbedProgress) -> None:
        if now.stage == "writing":
            writing()
        if shown is not None:
            stage = f"embedding {now.property}, {now.embedded:,} texts" if now.property else now.stage
            shown(stage, now.rows, max(now.rows_total, 1))

    return report


def _lines(report: EmbedReport) -> Iterator[str]:
    for part in report.properties:
        yield f"  {part.type}.{part.property}: {_done(part, report)}"
    if not report.properties:
        yield "no type has a property with @embed: nothing to do"
    elif report.dry_run:
        yield "  nothing was written, and nobody was asked"
    elif report.commit_id is None:
        yield f"nothing to do on {report.branch}"
    else:
        by = f" by {report.provider}, {report.model}" if report.provider else ""
        yield f"{'cleaned' if report.mode == 'clean' else 'embedded'} {report.branch}{by}"
        yield f"  commit {report.commit_id}"


def _done(part: EmbeddedProperty, report: EmbedReport) -> str:
    would = "would be " if report.dry_run else ""
    if report.mode == "clean":
        return f"{counted(part.cleaned, 'vector')} {would}removed"
    made = f"{counted(part.embedded, 'vector')} {would}made from {part.source}"
    facts = [made, f"{part.characters:,} characters" if report.dry_run else f"{part.asked} texts asked for"]
    if part.reused:
        facts.append(f"{part.reused} were finished before")
    if part.without_text:
        facts.append(f"{counted(part.without_text, 'row')} without text")
    if part.left:
        facts.append(f"{counted(part.left, 'row')} came or changed meanwhile: run it again for them")
    return "; ".join(facts)
