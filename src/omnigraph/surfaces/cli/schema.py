"""The schema of a branch: shown, drawn, checked, planned and changed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.base.errors import counted
from omnigraph.base.times import FORMS
from omnigraph.language.diagnostics import Severity, SourceText, render
from omnigraph.surfaces.cli.support.call import Address, Call, GraphUri, IfCommit, Message, call_of
from omnigraph.surfaces.cli.support.command_line import Commands

if TYPE_CHECKING:
    from rich.text import Text

    from omnigraph.catalog.steps import Dedupe, Step
    from omnigraph.engine.schema.hard_drop import ReclaimedType
    from omnigraph.engine.schema.schema import SchemaPlan, SchemaReceipt

app = Commands(help="Show, plan and change the schema of a branch.")
SchemaFile = Annotated[Path, typer.Option("--schema", help="The desired schema file (.pg).")]
DataLoss = Annotated[
    bool, typer.Option("--allow-data-loss", help="Make every drop hard: the history of its type goes too.")
]


class DedupeWay(StrEnum):
    """Which of several edges that would share a key stays."""

    EQUAL = "equal"
    LATEST = "latest"


DedupeOption = Annotated[
    DedupeWay | None,
    typer.Option("--dedupe", help="Of edges that would share a key: one of equal ones stays, or the latest."),
]
HISTORY = "dropped data and the history of the types that held it"


class ShowFormat(StrEnum):
    """How to show a schema."""

    PG = "pg"
    JSON = "json"


class DiagramForm(StrEnum):
    """The language of a diagram."""

    MERMAID = "mermaid"
    DOT = "dot"


# -- looking at a schema -----------------------------------------------------------------------------


@app.command("show", example="omnigraph schema show kb.og --branch review")
def show(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    form: Annotated[
        ShowFormat, typer.Option("--format", help="Schema text, or the resolved catalog.")
    ] = ShowFormat.PG,
    snapshot: Annotated[
        str | None, typer.Option("--snapshot", metavar="AT", help=f"As it was: {FORMS}.")
    ] = None,
) -> None:
    """Print the accepted schema."""
    call = call_of(ctx)
    with call.connect(address, graph_uri) as graph:
        catalog = graph.schema.catalog(call.settings.branch, snapshot)
    text = catalog.source if form is ShowFormat.PG else catalog.to_json().decode()
    call.output.result(
        {"schema_source": catalog.source, "digest": catalog.declaration_digest}, text.rstrip("\n")
    )


@app.command("get", hidden=True)
def get(ctx: typer.Context, address: Address = None, graph_uri: GraphUri = None) -> None:
    """Old spelling of show."""
    call_of(ctx).output.note("'schema get' is now 'schema show'")
    show(ctx, address, graph_uri)


# -- changing it -------------------------------------------------------------------------------------


@app.command("plan", example="omnigraph schema plan kb.og --schema new.pg --json")
def plan(
    ctx: typer.Context,
    schema: SchemaFile,
    address: Address = None,
    graph_uri: GraphUri = None,
    allow_data_loss: DataLoss = False,
    dedupe: DedupeOption = None,
) -> int:
    """Say what applying a schema would do; write nothing."""
    call = call_of(ctx)
    with call.connect(address, graph_uri) as graph:
        proposal = graph.schema.plan(
            schema, branch=call.settings.branch, allow_data_loss=allow_data_loss, dedupe=_way(dedupe)
        )
        call.output.result({"uri": graph.uri, **proposal.to_json()}, *_plan_lines(proposal))
    return 0 if proposal.supported else 1


@app.command("apply", example="omnigraph schema apply kb.og --schema new.pg --as ada --dry-run")
def apply(
    ctx: typer.Context,
    schema: SchemaFile,
    address: Address = None,
    graph_uri: GraphUri = None,
    allow_data_loss: DataLoss = False,
    dedupe: DedupeOption = None,
    confirm: Annotated[bool, typer.Option("--confirm", help="Needed with --allow-data-loss.")] = False,
    if_commit: IfCommit = None,
    message: Message = None,
) -> int:
    """Change the schema: one commit with all its table changes, or none."""
    call = call_of(ctx)
    where = call.settings.address(address, graph_uri)
    if call.settings.dry_run:
        return _dry_apply(call, where, schema, allow_data_loss, if_commit, _way(dedupe))
    if allow_data_loss:
        call.require_consent("schema apply", where, destroys=HISTORY, confirmed=confirm)
    call.output.target("schema apply", where)
    with call.connect(where) as graph:
        receipt = graph.schema.apply(
            schema,
            branch=call.settings.branch,
            allow_data_loss=allow_data_loss,
            actor=call.actor(where),
            message=message,
            if_commit=if_commit,
            dedupe=_way(dedupe),
        )
        for warning in receipt.warnings:
            call.output.note(f"warning: {warning}")
        call.output.result({"uri": graph.uri, **receipt.to_json()}, *_receipt_lines(receipt))
    return 1 if any(reclaimed.error for reclaimed in receipt.reclaimed) else 0


def _way(dedupe: DedupeWay | None) -> Dedupe | None:
    return None if dedupe is None else dedupe.value


def _dry_apply(
    call: Call, where: str, schema: Path, allow_data_loss: bool, if_commit: str | None, dedupe: Dedupe | None
) -> int:
    """Do everything that an apply does up to its first write."""
    with call.connect(where) as graph:
        proposal = graph.schema.plan(
            schema,
            branch=call.settings.branch,
            allow_data_loss=allow_data_loss,
            if_commit=if_commit,
            check_rows=True,
            dedupe=dedupe,
        )
        document = {"uri": graph.uri, **proposal.to_json(), "applied": False, "dry_run": True}
        call.output.result(document, *_plan_lines(proposal))
    return 0 if proposal.supported else 1


@app.command("lint", example="omnigraph schema lint --schema new.pg")
def lint(
    ctx: typer.Context,
    schema: SchemaFile,
    address: Address = None,
    graph_uri: GraphUri = None,
) -> int:
    """Check a schema file; with a graph, also what migrating to it would mean."""
    from omnigraph.catalog.lint import lint as lint_text
    from omnigraph.engine.schema.schema import read_schema

    call = call_of(ctx)
    text, file = read_schema(schema)
    if address or graph_uri:
        with call.connect(address, graph_uri) as graph:
            findings = graph.schema.lint(schema, branch=call.settings.branch)
    else:
        findings = lint_text(text, file=file)
    errors = sum(d.severity is Severity.ERROR for d in findings)
    names = {Severity.ERROR: "errors", Severity.WARN: "warnings", Severity.INFO: "infos"}
    counts = {name: sum(d.severity is level for d in findings) for level, name in names.items()}
    source = SourceText(text.decode("utf-8", "replace") if isinstance(text, bytes) else text, file)
    lines = [render(source, findings)] if findings else []
    totals = ", ".join(counted(number, name.removesuffix("s")) for name, number in counts.items())
    call.output.result(
        {"status": "error" if errors else "ok", **counts, "findings": [d.to_json() for d in findings]},
        *lines,
        f"{'ERROR' if errors else 'OK'} {file}: {totals}",
    )
    return 1 if errors else 0


@app.command("diagram", example="omnigraph schema diagram kb.og --format dot")
def diagram(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    form: Annotated[DiagramForm, typer.Option("--format", help="Mermaid or Graphviz.")] = DiagramForm.MERMAID,
) -> None:
    """Print the schema as a picture, in the language of Mermaid or Graphviz."""
    call = call_of(ctx)
    with call.connect(address, graph_uri) as graph:
        text = graph.schema.diagram(call.settings.branch, form=form.value)
    call.output.result({"format": form.value, "diagram": text}, text)


# -- lines -------------------------------------------------------------------------------------------


def _plan_lines(proposal: SchemaPlan) -> list[str | Text]:
    if not proposal.steps:
        return ["no difference"]
    lines: list[str | Text] = [f"supported: {'yes' if proposal.supported else 'no'}"]
    return lines + [_step_line(proposal, step) for step in proposal.steps]


def _receipt_lines(receipt: SchemaReceipt) -> list[str | Text]:
    commit = receipt.commit
    applied = "already in force: nothing to do" if commit is None else f"applied: commit {commit.id}"
    return [*_plan_lines(receipt.plan), applied, *map(_reclaimed_line, receipt.reclaimed)]


def _reclaimed_line(reclaimed: ReclaimedType) -> str:
    if reclaimed.error is not None:
        return f"not reclaimed: {reclaimed.type_name}: {reclaimed.error}"
    files, size = counted(reclaimed.files, "file"), counted(reclaimed.bytes, "byte")
    return f"reclaimed: {reclaimed.type_name}: {files}, {size}"


def _step_line(proposal: SchemaPlan, step: Step) -> Text:
    from rich.text import Text

    from omnigraph.catalog.steps import UnsupportedChange

    rows = proposal.rows(step)
    document: dict[str, Any] = step.to_json()
    if isinstance(step, UnsupportedChange):
        return Text.assemble("  ", ("refused", "red"), f"  {step.message}")
    what = " ".join(str(part) for part in _words(document) if part)
    cost = document["effect"] if rows == 0 else f"{document['effect']}, {counted(rows, 'row')}"
    if proposal.takes_history(step):
        cost += f"; the history of {step.type_name} goes with it"
    return Text.assemble("  ", (document["kind"], "bold"), f"  {what}  ", (f"({cost})", "dim"))


def _words(step: dict[str, Any]) -> list[Any]:
    """Return the words that tell one step from another."""
    name = step.get("type_name") or step.get("name")
    place = f"{name}.{step['property_name']}" if "property_name" in step else name
    words: list[Any] = [place]
    if "from" in step and isinstance(step["from"], str):
        words = [
            f"{step['type_name']}.{step['from']}" if "type_name" in step else step["from"],
            "->",
            step["to"],
        ]
    if step["kind"] == "alter_property":
        words += [_type(step["from"]), "->", _type(step["to"])]
    if "property_type" in step:
        words += [_type(step["property_type"])]
    if "key" in step:
        words += [f"@key({', '.join(step['key'])})"]
    if step["kind"] == "change_key":
        words += [f"@key({', '.join(step['from'])})", "->", f"@key({', '.join(step['to'])})"]
    if "added_values" in step:
        words += ["+", ", ".join(step["added_values"])]
    if "constraint" in step:
        words += [" ".join(str(value) for value in step["constraint"].values())]
    if "fill" in step:
        words += ["fill", next(iter(step["fill"].values()), "")]
    return [*words, step.get("mode")]


def _type(document: dict[str, Any]) -> str:
    from omnigraph.catalog.types import PropertyType

    return str(PropertyType.from_json(document))
