"""Conflict: what to do when another writer published first. A pure decision.

Room    storage. Given what a plan wrote and read, and the two snapshots, say how to go on.
Table   (engine spec 3.4; tests/storage/test_conflict.py has one case per row)
          what moved since the base                     what happens
          nothing the plan read or wrote                publish the same staged versions again
          a table it only consulted                     validate again, then publish
          a table it writes, or only by maintenance     prepare again from the new base
          retention ran since it staged its files       prepare again: the files may be gone
          a table whose rows decided what is written    ReadSetConflict
          the schema                                    prepare again, or ReadSetConflict if rows decided
"""

from __future__ import annotations

from collections.abc import Set
from enum import Enum

from omnigraph.base.errors import ReadSetConflict
from omnigraph.storage.manifest.records import ManifestState


class Decision(Enum):
    """How a writer that lost the race goes on."""

    PUBLISH_AGAIN = "publish again"
    VALIDATE_AGAIN = "validate again"
    PREPARE_AGAIN = "prepare again"


def decide(
    base: ManifestState,
    now: ManifestState,
    *,
    staged_at: int | None = None,
    writes: Set[str],
    decided_by: Set[str],
    consulted: Set[str],
    schema_decides: bool,
) -> Decision:
    """Compare two snapshots for one plan; raise when only the caller can decide.

    `staged_at` is the version when the plan's files were written; the base's, unless said otherwise.
    """
    if base.schema != now.schema:
        if decided_by or schema_decides:
            raise ReadSetConflict("schema", expected=base.schema, actual=now.schema)
        return Decision.PREPARE_AGAIN
    for table in sorted(decided_by):
        if _content(base, table) != _content(now, table):
            raise ReadSetConflict(
                _name(base, now, table), expected=_content(base, table), actual=_content(now, table)
            )
    if now.swept > (base.version if staged_at is None else staged_at):
        return Decision.PREPARE_AGAIN
    if any(_version(base, table) != _version(now, table) for table in writes | decided_by):
        return Decision.PREPARE_AGAIN
    if any(_content(base, table) != _content(now, table) for table in consulted):
        return Decision.VALIDATE_AGAIN
    return Decision.PUBLISH_AGAIN


def _content(state: ManifestState, table: str) -> str:
    pin = state.pins.get(table)
    return "absent" if pin is None else pin.content


def _version(state: ManifestState, table: str) -> int | None:
    pin = state.pins.get(table)
    return None if pin is None else pin.version


def _name(base: ManifestState, now: ManifestState, table: str) -> str:
    pin = base.pins.get(table) or now.pins.get(table)
    return table if pin is None else pin.name
