"""Schema commands: show, plan, apply, lint, diagram."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from omnigraph.base.times import FORMS
from omnigraph.catalog.lint import lint as lint_text
from omnigraph.catalog.steps import Step, UnsupportedChange
from omnigraph.catalog.types import PropertyType
from omnigraph.engine.schema.hard_drop import ReclaimedType
from omnigraph.engine.schema.schema import SchemaPlan, SchemaReceipt, read_schema
from omnigraph.language.diagnostics import Severity, SourceText, render
from omnigraph.surfaces.cli.support.call import Address, Call, GraphUri, call_of

app = typer.Typer(help="Show, plan and change the schema of a branch.", no_args_is_help=True)
SchemaFile = Annotated[Path, typer.Option("--schema", help="The desired schema file (.pg).")]
DataLoss = Annotated[
    bool, typer.Option("--allow-data-loss", help="Make every drop hard: the history of its type goes too.")
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


@app.command("show")
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


@app.command("plan")
def plan(
    ctx: typer.Context,
    schema: SchemaFile,
    address: Address = None,
    graph_uri: GraphUri = None,
    allow_data_loss: DataLoss = False,
) -> int:
    """Say what applying a schema would do; write nothing."""
    call = call_of(ctx)
    with call.connect(address, graph_uri) as graph:
        found = graph.schema.plan(schema, branch=call.settings.branch, allow_data_loss=allow_data_loss)
        call.output.result({"uri": graph.uri, **found.to_json()}, *_plan_lines(found))
    return 0 if found.supported else 1


@app.command("apply")
def apply(
    ctx: typer.Context,
    schema: SchemaFile,
    address: Address = None,
    graph_uri: GraphUri = None,
    allow_data_loss: DataLoss = False,
    confirm: Annotated[bool, typer.Option("--confirm", help="Needed with --allow-data-loss.")] = False,
    if_commit: Annotated[str | None, typer.Option("--if-commit", help="Only if this is the head.")] = None,
    message: Annotated[str | None, typer.Option("--message", help="Why; recorded on the commit.")] = None,
) -> int:
    """Change the schema: one commit with all its table changes, or none."""
    call = call_of(ctx)
    where = call.settings.address(address, graph_uri)
    if call.settings.dry_run:
        return _dry_apply(call, where, schema, allow_data_loss, if_commit)
    if allow_data_loss:
        call.require_consent("schema apply", where, destroys=HISTORY, confirmed=confirm)
    call.output.target("schema apply", where)
    with call.connect(where) as graph:
        receipt = graph.schema.apply(
            schema,
            branch=call.settings.branch,
            allow_data_loss=allow_data_loss,
            actor=call.settings.actor,
            message=message,
            if_commit=if_commit,
        )
        for warning in receipt.warnings:
            call.output.note(f"warning: {warning}")
        call.output.result({"uri": graph.uri, **receipt.to_json()}, *_receipt_lines(receipt))
    return 1 if any(one.error for one in receipt.reclaimed) else 0


def _dry_apply(call: Call, where: str, schema: Path, allow_data_loss: bool, if_commit: str | None) -> int:
    """Do everything that an apply does up to its first write."""
    with call.connect(where) as graph:
        found = graph.schema.plan(
            schema,
            branch=call.settings.branch,
            allow_data_loss=allow_data_loss,
            if_commit=if_commit,
            check_rows=True,
        )
        document = {"uri": graph.uri, **found.to_json(), "applied": False, "dry_run": True}
        call.output.result(document, *_plan_lines(found))
    return 0 if found.supported else 1


@app.command("lint")
def lint(
    ctx: typer.Context,
    schema: SchemaFile,
    address: Address = None,
    graph_uri: GraphUri = None,
) -> int:
    """Check a schema file; with a graph, also what migrating to it would mean."""
    call = call_of(ctx)
    text, file = read_schema(schema)
    if address or graph_uri:
        with call.connect(address, graph_uri) as graph:
            found = graph.schema.lint(schema, branch=call.settings.branch)
    else:
        found = lint_text(text, file=file)
    errors = sum(d.severity is Severity.ERROR for d in found)
    names = {Severity.ERROR: "errors", Severity.WARN: "warnings", Severity.INFO: "infos"}
    counts = {name: sum(d.severity is level for d in found) for level, name in names.items()}
    source = SourceText(text.decode("utf-8", "replace") if isinstance(text, bytes) else text, file)
    lines = [render(source, found)] if found else []
    totals = ", ".join(f"{number} {name}" for name, number in counts.items())
    call.output.result(
        {"status": "error" if errors else "ok", **counts, "findings": [d.to_json() for d in found]},
        *lines,
        f"{'ERROR' if errors else 'OK'} {file}: {totals}",
    )
    return 1 if errors else 0


@app.command("diagram")
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


def _plan_lines(found: SchemaPlan) -> list[str | Text]:
    if not found.steps:
        return ["no difference"]
    lines: list[str | Text] = [f"supported: {'yes' if found.supported else 'no'}"]
    return lines + [_step_line(found, step) for step in found.steps]


def _receipt_lines(receipt: SchemaReceipt) -> list[str | Text]:
    commit = receipt.commit
    done = "already in force: nothing to do" if commit is None else f"applied: commit {commit.id}"
    return [*_plan_lines(receipt.plan), done, *(_reclaimed_line(one) for one in receipt.reclaimed)]


def _reclaimed_line(one: ReclaimedType) -> str:
    if one.error is not None:
        return f"not reclaimed: {one.type_name}: {one.error}"
    return f"reclaimed: {one.type_name}: {one.files} files, {one.bytes} bytes"


def _step_line(found: SchemaPlan, step: Step) -> Text:
    rows = found.rows(step)
    document: dict[str, Any] = step.to_json()
    if isinstance(step, UnsupportedChange):
        return Text.assemble("  ", ("refused", "red"), f"  {step.message}")
    what = " ".join(str(part) for part in _words(document) if part)
    cost = document["effect"] if rows == 0 else f"{document['effect']}, {rows} rows"
    if found.takes_history(step):
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
    if "added_values" in step:
        words += ["+", ", ".join(step["added_values"])]
    if "constraint" in step:
        words += [" ".join(str(value) for value in step["constraint"].values())]
    if "fill" in step:
        words += ["fill", next(iter(step["fill"].values()), "")]
    return [*words, step.get("mode")]


def _type(document: dict[str, Any]) -> str:
    return str(PropertyType.from_json(document))
