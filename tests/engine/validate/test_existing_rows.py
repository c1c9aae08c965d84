"""Rows that are there when a schema asks more of them are judged as if they were written now.

Words, order and limits are the same, and so is the executor: memory is bounded, whatever the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import ConstraintViolation, StorageError
from omnigraph.catalog.model import Unique
from omnigraph.engine.change import Catalogs, ChangeSet, TypeChange
from omnigraph.engine.schema.existing import ColumnSource, DesiredRows
from omnigraph.engine.validate.evaluate import judge_sets, questions_of_stored
from omnigraph.engine.validate.executors import FrameExecutor
from omnigraph.engine.validate.relation import Findings
from omnigraph.engine.write import ChangeWrite, Draft
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.tables.effects import Append
from tests.engine.cases import knows, person
from tests.support.contents import change, insert, stored_rows, type_of

Records = list[dict[str, Any]]
PEOPLE: Records = [{"slug": slug} for slug in "abc"]
EDGES: Records = [{"id": f"e{n}", "src": "a", "dst": "b", "since": 7} for n in range(2)]


@dataclass(frozen=True)
class Fault:
    """A schema, the same schema with more constraints, and records of one type that break them."""

    loose: str
    strict: str
    records: Records
    type_name: str = "Person"

    @property
    def nodes(self) -> dict[str, Records]:
        """The nodes that edges need."""
        return {} if self.type_name == "Person" else {"Person": PEOPLE}


def on_person(loose: str, strict: str, *values: Any) -> Fault:
    """Return a fault in the values of `p`."""
    records = [{"slug": f"s{n:02d}", "p": value, "q": 1} for n, value in enumerate(values)]
    return Fault(person(loose), person(strict), records)


def on_knows(card: str = "", body: str = "") -> Fault:
    """Return a fault of two edges that are alike."""
    return Fault(knows(), knows(card, body), EDGES, "Knows")


FAULTS = {
    "unique": on_person("p: String?", "p: String? @unique", "a'b", "a'b", "c", None, None),
    "unique-zeros": on_person("p: F64?", "p: F64? @unique", 0.0, -0.0),
    "unique-day": on_person("p: Date?", "p: Date? @unique", 3, 3),
    "unique-instant": on_person("p: DateTime?", "p: DateTime? @unique", 1_234, 1_234),
    "unique-pair": on_person("p: I32? q: I32?", "p: I32? q: I32? @unique(p, q)", 1, 1, 2, None, None),
    "unique-ends": on_knows(body="@unique(src, dst)"),
    "range": on_person("p: I32?", "p: I32? @range(p, 0..9)", -1, 0, 9, 10, None),
    "range-open": on_person("p: F64?", "p: F64? @range(p, 0.5..)", 0.25, 1.0),
    "range-nan": on_person("p: F64?", "p: F64? @range(p, ..9)", 1.0, float("nan")),
    "check": on_person("p: String?", 'p: String? @check(p, "^a{2}$")', "aa", "b\nc", "x" * 200, None),
    "enum": on_person("p: enum(a, b, c)?", "p: enum(a, b)?", "a", "c", None, "c"),
    "required": on_person("p: I32?", "p: I32", 1, None, None),
    "required-vector": on_person("p: Vector(2)?", "p: Vector(2)", [1.0, 2.0], None),
    "required-list": on_person("p: [String]?", "p: [String]", ["a"], None),
    "required-edge": Fault(knows(), knows().replace("I32?", "I32"), [EDGES[0] | {"since": None}], "Knows"),
    "cardinality-most": on_knows("@card(0..1)"),
    "cardinality-least": on_knows("@card(3..)"),
    "several": on_person("p: I32?", "p: I32 @unique @range(p, 5..)", 9, 1, None, 7, 9),
    "more-than-shown": on_person("p: I32?", "p: I32? @range(p, ..0)", *range(1, 61)),
    "more-groups-than-shown": on_person("p: I32?", "p: I32? @unique", *(n // 2 for n in range(60))),
}


def write(graph: Graph, type_name: str, records: Records) -> None:
    """Write records of a type as every verb does."""
    catalog = graph.schema.catalog()
    declared = type_of(catalog, type_name)
    draft = Draft(ChangeSet.of(catalog, [TypeChange(declared, stored_rows(declared, records))]))
    catalogs = Catalogs(graph.store.schemas)
    graph.store.publish("main", ChangeWrite(lambda *_: draft, catalogs, CommitKind.MUTATION, "the write"))


def refusal(refused: Callable[[], object]) -> tuple[int, Records]:
    """Return how many violations there are, and those that are shown."""
    with pytest.raises(ConstraintViolation) as caught:
        refused()
    return caught.value.fields["total"], list(caught.value.fields["violations"])


def judged_by_apply(address: Path, fault: Fault) -> tuple[int, Records]:
    """Return what applying the strict schema finds in rows that are there."""
    with og.init(address, fault.loose, durability="os") as graph:
        insert(graph, fault.nodes | {fault.type_name: fault.records})
        return refusal(lambda: graph.schema.apply(fault.strict))


def judged_by_write(address: Path, fault: Fault) -> tuple[int, Records]:
    """Return what a write of the same rows under the strict schema finds."""
    with og.init(address, fault.strict, durability="os") as graph:
        insert(graph, fault.nodes)
        return refusal(lambda: write(graph, fault.type_name, fault.records))


@pytest.mark.parametrize("name", FAULTS)
def test_a_write_and_a_schema_change_report_the_same_fault_in_the_same_words(
    tmp_path: Path, name: str
) -> None:
    applied = judged_by_apply(tmp_path / "loose.og", FAULTS[name])

    assert applied == judged_by_write(tmp_path / "strict.og", FAULTS[name])


def test_the_unique_check_of_a_table_larger_than_the_memory_limit_spills_and_answers(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.og", person("p: String?"), durability="os") as graph:
        catalog = graph.schema.catalog()
        declared = catalog.node("Person")
        records = [{"slug": f"{n:06d}", "p": f"{n % 299_998:070d}"} for n in range(300_000)]
        change(graph, "Person", Append(stored_rows(declared, records)))
        stored = DesiredRows(
            catalog,
            partial(graph.store.table, graph.store.snapshot()),
            lambda type_: {member.id: ColumnSource(member.column) for member in type_.properties},
        )
        [member] = (member for member in declared.properties if member.name == "p")
        asked = list(questions_of_stored(declared, [Unique((member.id,))]))

        def judged(memory_bytes: int) -> Findings:
            return judge_sets(asked, FrameExecutor(ChangeSet(catalog, {}), stored, memory_bytes))

        holders = [one.message.partition(" held by ")[2] for one in judged(24 << 20).violations]
        assert holders == ["'000000' and '299998'", "'000001' and '299999'"]
        with pytest.raises(StorageError, match="memory"):
            judged(1 << 20)
