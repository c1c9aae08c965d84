"""Two executors, one answer: random changes on random bases, the same findings in the same order and words.

The committed rows are planted below the engine, so that they may break constraints themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph import Graph
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import EdgeType, NodeType, TableType
from omnigraph.engine.change import ChangeSet, TypeChange, last_of_each
from omnigraph.engine.validate.evaluate import asked_of, judge_sets, questions
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.validate.relation import Findings
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.tables.effects import Overwrite
from omnigraph.storage.transaction import PlannedWrite, PublishPlan, WriteTxn

SCHEMA = """
node A { k: String @key f: F64? @unique at: DateTime? s: String? big: U64? @unique @unique(at, s) }
node B { v: Bool? day: Date? @unique f: F32? n: I64? @unique(v, f, n) }
edge E: A -> A @card(1..2) { @unique(src, dst) }
edge F: A -> B @card(0..1) { w: F32? @unique mood: enum(x, y)? @unique(mood, src) }
"""

IDS = st.sampled_from(["a", "b", "c", "ä", "Z", "z'\"\\"])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "f": st.sampled_from([None, 0.0, -0.0, 1.5]),
    "at": st.sampled_from([None, 0, 1, 86_400_000, 2**47]),
    "s": st.sampled_from([None, "", "x", "x|y"]),
    "big": st.sampled_from([None, 0, 2**63, 2**63 + 1, 2**64 - 1]),
    "v": st.sampled_from([None, True, False]),
    "day": st.sampled_from([None, 0, -1, 20_633, 3_000_000]),
    "n": st.sampled_from([None, -(2**63), 1]),
    "w": st.sampled_from([None, 0.0, -0.0, 0.1]),
    "mood": st.sampled_from([None, "x", "y"]),
}


@st.composite
def rows(draw: st.DrawFn, declared: TableType, *, distinct: bool) -> pa.Table:
    """Return a few rows of a type."""
    ids = draw(st.lists(IDS, max_size=5, unique=distinct))
    columns: dict[str, list[Any]] = {"id": ids}
    if isinstance(declared, EdgeType):
        columns |= {end: [draw(IDS) for _ in ids] for end in ("src", "dst")}
    for member in declared.properties:
        keyed = isinstance(declared, NodeType) and member.id in declared.key
        columns[member.column] = ids if keyed else [draw(VALUES[member.name]) for _ in ids]
    schema = declared.stored_schema
    return pa.table({f.name: pa.array(columns[f.name], f.type) for f in schema}, schema=schema)


@st.composite
def type_change(draw: st.DrawFn, declared: TableType) -> TypeChange | None:
    """Return what one of the verbs could do to a type."""
    verb = draw(
        st.sampled_from(["nothing", "append", "merge", "overwrite", "statements", "delete", "branch merge"])
    )
    removed = pa.array(draw(st.lists(IDS, max_size=4, unique=True)), pa.string())
    match verb:
        case "nothing":
            return None
        case "append" | "overwrite":
            given_rows = draw(rows(declared, distinct=False))
            strict = verb == "append"
            return TypeChange(declared, given_rows, given_rows, strict=strict, replaces=not strict)
        case "merge":
            given_rows = draw(rows(declared, distinct=False))
            keyed = isinstance(declared, NodeType) and bool(declared.key)
            return TypeChange(declared, given_rows if keyed else last_of_each(given_rows), given_rows)
        case "statements":
            return TypeChange(declared, draw(rows(declared, distinct=True)))
        case "delete":
            return TypeChange(declared, declared.stored_schema.empty_table(), removed=removed)
        case _:
            written = draw(rows(declared, distinct=True))
            gone = [one for one in removed.to_pylist() if one not in written["id"].to_pylist()]
            return TypeChange(declared, written, removed=pa.array(gone, pa.string()))


@dataclass(frozen=True)
class Judged:
    """The graph whose rows are replaced for each example."""

    graph: Graph

    @property
    def catalog(self) -> Catalog:
        """The types."""
        return self.graph.schema.catalog()

    def base(self, committed: Sequence[pa.Table]) -> WriteTxn:
        """Plant rows, and return the transaction of a write that would come next."""
        effects = {
            t.table_id: Overwrite(table) for t, table in zip(self.catalog.tables, committed, strict=True)
        }
        self.graph.store.publish("main", PlannedWrite(PublishPlan(CommitKind.MUTATION, effects=effects)))
        base: WriteTxn = self.graph.store.rehearse("main", PlannedWrite(PublishPlan(CommitKind.MUTATION)))
        return base

    def findings(self, committed: Sequence[pa.Table], changes: Sequence[TypeChange | None]) -> list[Findings]:
        """Return what each executor finds."""
        change = ChangeSet.of(self.catalog, [one for one in changes if one is not None])
        base = self.base(committed)
        asked = asked_of(change).questions
        made = [(question.relation, question.order) for question in questions(change)]
        assert [(question.relation, question.order) for question in asked] == made  # kept, or made for it
        return [judge_sets(asked, LocalExecutor(change, base, most)) for most in (1_000, 1, -1)]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    """One graph for all examples."""
    with og.init(tmp_path_factory.mktemp("agree") / "g.og", SCHEMA, durability="os") as graph:
        yield Judged(graph)


@st.composite
def example(draw: st.DrawFn, catalog: Catalog) -> tuple[list[pa.Table], list[TypeChange | None]]:
    """Return what is committed, and what happens to it."""
    committed = [draw(rows(declared, distinct=True)) for declared in catalog.tables]
    return committed, [draw(type_change(declared)) for declared in catalog.tables]


def check(judged: Judged, data: st.DataObject) -> None:
    """Assert that both executors say the same of one example."""
    committed, changes = data.draw(example(judged.catalog))
    by_rows, by_both, by_frames = judged.findings(committed, changes)
    assert by_rows == by_both == by_frames


COMMON = {
    "deadline": None,
    "suppress_health_check": [
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
        HealthCheck.data_too_large,
    ],
    "phases": (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
}


@pytest.mark.slow
@settings(max_examples=40, derandomize=True, **COMMON)  # type: ignore[arg-type]
@given(st.data())
def test_rows_and_frames_find_the_same(judged: Judged, data: st.DataObject) -> None:
    check(judged, data)


@pytest.mark.full
@pytest.mark.timeout(1_200)
@settings(max_examples=2_000, **COMMON)  # type: ignore[arg-type]
@given(st.data())
def test_rows_and_frames_find_the_same_in_many_cases(judged: Judged, data: st.DataObject) -> None:
    check(judged, data)
