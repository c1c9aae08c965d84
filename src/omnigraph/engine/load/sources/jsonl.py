"""JSONL: one JSON object on each line.

    bytes -> lines -> **records** -> envelopes -> blocks

Room    engine.load.sources. Blank lines and CRLF are fine; anything else is one strict JSON value on a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.load.block import Block, Progress
from omnigraph.engine.load.problems import Problems
from omnigraph.engine.load.sources.envelopes import Gatherer, Refused
from omnigraph.engine.load.sources.framing import Frame
from omnigraph.engine.load.sources.streams import ByteStream, lines
from omnigraph.engine.load.strict_json import BLANKS, DuplicateMember, InvalidJson, parse


@dataclass(frozen=True)
class JsonLines:
    """Records as JSON text; with a type, the bare properties of that one type."""

    name: str
    size_bytes: int | None
    opened: Callable[[], AbstractContextManager[ByteStream]]
    now_ms: int
    type: str | None = None
    skipped: int = 0  # lines of the file that come before those read here

    def blocks(self, catalog: Catalog, report: Problems, progress: Progress) -> Iterator[Block]:
        """Read the lines."""
        declared = None if self.type is None else catalog.named(self.type)
        gatherer = Gatherer(catalog, report, self.name, self.now_ms, declared)
        frame = Frame(catalog, self.name)
        number, first = self.skipped, True
        with self.opened() as stream:
            for several in lines(stream, progress):
                for raw in several:
                    number += 1
                    text = raw.strip(BLANKS)
                    if text:
                        if report.fingerprint is not None:
                            report.fingerprint.text(self.type, text)
                        _take(text, number, first, gatherer, frame)
                        first = False
                        if gatherer.full:
                            yield from gatherer.blocks()
        yield from gatherer.blocks()
        frame.finish()


def _take(text: str, number: int, first: bool, gatherer: Gatherer, frame: Frame) -> None:
    try:
        record = parse(text)
    except InvalidJson as error:
        frame.unreadable(text)
        reason = (
            str(error)
            if isinstance(error, DuplicateMember)
            else f"invalid strict JSON at line {number}: {error}"
        )
        gatherer.refuse(Refused("syntax", reason), number)
        return
    try:
        if frame.line(text, record, first):
            return
    except Refused as refused:
        gatherer.refuse(refused, number)
        return
    gatherer.take(record, number, len(text))
