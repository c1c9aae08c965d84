"""Index specs: the indexes that a table should have, and what came of building them.

Room    storage.tables. Values; indexes.py builds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from lance import Index

from omnigraph.storage.tables.layout import Layout, data_files

NO_VECTORS = "no vectors yet"


class IndexKind(Enum):
    """What Lance calls the index."""

    BTREE = "BTREE"
    INVERTED = "INVERTED"
    VECTOR = "IVF_FLAT"


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An index that a column should have."""

    column: str
    kind: IndexKind

    @property
    def name(self) -> str:
        """What the index is called in the table."""
        return f"{self.column}_idx"


@dataclass(frozen=True)
class Lack:
    """What the next segment of an index must cover, the segments it replaces, and those that are stored."""

    fragments: tuple[int, ...]
    replaces: frozenset[str]
    stored: Mapping[str, frozenset[int]]  # segment -> the fragments of it that are still there


@dataclass(frozen=True, eq=False)
class Built:
    """A segment, the data files of the fragments it covers, and the segments it replaces."""

    segment: Index
    files: Mapping[int, list[str]]
    replaces: frozenset[str]

    def fits(self, layout: Layout, stored: Mapping[str, frozenset[int]]) -> bool:
        """Say whether the segment is right on another version too, given the segments that are stored there.

        Fragments that are gone do no harm; one that another segment covers by now would be found twice.
        """
        left = {n: files for n, files in self.files.items() if n in layout.parts}
        same = all(data_files(layout.parts[n].metadata) == files for n, files in left.items())
        others = {n for uuid, fragments in stored.items() if uuid not in self.replaces for n in fragments}
        return bool(left) and same and self.replaces <= stored.keys() and left.keys().isdisjoint(others)


@dataclass(eq=False)
class IndexWork:
    """What came of an effect on its last staging, and the segments it built so far."""

    created: set[IndexSpec] = field(default_factory=set)
    extended: set[IndexSpec] = field(default_factory=set)
    pending: dict[IndexSpec, str] = field(default_factory=dict)
    built: dict[IndexSpec, Built] = field(default_factory=dict)
