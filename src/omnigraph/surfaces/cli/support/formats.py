"""The rows of a read, written as a table, lines, a document or Arrow.

`choose` takes the format from the flags and the configuration, `Form.write` turns a `Result` into bytes. One
row is one line in `jsonl` and `csv`, and one block of lines in `table` and `kv`: whatever a value holds, it
cannot break out of its line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from rich.cells import cell_len, chop_cells, set_cell_size

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, counted
from omnigraph.surfaces.cli.settings import Settings

if TYPE_CHECKING:
    from omnigraph.execution.result import Result

WIDTH = 80
GAP = "  "
NUMBERS = frozenset({"int", "bigint", "float"})
_Word = TypeVar("_Word", bound=StrEnum)


class ResultFormat(StrEnum):
    """How rows are written."""

    TABLE = "table"
    KV = "kv"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    ARROW = "arrow"


class Cells(StrEnum):
    """What happens to a value that is wider than its column may be."""

    TRUNCATE = "truncate"
    WRAP = "wrap"


@dataclass(frozen=True)
class Form:
    """Everything that says how the rows of one call are written."""

    format: ResultFormat = ResultFormat.TABLE
    width: int = WIDTH  # of one column of a table, at most
    cells: Cells = Cells.TRUNCATE
    with_metadata: bool = False
    past: bool = False  # the rows are of a commit that was named, not of a branch's head

    def write(self, result: Result, sink: BinaryIO) -> None:
        """Write a result."""
        WRITERS[self.format](result, sink, self)


def choose(
    settings: Settings,
    flag: ResultFormat | None,
    *,
    alias: Any = None,
    with_metadata: bool = False,
    past: bool = False,
) -> Form:
    """Return the form of a call: `--json`, then `--format`, then the alias, then the configuration."""
    chosen = ResultFormat.JSON if settings.json else flag
    if chosen is None:
        preferences = (
            (alias, "the format of the alias"),
            (settings.preference("output", "output_format"), "cli.output_format"),
        )
        chosen = next(
            (_one_of(ResultFormat, value, key) for value, key in preferences if value is not None),
            ResultFormat.TABLE,
        )
    if with_metadata and chosen is not ResultFormat.JSONL:
        raise InvalidRequest(
            f"--with-metadata does not go with the format {chosen.value}",
            remedy="Give --format jsonl; json has the metadata already, and arrow has it in its schema",
        )
    width = settings.preference("table_max_column_width", "table_max_column_width")
    if width is not None and (not isinstance(width, int) or isinstance(width, bool) or width < 1):
        raise InvalidRequest(f"table_max_column_width must be a positive number, not {width!r}")
    cells = settings.preference("table_cell_layout", "table_cell_layout")
    return Form(
        chosen,
        WIDTH if width is None else width,
        Cells.TRUNCATE if cells is None else _one_of(Cells, cells, "table_cell_layout"),
        with_metadata,
        past,
    )


def _one_of(kind: type[_Word], value: Any, key: str) -> _Word:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(kind)
        raise InvalidRequest(f"{key} cannot be {value!r}", remedy=f"Write one of {known}") from None


# -- for people ------------------------------------------------------------------------------------


def _write_table(result: Result, sink: BinaryIO, form: Form) -> None:
    from omnigraph.execution.result import cell_text

    cells = [[cell_text(row[name]) for name in result.columns] for row in _rows(result)]
    at = f" at commit {result.commit_id}" if form.past else ""
    sink.write(
        f"{counted(len(result), 'row')} from branch {result.branch}{at} via {result.query_name}\n".encode()
    )
    right = [column.kind in NUMBERS for column in result.described]
    for line in table_lines(result.columns, cells, right, form.width, form.cells):
        sink.write(f"{line}\n".encode())


def table_lines(
    names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], width: int, cells: Cells
) -> Iterator[str]:
    """Yield the lines of a table: names, rule, rows.

    >>> print(
    ...     *table_lines(["name", "age"], [["Ada", "36"], ["Cy", "9"]], [False, True], 80, Cells.WRAP),
    ...     sep="\\n",
    ... )
    name  age
    ----  ---
    Ada    36
    Cy      9
    """
    folded = [[_fold(text, width, cells) for text in row] for row in (names, *rows)]
    widths = [max(cell_len(line) for row in folded for line in row[n]) for n in range(len(names))]
    yield from _aligned(folded[0], widths, right)
    yield GAP.join("-" * width for width in widths)
    for row in folded[1:]:
        yield from _aligned(row, widths, right)


def _fold(text: str, width: int, cells: Cells) -> list[str]:
    if cell_len(text) <= width:
        return [text]
    if cells is Cells.WRAP:
        return chop_cells(text, width)
    return [set_cell_size(text, width - 1) + "…"]


def _aligned(row: list[list[str]], widths: list[int], right: Sequence[bool]) -> Iterator[str]:
    """Yield the lines of one row; values that take fewer lines than others are followed by blanks."""
    for n in range(max(len(lines) for lines in row)):
        pieces = [lines[n] if n < len(lines) else "" for lines in row]
        padded = [
            " " * (width - cell_len(piece)) + piece if to_right else set_cell_size(piece, width)
            for piece, width, to_right in zip(pieces, widths, right, strict=True)
        ]
        yield GAP.join(padded).rstrip()


def _write_kv(result: Result, sink: BinaryIO, form: Form) -> None:
    from omnigraph.execution.result import cell_text

    for number, row in enumerate(_rows(result), 1):
        between = "\n" if number > 1 else ""
        lines = "".join(f"{name}: {cell_text(value)}\n" for name, value in row.items())
        sink.write(f"{between}row {number}\n{lines}".encode())


# -- for programs ----------------------------------------------------------------------------------


def _write_json(result: Result, sink: BinaryIO, form: Form) -> None:
    sink.write(f"{json.dumps(result.to_json(), ensure_ascii=False, indent=2)}\n".encode())


def _write_jsonl(result: Result, sink: BinaryIO, form: Form) -> None:
    if form.with_metadata:
        facts = replace(result, table=result.table.slice(0, 0)).to_json() | {"row_count": len(result)}
        del facts["rows"]
        sink.write(f"{json.dumps(facts, ensure_ascii=False)}\n".encode())
    for row in _rows(result):
        sink.write(f"{json.dumps(row, ensure_ascii=False)}\n".encode())


def _write_csv(result: Result, sink: BinaryIO, form: Form) -> None:
    from omnigraph.execution.result import csv_lines

    for line in csv_lines(result.table):
        sink.write(line.encode())


def _write_arrow(result: Result, sink: BinaryIO, form: Form) -> None:
    import pyarrow as pa

    facts = {"query_name": result.query_name, "branch": result.branch, "graph_commit_id": result.commit_id}
    table = result.to_arrow().replace_schema_metadata(facts)
    with pa.ipc.new_stream(sink, table.schema) as stream:
        for batch in table.to_batches(max_chunksize=65_536):
            stream.write_batch(batch)


def _rows(result: Result) -> Iterator[dict[str, Any]]:
    """Yield the rows as JSON values, without holding them all."""
    from omnigraph.execution.result import PAGE

    for start in range(0, len(result), PAGE):
        yield from replace(result, table=result.table.slice(start, PAGE)).json_rows()


WRITERS: dict[ResultFormat, Callable[[Result, BinaryIO, Form], None]] = {
    ResultFormat.TABLE: _write_table,
    ResultFormat.KV: _write_kv,
    ResultFormat.JSON: _write_json,
    ResultFormat.JSONL: _write_jsonl,
    ResultFormat.CSV: _write_csv,
    ResultFormat.ARROW: _write_arrow,
}
