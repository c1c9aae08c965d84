"""Rows: `nodes` and `edges` of a remote graph: the rows of one type, fetched when they are asked for."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.arguments import checked_methods
from omnigraph.base.dataclass import dataclass
from omnigraph.engine.table import ID, TypeRows
from omnigraph.surfaces.client.calls import Calls
from omnigraph.surfaces.client.transport import ARROW, RemoteRequest, ServerAnswer, segment


def read_arrow(answer: ServerAnswer) -> pa.Table:
    """Return the table of an Arrow stream."""
    with pa.ipc.open_stream(pa.py_buffer(answer.content)) as reader:
        return reader.read_all()


@dataclass(frozen=True, slots=True)
class RemoteState:
    """A state that is read: its branch, and its commit."""

    branch: str
    commit_id: str


@checked_methods
@dataclass(frozen=True, eq=False, repr=False)
class RemoteTypeRows(TypeRows):
    """The nodes or edges of one type, by id; fetched when rows are asked for."""

    @property
    def _calls(self) -> Calls:
        calls: Any = self._store  # what a local one reads with
        return calls  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def table(self) -> pa.Table:
        """The rows, in stored types."""
        shown = [*self.columns, *(name for name in self._values if name not in self.columns)]
        names = shown if self._condition is None else list(self._types)
        rows = self._fetched([ID, *(name for name in names if name != ID)])
        table = pa.table({name: rows[name].cast(self._types[name].arrow) for name in names})
        for name, values in self._values.items():
            table = table.filter(pc.is_in(table[name], value_set=values))
        if self._condition is not None:
            table = self._meeting(table)
        return table.select(self.columns)

    def _fetched(self, names: list[str]) -> pa.Table:
        path = f"/rows/{self.declared.kind.value}/{segment(self.declared.name)}"
        query = {"branch": self.snapshot.branch, "snapshot": self.snapshot.commit_id, "columns": names}
        return read_arrow(self._calls.transport.call(RemoteRequest("GET", path, query, accept=ARROW)))
