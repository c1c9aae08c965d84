"""Files: several inputs as one, read one after the other.

Room    engine.load.sources. A directory, a list of files, or a mapping of types to tables.
Rule    the order is fixed (by name in a directory, as given otherwise), so reports and last-wins are too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.load.block import Block, Progress, Source
from omnigraph.engine.load.problems import Problems


@dataclass(frozen=True)
class Several:
    """Inputs that are loaded together."""

    name: str
    sources: tuple[Source, ...]

    @property
    def size_bytes(self) -> int | None:
        """The sum, if every size is known."""
        sizes = [source.size_bytes for source in self.sources]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def blocks(self, catalog: Catalog, report: Problems, progress: Progress) -> Iterator[Block]:
        """Read all inputs in order."""
        read = 0
        for source in self.sources:
            before = read

            def forward(bytes_read: int, before: int = before) -> None:
                nonlocal read
                read = before + bytes_read
                progress(read)

            yield from source.blocks(catalog, report, forward)
