"""An input of any size: beyond a limit its rows wait on disk, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.catalog.model import NodeType
from omnigraph.engine.load.assembly import Modes, WriteMode
from omnigraph.engine.load.conform import RowBlock
from omnigraph.engine.load.draft import Input, LoadDraft, Spools
from tests.support.catalogs import catalog

CATALOG = catalog("node Person { name: String @key age: I32? }")
PERSON = CATALOG.node("Person")
assert isinstance(PERSON, NodeType)


def block(first: int, count: int, origin: str = "a.csv") -> RowBlock:
    """Return people in a row, each with its line."""
    names = [f"p{number}" for number in range(first, first + count)]
    columns = {"id": names, "age": pa.array(range(first, first + count), pa.int32()), "name": names}
    rows = pa.RecordBatch.from_arrays(
        [pa.array(columns[f.name], f.type) for f in PERSON.stored_schema], schema=PERSON.stored_schema
    )
    return RowBlock(
        PERSON, rows, pa.array(range(first + 1, first + count + 1), pa.int64()), origin, minted=False
    )


@pytest.fixture(params=[1 << 30, 2_000, 1], ids=["memory", "both", "disk"])
def spools(request: pytest.FixtureRequest) -> Spools:
    """Spools with room for all, for some and for nothing."""
    return Spools(request.param)


def test_all_rows_come_back_in_order_with_origin_and_position(spools: Spools) -> None:
    for first in range(0, 300, 50):
        spools.add(block(first, 50, "a.csv" if first < 150 else "b.csv"))
    spool = spools.by_type[PERSON.id]

    table = spool.table()

    assert spool.rows == table.num_rows == 300
    assert table["name"].to_pylist() == [f"p{number}" for number in range(300)]
    assert spool.last_location(table, "id", "p7") == ("a.csv", 8)
    assert spool.last_location(table, "id", "p299") == ("b.csv", 300)
    assert spool.last_location(table, "id", "nobody") is None
    spools.close()


def test_rows_can_be_read_as_long_as_they_are_needed_and_leave_no_file(spools: Spools) -> None:
    for first in range(0, 100, 50):
        spools.add(block(first, 50))
    folder = Path(spools._folder.name)
    draft = LoadDraft(Input(CATALOG, spools.by_type), Modes(WriteMode.MERGE), {})

    spools.close()

    assert not folder.exists()
    change = draft.change.types[PERSON.id]
    assert change.rows["age"].to_pylist() == list(range(100))
