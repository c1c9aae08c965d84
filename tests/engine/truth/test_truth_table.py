"""The validation truth table: every row on every surface it speaks of, judged by either executor.

A refusal leaves the head where it was and no row of the write behind, and the next valid write succeeds.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import ConstraintViolation, GraphError, KeyConflict
from omnigraph.engine.write import ExecutorFor, Receipt
from omnigraph.storage.durability import armed
from omnigraph.storage.store import GraphStore
from tests.engine.truth.schemas import FILLER, filler_rows, next_rows, schema_text
from tests.engine.truth.surfaces import EXECUTORS, SURFACES, Surface
from tests.engine.truth.table import LATER, SETTLED, TABLE
from tests.engine.truth.vocabulary import STATEMENTS, Case, Image, Ok, Record, Refused, Shape
from tests.support.contents import BranchState, state
from tests.support.workers import once

SETTLES = 4_200  # rows that are past the first tier


def pairs(cases: Sequence[Case]) -> list[object]:
    """Return each case with each surface of its modes."""
    return [
        pytest.param(case, surface, id=f"{case} [{surface}]")
        for case in cases
        for surface in SURFACES
        if surface.mode in case.on
    ]


@pytest.fixture(
    params=[pytest.param(name, marks=[] if name == "chosen" else pytest.mark.slow) for name in EXECUTORS]
)
def executor(request: pytest.FixtureRequest) -> ExecutorFor:
    """Each case is judged by the executor that the engine chooses, and by DataFusion."""
    return EXECUTORS[request.param]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Path]:
    """Return the graph of a case, which nobody may change; it is made once and copied for each run."""
    folder = tmp_path_factory.mktemp("truth")
    made: dict[str, Path] = {}

    def plant_once(case: Case) -> Path:
        key = str((case.schema, case.committed, case.shape))
        if key not in made:
            made[key] = folder / f"{len(made)}.og"
            plant(made[key], case)
        return made[key]

    return plant_once


@pytest.mark.parametrize(("case", "surface"), pairs((*TABLE, *SETTLED)))
def test_row(
    case: Case, surface: Surface, executor: ExecutorFor, planted: Callable[[Case], Path], tmp_path: Path
) -> None:
    address = tmp_path / "graph.og"
    shutil.copytree(planted(case), address)
    with Graph(GraphStore.open(address, durability="os"), executor) as graph:
        graph.store.snapshot()
        with og.connect(address, durability="os") as other:
            commit(other, case.behind)
        for step in case.steps[:-1]:
            surface.act(graph, step)
        before = state(graph)
        with meanwhile(address, case.during) as passed:
            if isinstance(case.expect, Ok):
                check_accepted(graph, surface.act(graph, case.steps[-1]), before, case.expect)
            else:
                with pytest.raises(GraphError) as caught:
                    surface.act(graph, case.steps[-1])
                check_refused(caught.value, case.expect)
        assert not case.during or passed, "nobody came in between"
        if isinstance(case.expect, Refused):
            check_untouched(graph, before, case)


def plant(address: Path, case: Case) -> None:
    """Make the graph of a case, with its committed rows lying as the case has it."""
    filler = [] if case.shape is Shape.TAIL else filler_rows(case.schema, SETTLES)
    together = case.shape is Shape.SETTLED
    with og.init(address, schema_text(case.schema), durability="os") as graph:
        commit(graph, filler + list(case.committed) if together else filler)
        commit(graph, () if together else case.committed)


def commit(graph: Graph, records: Sequence[Record]) -> None:
    """Write rows that are valid."""
    if records:
        graph.load(list(records), mode="merge")


def meanwhile(address: Path, records: Sequence[Record]) -> AbstractContextManager[list[str]]:
    """Commit rows by another handle when the first writer is about to publish."""
    passed: list[str] = []
    if not records:
        return nullcontext(passed)

    def come_first() -> None:
        with og.connect(address, durability="os") as other:
            commit(other, records)
        passed.append("came first")

    return Meanwhile(armed({"publish.before": once(come_first)}), passed)


class Meanwhile(AbstractContextManager[list[str]]):
    """A failpoint that says whether it was passed."""

    def __init__(self, armed_point: AbstractContextManager[None], passed: list[str]) -> None:
        self._armed = armed_point
        self._passed = passed

    def __enter__(self) -> list[str]:
        self._armed.__enter__()
        return self._passed

    def __exit__(self, *error: Any) -> None:
        self._armed.__exit__(*error)


# -- verdicts ----------------------------------------------------------------------------------------


def check_accepted(graph: Graph, receipt: Receipt, before: BranchState, expected: Ok) -> None:
    """Assert that one commit was made, and that the types hold what they should."""
    assert receipt.commit is not None
    assert receipt.commit.parent == before.head
    assert graph.store.snapshot().commit_id == receipt.commit_id
    assert image(graph, expected.final) == wanted(graph, expected.final)
    if expected.affected is not None:
        assert (receipt.affected_nodes, receipt.affected_edges) == expected.affected


def check_refused(error: GraphError, expected: Refused) -> None:
    """Assert that an error names what is wrong, and nothing else."""
    assert codes(error) == expected.codes, str(error)
    assert expected.saying in str(error)
    if isinstance(error, ConstraintViolation | KeyConflict):
        assert error.fields["total"] == len(expected.codes)
    if expected.entity is not None:
        first = error.fields["violations"][0] if isinstance(error, ConstraintViolation) else error.fields
        assert (first["type_name"], first["entity_id"]) == expected.entity


def check_untouched(graph: Graph, before: BranchState, case: Case) -> None:
    """Assert that nothing of a refused write is there, and that it is in nobody's way."""
    now = state(graph)
    if not case.during:
        assert now == before
    written = {name: Counter(map(str, rows)) for name, rows in now.rows.items()}
    allowed = [*case.committed, *case.behind, *case.during]
    assert sum(c.total() for c in written.values()) - count_filler(now) == len(allowed)
    receipt = graph.load(next_rows(case.schema), mode="append")
    assert receipt.commit is not None
    assert receipt.commit.parent == now.head


def count_filler(now: BranchState) -> int:
    return sum(is_filler(row) for rows in now.rows.values() for row in rows)


def codes(error: GraphError) -> tuple[str, ...]:
    """Return the codes of what an error reports, in order."""
    match error:
        case ConstraintViolation():
            return tuple(violation["code"] for violation in error.fields["violations"])
        case _ if "diagnostics" in error.fields:
            return tuple(diagnostic.rule.name for diagnostic in error.fields["diagnostics"])
        case _:
            return (error.code,)


# -- images ------------------------------------------------------------------------------------------


def image(graph: Graph, types: Image) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of some types, with ids only where they are asked for."""
    found = {}
    for name in types:
        view = graph.edges(name) if graph.schema.catalog().find_node(name) is None else graph.nodes(name)
        rows = [row for row in plain(view.to_arrow()) if not is_filler(row)]
        if not any("id" in row for row in types[name]):
            rows = [{key: value for key, value in row.items() if key != "id"} for row in rows]
        found[name] = sorted(rows, key=str)
    return found


def wanted(graph: Graph, types: Image) -> dict[str, list[dict[str, Any]]]:
    """Return rows as they are read: what is not mentioned is null."""
    found = {}
    for name, rows in types.items():
        declared = graph.schema.catalog().find_node(name) or graph.schema.catalog().edge(name)
        null = dict.fromkeys((p.name for p in declared.properties), None)
        found[name] = sorted(({**null, **row} for row in rows), key=lambda row: str(sorted_like(row)))
    return {name: sorted(map(sorted_like, rows), key=str) for name, rows in found.items()}


def sorted_like(row: Record) -> dict[str, Any]:
    """Return a row with its columns in the order in which tables have them."""
    first = [name for name in ("id", "src", "dst") if name in row]
    rest = sorted(name for name in row if name not in first)
    return {name: row[name] for name in (*first, *rest)}


def plain(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield rows with times as text and floats as people write them."""
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            moments = column.to_pylist()
            texts = [
                None if m is None else f"{m.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
                for m in moments
            ]
            table = table.set_column(table.schema.get_field_index(name), name, pa.array(texts, pa.string()))
        if pa.types.is_date32(column.type):
            texts = [None if day is None else day.isoformat() for day in column.to_pylist()]
            table = table.set_column(table.schema.get_field_index(name), name, pa.array(texts, pa.string()))
    for row in table.to_pylist():
        yield {key: round(v, 6) if isinstance(v, float) else v for key, v in sorted_like(row).items()}


def is_filler(row: Record) -> bool:
    return any(str(value).startswith(FILLER) for value in row.values())


# -- the table itself --------------------------------------------------------------------------------


def test_every_row_is_in_the_table_or_says_what_it_waits_for() -> None:
    numbers = (
        "001 002 003 004 005 006 007 008 009 010 011 012 013 015 017 018 019 020 021 022 023 024 025 026 029 "
        "030 031 032 033 034 035 036 037 038 039 040 041 042 043 044 045 046 049 050 052 053 056 057 058 059 "
        "060 061 062 063 064 066 067 069 070 071 072 073 074 075 076 077 078 079 080 081 082 083 084 085 086 "
        "087 089 090 091 092 093 094 095 096 097 098 099 100 101 102 103 104"
    )
    waiting = {row for rows in LATER.values() for row in rows}
    assert {case.row for case in TABLE} | waiting == {f"V-{number}" for number in numbers.split()}


def test_every_surface_runs_some_row() -> None:
    assert all(any(surface.mode in case.on for case in TABLE) for surface in SURFACES)
    assert any(surface.mode is STATEMENTS for surface in SURFACES)


@pytest.mark.full
def test_v103_one_duplicate_at_the_end_of_a_million_rows_is_one_violation(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(1_000_000)]
    with og.init(tmp_path / "graph.og", schema_text("P"), durability="os") as graph:
        head = graph.store.snapshot().commit_id
        with pytest.raises(ConstraintViolation) as caught:
            graph.load(pa.table({"name": [*names, "p0"]}), mode="merge", type="Person")

        assert codes(caught.value) == ("unique",)
        assert caught.value.fields["violations"][0]["entity_id"] == "p0"
        assert graph.store.snapshot().commit_id == head
        assert graph.load(pa.table({"name": names}), mode="merge", type="Person").affected_nodes == len(names)
