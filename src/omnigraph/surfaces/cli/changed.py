"""Changed: how changes of entities and schemas are written for people.

Room    surfaces.cli. One line for each change: its sign, the entity, and what an update changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from omnigraph.catalog.steps import Step
from omnigraph.engine.history.change import Cause, Change, Op
from omnigraph.engine.history.diff import steps_json
from omnigraph.surfaces.cli.commit import shown_time

SIGNS = {Op.INSERT: "+", Op.UPDATE: "~", Op.DELETE: "-"}
WIDTH = 60  # characters of a value

Kinds = Annotated[
    list[str] | None, typer.Option("--kind", metavar="node|edge", help="Only changes of nodes, or of edges.")
]
Types = Annotated[
    list[str] | None, typer.Option("--type", metavar="T", help="Only changes of this type; repeatable.")
]
Ops = Annotated[
    list[str] | None,
    typer.Option("--op", metavar="insert|update|delete", help="Only changes of this sort; repeatable."),
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="So many changes at most.")]


def change_line(change: Change) -> str:
    """Return a change as one line."""
    line = f"{SIGNS[change.op]} {change.kind} {change.type_name} {change.id}"
    before, after = change.before or {}, change.after or {}
    told = [f"{name}: {value_text(before, name)} -> {value_text(after, name)}" for name in change.fields]
    return f"{line}  {', '.join(told)}" if told else line


def value_text(image: Any, name: str) -> str:
    """Return a value of an image, shortened; a blob is not in it."""
    if name not in image:
        return "(blob)"
    text = json.dumps(image[name], ensure_ascii=False, default=str)
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def cause_line(cause: Cause) -> str:
    """Return a commit as the head of its changes."""
    said = cause.message or cause.kind
    return f"{cause.commit_id}  {shown_time(cause.authored_at)}  {cause.branch}  {cause.actor or '-'}: {said}"


def step_lines(steps: Iterable[Step]) -> Iterator[str]:
    """Yield schema steps as lines."""
    for step in steps_json(steps):
        name = step.get("type_name") or step.get("name") or step.get("from") or step.get("message")
        place = f"{name}.{step['property_name']}" if "property_name" in step else name
        renamed = f" -> {step['to']}" if isinstance(step.get("to"), str) else ""
        yield f"* {step['kind']} {place}{renamed}"
