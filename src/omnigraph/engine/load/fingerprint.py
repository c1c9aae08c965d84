"""Fingerprint: what tells one input from another, so that an idempotency key stands for one load.

Room    engine.load. Fed with the blocks of one type while they are read.
Rule    the same input read again has the same fingerprint: what reading itself makes up (generated ids, and
        defaults that are the time) is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from omnigraph.base.ids import is_id
from omnigraph.catalog.model import ID, NodeType
from omnigraph.catalog.types import numbers_in
from omnigraph.engine.load.block import Block
from omnigraph.language.schema.literals import Now

_TIME = 10  # characters: an id begins with the time when it was made


class Fingerprint:
    """The fingerprint of some rows, in the order given; `since` is an id made before reading began."""

    def __init__(self, since: str) -> None:
        self._hash = hashlib.sha256()
        self._since = since[:_TIME]

    def add(self, block: Block) -> None:
        """Take in a block."""
        for values in self._columns(block):
            self._hash.update(repr(values).encode())

    def digest(self) -> str:
        """Return the fingerprint so far."""
        return self._hash.hexdigest()

    def _columns(self, block: Block) -> Iterator[list[Any]]:
        declared = block.declared
        timed = {p.column for p in declared.properties if isinstance(p.default, Now)}
        derived = isinstance(declared, NodeType) and bool(declared.key)
        for name, column in zip(block.rows.schema.names, block.rows.columns, strict=True):
            if name == ID and not derived:
                yield [None if self._generated(row_id) else row_id for row_id in column.to_pylist()]
            elif name != ID and name not in timed:
                yield column.cast(numbers_in(column.type)).to_pylist()

    def _generated(self, row_id: str) -> bool:
        return row_id[:_TIME] >= self._since and is_id(row_id)
