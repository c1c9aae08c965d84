"""Ids: ULIDs, sortable by time, as upper-case text of 26 characters."""

from __future__ import annotations

from ulid import ULID


def new_id() -> str:
    """Return a fresh ULID."""
    return str(ULID())


def is_id(text: str) -> bool:
    """Say whether `text` is spelt like an id made by `new_id`."""
    try:
        return str(ULID.from_str(text)) == text
    except ValueError:
        return False
