"""Snapshot: one graph version, captured once and used for the whole of an operation.

Room    storage. A plain value: it can be pickled to another process and names every table version
        exactly, so nothing that holds one ever asks for "latest" again.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.base.errors import TableNotFound
from omnigraph.storage.manifest.records import ManifestState, Pin


@dataclass(frozen=True, slots=True)
class PinnedSnapshot:
    """The state of one branch at one manifest version."""

    branch: str
    state: ManifestState

    @property
    def commit_id(self) -> str:
        """Id of the commit this snapshot is."""
        return self.state.head

    @property
    def schema(self) -> str:
        """Hash of the schema in force."""
        return self.state.schema

    def pin(self, table_id: str) -> Pin:
        """Return the pin of a table."""
        found = self.state.pins.get(table_id)
        if found is None:
            raise TableNotFound(
                f"branch {self.branch!r} at commit {self.commit_id} has no table {table_id!r}", name=table_id
            )
        return found
