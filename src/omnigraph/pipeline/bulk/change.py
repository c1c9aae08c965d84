"""Change: what a bulk load, or a merge, does to one type; its rows lie in files of the table already.

Room    pipeline.bulk. A `TypeChange` whose rows are not in this process: the one evaluator asks the same
        questions of it, and the Spark executor reads the answers from the files.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.engine.change import TypeChange
from omnigraph.engine.validate.relation import Side
from omnigraph.pipeline.bulk.remove import BulkRemover
from omnigraph.storage.tables.effects import Append, DeleteIds, Effect, Overwrite, Replace, Several
from omnigraph.storage.tables.written import Written


@dataclass(frozen=True, eq=False, kw_only=True)
class BulkChange(TypeChange):
    """Rows of one type that executors have written."""

    written: Written
    version: int  # of the table: these rows and no others
    given_version: int  # the same before repeated ids were settled
    remover: BulkRemover  # of the rows that are replaced

    @property
    def count(self) -> int:
        """How many rows are written."""
        return self.written.num_rows

    @property
    def as_given(self) -> bool:
        """A load knows its records as they were given."""
        return True

    def version_of(self, side: Side) -> int | None:
        """Return the version that holds the rows of a side; None for what is not this load's, or nothing."""
        if not self.count or side not in (Side.GIVEN, Side.CHANGED):
            return None
        return self.given_version if side is Side.GIVEN else self.version

    @property
    def merges(self) -> bool:
        """Say whether rows that exist are replaced one by one."""
        return not (self.replaces or self.minted or self.strict)

    def effect(self) -> Effect | None:
        """Return what happens to the table, if anything does."""
        if self.replaces:
            return Overwrite(self.written)
        if not self.count:
            return super().effect()
        if not self.merges:
            return Append(self.written)
        new = Replace(self.written, self.remover)
        return Several((DeleteIds(self.removed), new)) if len(self.removed) else new
