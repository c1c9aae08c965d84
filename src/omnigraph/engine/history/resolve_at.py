"""Resolve `at`: which state of the graph a read means.

`at` is a commit id or the beginning of one, a version, a tag, `name~n`, a time, or nothing for the head of a
branch; base.times tells the spellings apart. What comes back is a snapshot, under the branch that holds the
state: an older state of a branch may belong to the branch that it was forked from. Reads get its schema
too (catalog.past).
"""

from __future__ import annotations

from typing import assert_never

from omnigraph.base.errors import (
    AmbiguousCommit,
    BadBranchName,
    BadMoment,
    BadTagName,
    BranchNotFound,
    GraphError,
    NotFound,
    TagNotFound,
    TypeNotFound,
)
from omnigraph.base.ids import is_short_id
from omnigraph.base.times import (
    FORMS,
    AncestorAt,
    At,
    CommitAt,
    Moment,
    TagAt,
    TimeAt,
    VersionAt,
    read_moment,
)
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import TableType
from omnigraph.engine.change import Catalogs
from omnigraph.storage.manifest.branches import no_such_branch, no_such_commit
from omnigraph.storage.manifest.records import ManifestState
from omnigraph.storage.manifest.refs import check_name
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot


def resolve(store: GraphStore, branch: str = "main", at: At | None = None) -> PinnedSnapshot:
    """Return the state that `at` names; the head of the branch if it names none."""
    if at is None:
        return store.snapshot(branch)
    return _find(store, branch, read_moment(at))


def full_commit_id(store: GraphStore, text: str) -> str:
    """Return the id of the commit that a text means: an id, or the beginning of one.

    What is neither comes back as it is: whoever looks it up says that there is none.
    """
    if not is_short_id(text):
        return text
    commits = store.history.commits_like(text)
    if len(commits) > 1:
        raise AmbiguousCommit(text, commits)
    return commits[0] if commits else text


def read_state(
    store: GraphStore, catalogs: Catalogs, branch: str = "main", at: At | None = None
) -> tuple[PinnedSnapshot, Catalog]:
    """Return a state and the schema that every read of it uses: names of today, types of the state."""
    snapshot = resolve(store, branch, at)
    if at is None:
        return snapshot, catalogs.get(snapshot.schema)
    head = store.snapshot(snapshot.branch)
    return snapshot, catalogs.past(head.schema, snapshot.schema)


def check_existed(snapshot: PinnedSnapshot, declared: TableType) -> None:
    """Refuse to read a type that a state does not have."""
    if declared.table_id not in snapshot.state.pins:
        raise TypeNotFound(
            f"type {declared.name!r} did not exist at commit {snapshot.commit_id}",
            remedy="Choose a later state",
            name=declared.name,
        )


def side(store: GraphStore, named: At, branch: str = "main") -> PinnedSnapshot:
    """Return an end of a diff: the head of a branch, or what an `at` names; times are those of `branch`.

    A branch by its name stands for its head; anything else is an `at`. What is spelt like a commit id is one.
    """
    if isinstance(named, str) and not isinstance(read_moment(named), CommitAt):
        try:
            return store.snapshot(named)
        except (BranchNotFound, BadBranchName):
            pass
    return resolve(store, branch, named)


def unknown(at: Moment) -> NotFound:
    """Return the error about a state that does not exist, as resolving it raises it."""
    match at:
        case CommitAt(commit_id):
            return no_such_commit(commit_id)
        case TagAt(name):
            return _no_such_name(name)
        case AncestorAt(name):
            return no_such_branch(check_name(name))
        case VersionAt(version):
            return no_such_commit(str(version))
        case TimeAt(time_us):
            return no_such_commit(str(time_us))
        case _:
            assert_never(at)


def _no_such_name(name: str) -> TagNotFound:
    return TagNotFound(
        f"there is no tag {name!r}, and it names a state in no other way",
        remedy=f"Give {FORMS}",
        tag=name,
    )


def _find(store: GraphStore, branch: str, at: Moment) -> PinnedSnapshot:
    match at:
        case VersionAt(version):
            return store.snapshot(branch, at=version)
        case CommitAt(commit_id):
            return PinnedSnapshot(*store.history.get(commit_id, first=branch))
        case TagAt(name):
            return _tagged(store, name)
        case TimeAt(time_us):
            head = store.snapshot(branch)
            return _held(store, head, store.history.at_time(head.state, time_us))
        case AncestorAt(name, steps):
            start = _named(store, name)
            return _held(store, start, store.history.ancestor(start.state, steps))
        case _:
            assert_never(at)


def _tagged(store: GraphStore, name: str) -> PinnedSnapshot:
    try:
        tag = store.tags.get(name)
    except BadTagName as error:
        raise BadMoment(f"{name!r} names no state", remedy=f"Give {FORMS}", at=name) from error
    except TagNotFound as error:
        commit_id = full_commit_id(store, name)
        if commit_id != name:
            return PinnedSnapshot(*store.history.get(commit_id))
        raise _no_such_name(name) from error
    holder = store.branches.name_of(tag.incarnation)
    return PinnedSnapshot(holder, store.history.published(tag.incarnation, tag.version, tag.commit_id))


def _named(store: GraphStore, name: str) -> PinnedSnapshot:
    """Return the head of a branch, or the commit of a tag."""
    try:
        return store.snapshot(name)
    except BadBranchName as error:
        raise BadMoment(
            f"{name!r} is not the name of a branch or tag", remedy=f"Give {FORMS}", at=name
        ) from error
    except BranchNotFound as missing:
        try:
            return _tagged(store, name)
        except GraphError:
            raise missing from None


def _held(store: GraphStore, near: PinnedSnapshot, state: ManifestState) -> PinnedSnapshot:
    """Return a state as a snapshot of the branch that holds it."""
    if state.line.incarnation == near.state.line.incarnation:
        return PinnedSnapshot(near.branch, state)
    return PinnedSnapshot(store.branches.name_of(state.line.incarnation), state)
