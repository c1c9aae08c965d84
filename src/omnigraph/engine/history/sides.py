"""Sides: what an end of a diff may be called.

Room    engine.history. A branch by its name stands for its head; anything else is a moment (moments.py). What
        is spelt like a commit id is one.
"""

from __future__ import annotations

from omnigraph.base.errors import BadBranchName, BranchNotFound
from omnigraph.base.moment import At, CommitAt, read_moment
from omnigraph.engine.history.moments import resolve
from omnigraph.storage.snapshot import PinnedSnapshot
from omnigraph.storage.store import GraphStore


def side(store: GraphStore, named: At, branch: str = "main") -> PinnedSnapshot:
    """Return the head of a branch, or the state of a moment; times and versions are those of `branch`."""
    if isinstance(named, str) and not isinstance(read_moment(named), CommitAt):
        try:
            return store.snapshot(named)
        except (BranchNotFound, BadBranchName):
            pass
    return resolve(store, branch, named)
