"""One small graph for tests of mutations and loads: people, companies, things, and edges between them.

Room    tests. Also imported by spawned processes: no pytest here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import ConstraintViolation
from omnigraph.storage.durability import armed
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.tables.effects import Overwrite
from omnigraph.storage.transaction import PlannedWrite, PublishPlan, PublishReceipt
from tests.support.contents import read
from tests.support.workers import once

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  note: String?
  email: String? @unique
  mood: String? @default("calm")
  @range(age, 0..120)
}
node Company { name: String @key }
node Thing { value: String seen: DateTime? }
node Slot { day: I32 row: I32 note: String? @key(day, row) }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Company @card(0..2)
"""

INSERT = "query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }"
NOTE = "query note($value: String) { insert Thing { value: $value } }"


def q(body: str) -> str:
    """Return statements as a query without parameters."""
    return f"query q() {{ {body} }}"


def person(name: str, **data: Any) -> dict[str, Any]:
    """Return a person as a data file writes it."""
    return {"type": "Person", "data": {"name": name, **data}}


def thing(value: str, **data: Any) -> dict[str, Any]:
    """Return a thing."""
    return {"type": "Thing", "data": {"value": value, **data}}


def company(name: str) -> dict[str, Any]:
    """Return a company."""
    return {"type": "Company", "data": {"name": name}}


def knows(source: str, target: str, **data: Any) -> dict[str, Any]:
    """Return an edge between people."""
    return {"edge": "Knows", "from": source, "to": target, "data": data}


def works(source: str, target: str, **data: Any) -> dict[str, Any]:
    """Return an edge to a company."""
    return {"edge": "WorksAt", "from": source, "to": target, "data": data}


def ages(graph: Graph, **where: Any) -> dict[str, int | None]:
    """Return the ages of all people by name."""
    return {row["name"]: row["age"] for row in read(graph, "Person", **where)}


def pairs(graph: Graph, edge: str = "Knows", **where: Any) -> list[tuple[str, str]]:
    """Return the ends of all edges of a type, in order."""
    return sorted((row["src"], row["dst"]) for row in read(graph, edge, **where))


def head(graph: Graph, branch: str = "main") -> str:
    """Return the commit that a branch is at."""
    return graph.store.snapshot(branch).commit_id


def violations(error: BaseException) -> list[str]:
    """Return the codes of what a write was refused for."""
    assert isinstance(error, ConstraintViolation), error
    return [violation["code"] for violation in error.fields["violations"]]


def tidy(graph: Graph, type_name: str = "Person") -> PublishReceipt:
    """Publish a maintenance commit: the files of a table change, none of its rows."""
    table = graph.schema.catalog().node(type_name).table_id
    same = graph.store.table(graph.store.snapshot(), table).to_table()
    plan = PublishPlan(CommitKind.MAINTENANCE, effects={table: Overwrite(same)}, replans=True)
    return graph.store.publish("main", PlannedWrite(plan))


def coming_first(address: str, act: Callable[[Graph], object], point: str = "publish.before") -> Any:
    """Arm a point so that another handle acts when the first writer reaches it."""

    def come() -> None:
        with og.connect(address, durability="os") as other:
            act(other)

    return armed({point: once(come)})
