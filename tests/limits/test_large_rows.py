"""A row that is too large is refused by its type, property and place, whatever way it comes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.catalog.identity import IdMinter
from omnigraph.catalog.resolve import resolve_text
from omnigraph.engine.load.conform import LoadProblems
from omnigraph.engine.load.sources.json import Records
from omnigraph.engine.load.sources.tables import Tabular, open_table

SCHEMA = "node Note { name: String @key  text: String?  raw: Blob?  tags: [String]? }"
ADD = "query add($n: String, $t: String) { insert Note { name: $n, text: $t } }"
TAGS = "query tags($n: String, $t: [String]) { insert Note { name: $n, tags: $t } }"
SET = "query set($n: String, $t: String) { update Note set { text: $t } where name = $n }"
SMALL = 10_000
MIB = 1 << 20
MODULES = (
    "omnigraph.catalog.types",
    "omnigraph.catalog.resolve",
    "omnigraph.engine.load.cells",
    "omnigraph.engine.load.sources.json",
    "omnigraph.engine.load.sources.tables",
    "omnigraph.engine.mutate.draft",
)
LONG = "x" * (SMALL + 1)


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    """A graph with one row, in a process that takes small rows for large ones."""
    for module in MODULES:
        monkeypatch.setattr(f"{module}.LARGEST_ROW", SMALL)
    with og.init(tmp_path / "rows.og", SCHEMA, durability="os") as opened:
        opened.mutate(ADD, n="first", t="short")
        yield opened


def row(**data: Any) -> dict[str, Any]:
    """Return a record."""
    return {"type": "Note", "data": {"name": "second", **data}}


def arrow(**columns: list[Any]) -> pa.Table:
    """Return a table of three rows, of which the middle one is too large."""
    return pa.table({"name": ["before", "second", "after"], **columns})


WAYS: dict[str, tuple[str, Callable[[Graph], object]]] = {
    "insert": ("text", lambda g: g.mutate(ADD, n="second", t=LONG)),
    "update": ("text", lambda g: g.mutate(SET, n="first", t=LONG)),
    "a list in a mutation": ("tags", lambda g: g.mutate(TAGS, n="second", t=["y" * 6_000] * 2)),
    "a record": ("text", lambda g: g.load([row(text=LONG)], mode="append")),
    "a record of bytes": ("raw", lambda g: g.load([row(raw=LONG.encode())], mode="append")),
    "a list in a record": ("tags", lambda g: g.load([row(tags=["y" * 6_000] * 2)], mode="merge")),
    "bare records": ("text", lambda g: g.load([{"name": "b", "text": LONG}], type="Note", mode="append")),
    "Arrow": ("text", lambda g: g.load(arrow(text=["a", LONG, "c"]), type="Note", mode="append")),
    "Arrow, a list": (
        "tags",
        lambda g: g.load(arrow(tags=[["a"], ["y" * 6_000] * 2, []]), type="Note", mode="append"),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_it_is_refused_by_type_and_property_and_nothing_is_written(graph: Graph, way: str) -> None:
    name, call = WAYS[way]
    before = graph.commits.list()[0].id

    said = rf"(?s){name}: the row takes \d+ bytes.* at most {SMALL}"
    with pytest.raises(og.GraphError, match=said) as caught:
        call(graph)

    error = caught.value
    assert error.code in ("bad_request", "constraint_violation")
    if isinstance(error, og.ConstraintViolation):
        assert error.violations[0]["position"] == (2 if "Arrow" in way else 1)
        assert error.total == 1
    assert graph.commits.list()[0].id == before
    graph.mutate(ADD, n="second", t="x" * (SMALL - 100))


def test_vectors_that_no_row_has_room_for_are_refused_with_the_schema(tmp_path: Path) -> None:
    """A null takes as much as a value: one such row would be 8 GB."""
    with pytest.raises(og.SchemaUnsupported, match=r"no row of Wide can be stored.*8000000000 bytes"):
        og.init(tmp_path / "wide.og", "node Wide { name: String @key  v: Vector(2000000000)? }")
    assert not (tmp_path / "wide.og").exists()


def test_blocks_count_what_a_null_vector_takes() -> None:
    """65,536 rows without their vectors of 4 KB would be 268 MB at once."""
    catalog = resolve_text("node Wide { name: String @key  v: Vector(1000)? }", None, IdMinter("x")).catalog
    rows = [{"type": "Wide", "data": {"name": str(number)}} for number in range(5_000)]
    table = pa.table({"name": [row["data"]["name"] for row in rows]})  # type: ignore[index]
    sources = (
        Records(rows, 0),
        Tabular("table", None, lambda: open_table(table), 0, "Wide"),
    )
    for source in sources:
        blocks = list(source.blocks(catalog, LoadProblems(), lambda read: None))
        assert sum(block.rows.num_rows for block in blocks) == len(rows)
        assert max(block.rows.num_rows for block in blocks) <= 8 * MIB // 4_000 + 1


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_rows_of_two_gigabytes() -> None:
    """The same in earnest, in a process that may not take more than it should."""
    source = f"""
        import io, resource
        import pyarrow as pa
        import omnigraph as og
        resource.setrlimit(resource.RLIMIT_AS, ({12 << 30}, {12 << 30}))
        graph = og.init(None, {SCHEMA!r})
        before = graph.commits.list()[0].id

        def refused(what, call):
            try:
                call()
            except og.GraphError as error:
                print(what, "-", str(error)[:400])
                assert "at most 1073741824" in str(error) or "longer than 32 MiB" in str(error)
            else:
                raise SystemExit(what + " was taken")

        text = "x" * ((1 << 31) + 10)
        record = {{"type": "Note", "data": {{"name": "a", "text": text}}}}
        refused("record", lambda: graph.load([record], mode="append"))
        del record
        refused("insert", lambda: graph.mutate({ADD!r}, n="a", t=text))
        array = pa.array([text], pa.large_string())
        del text
        table = pa.table({{"name": ["a"], "text": array}})
        refused("Arrow", lambda: graph.load(table, type="Note", mode="append"))
        del table, array

        class Line(io.RawIOBase):
            left = 2_200

            def read(self, size=-1):
                if self.left == 2_200:
                    self.left -= 1
                    return b'{{"type": "Note", "data": {{"name": "a", "text": "'
                self.left -= 1
                return b"x" * 1_000_000 if self.left > 0 else b""

        refused("line", lambda: graph.load(Line(), mode="append", format="jsonl"))
        assert graph.commits.list()[0].id == before
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, "MB at most")
    """
    print(_run(source))


def _run(source: str) -> str:
    """Run a program in a process of its own, which is not spared if memory runs out."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3_000:]
    return done.stdout
