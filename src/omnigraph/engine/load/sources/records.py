"""Records: dictionaries, under the same rules as the lines of a JSONL file.

Room    engine.load.sources. With a type named, each is the bare properties of a row; Python's own dates,
        times, bytes and tuples stand for what JSON writes as text and arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.load.block import Block, Progress
from omnigraph.engine.load.problems import Problems
from omnigraph.engine.load.sources.envelopes import Gatherer

_BASE, _MEMBER = 64, 16  # a rough size: what counts is that long texts and arrays fill a block earlier


@dataclass(frozen=True)
class Records:
    """Dictionaries that are handed out one after the other."""

    records: Iterable[Any]
    now_ms: int
    type: str | None = None
    name: str = "<records>"
    size_bytes: int | None = None
    skipped: int = 0  # records that come before these

    def blocks(self, catalog: Catalog, report: Problems, progress: Progress) -> Iterator[Block]:
        """Read the records; the position of a record is its number."""
        declared = None if self.type is None else catalog.named(self.type)
        gatherer = Gatherer(catalog, report, self.name, self.now_ms, declared)
        total = 0
        for number, record in enumerate(self.records, start=self.skipped + 1):
            if isinstance(record, Mapping) and type(record) is not dict:
                record = dict(record)
            if report.fingerprint is not None:
                report.fingerprint.record(self.type, record)
            size = _size(record, 2)
            total += size
            gatherer.take(record, number, size)
            if gatherer.full:
                progress(total)
                yield from gatherer.blocks()
        progress(total)
        yield from gatherer.blocks()


def _size(value: Any, depth: int) -> int:
    """Guess how much room a record takes, without walking through long arrays."""
    if isinstance(value, dict) and depth:
        return _BASE + sum(_size(item, depth - 1) for item in value.values())
    if isinstance(value, str | bytes):
        return _MEMBER + len(value)
    return _MEMBER * len(value) if hasattr(value, "__len__") else _MEMBER
