"""Feed: `graph.changes`: the commits of a branch in order, each with what it changed, in bounded pages.

    a position on the line -> commits up to the head of now -> blocks of changes -> page, cursor

Nothing is kept for a reader: all that it needs to go on is in its cursor, an opaque token that works from any
process. A cursor stands after whole commits only. A page that ends inside a commit has a page token instead,
which continues that one answer. Delivery is at least once: a cursor used again gives the same commits again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterator
from typing import Any, ClassVar

from omnigraph.base.arguments import checked_methods
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import (
    ChangeFeedGap,
    CursorRejected,
    HistoryReclaimed,
    InvalidRequest,
    ParentlessCommit,
)
from omnigraph.catalog.steps import Step
from omnigraph.engine.access import Action
from omnigraph.engine.change import Catalogs
from omnigraph.engine.history.changes import LIMIT, Cause, Change, ChangeFilter, Names, Packer, check_limit
from omnigraph.engine.history.comparison import StateComparison
from omnigraph.engine.history.diff import schema_steps, steps_json
from omnigraph.engine.options import View
from omnigraph.storage.cost import measured
from omnigraph.storage.history import Gap
from omnigraph.storage.manifest.branches import no_such_commit
from omnigraph.storage.manifest.records import ChainPosition, ManifestState
from omnigraph.storage.store import GraphStore

# -- cursors as opaque text ------------------------------------------------------------------------
#
# A token is versioned, says what it is for, and carries a checksum: damage and mix-ups are refused, not
# guessed at. It holds no secret and grants nothing.


VERSION = b"\x01"
CHECK = 8  # bytes of the checksum


def seal(use: str, values: dict[str, Any]) -> str:
    """Return values as a token for one use."""
    content = json.dumps([use, values], ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    return base64.urlsafe_b64encode(VERSION + _check(content) + content).rstrip(b"=").decode()


def unseal(use: str, token: str) -> dict[str, Any]:
    """Return the values of a token that `seal` made for this use."""
    try:
        raw = base64.b64decode(token.encode() + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise rejected("it is not a token") from error
    if raw[:1] != VERSION:
        raise rejected("it is not of this release")
    check, content = raw[1 : 1 + CHECK], raw[1 + CHECK :]
    if check != _check(content):
        raise rejected("it is damaged")
    made_for, values = json.loads(content)
    if made_for != use:
        raise rejected(f"it is a {made_for}, and a {use} is needed here")
    return dict(values)


def rejected(reason: str) -> CursorRejected:
    """Return the error about a token."""
    return CursorRejected(
        f"the token cannot be used: {reason}",
        remedy="Give a token as it was received, with the branch and the filter that it was received for",
        reason=reason,
    )


def _check(content: bytes) -> bytes:
    return hashlib.sha256(VERSION + content).digest()[:CHECK]


# -- feed ----------------------------------------------------------------------------------------


CURSOR, PAGE, COMMIT_PAGE = "cursor", "page token", "page token of a commit"
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
START = "'now', 'beginning' or 'after:COMMIT'"


@dataclass(frozen=True, slots=True)
class FeedCommit:
    """One commit: why, what it did to the schema, and what to entities."""

    cause: Cause
    changes: tuple[Change, ...]
    schema: tuple[Step, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "cause": self.cause.to_json(),
            "schema": steps_json(self.schema),
            "changes": [change.to_json() for change in self.changes],
        }


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Some blocks; then a cursor, or a page token where the answer goes on."""

    blocks: tuple[FeedCommit, ...]
    cursor: str | None = None
    caught_up: bool | None = None  # whether the branch had nothing further when the page ended
    page_token: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        shown: dict[str, Any] = {"blocks": [block.to_json() for block in self.blocks]}
        if self.page_token is not None:
            return {**shown, "next_page_token": self.page_token}
        return {**shown, "cursor": self.cursor, "caught_up": self.caught_up}


@dataclass(frozen=True, slots=True)
class CommitChanges:
    """What one commit changed, or a part of it."""

    block: FeedCommit
    page_token: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        more = {} if self.page_token is None else {"next_page_token": self.page_token}
        return {**self.block.to_json(), **more}


@dataclass(frozen=True, slots=True)
class _From:
    """Where a page begins: after a commit, perhaps inside the one that follows."""

    position: ChainPosition | None
    commit_id: str | None
    inside: tuple[bool, str, str] | None = None


class Baseline:
    """Everything there is at one commit; when it was read to the end, the cursor that goes on from there."""

    reads_later: ClassVar[bool] = True  # when it is gone through: it may take long

    def __init__(self, comparison: StateComparison, cursor: str) -> None:
        self._comparison = comparison
        self._cursor = cursor
        self._done = False

    @property
    def snapshot_commit_id(self) -> str:
        """The commit that is read."""
        return self._comparison.after.head

    def __iter__(self) -> Iterator[Change]:
        """Yield every entity as an insert, in the order of changes."""
        yield from self._comparison.changes()
        self._done = True

    @property
    def resume_cursor(self) -> str:
        """Where the feed goes on; only after all entities were read."""
        if not self._done:
            raise InvalidRequest("the baseline was not read to its end", remedy="Iterate over it first")
        return self._cursor


@checked_methods
class Changes:
    """The feed of one graph: `poll`, `wait`, `baseline`, and `of` for a single commit."""

    def __init__(self, store: GraphStore, catalogs: Catalogs, view: View) -> None:
        self._store = store
        self._catalogs = catalogs
        self._view = view

    def __call__(self, after: str | None = None, **options: Any) -> FeedPage:
        """Return the next page, as `poll` does."""
        return self.poll(after, **options)

    def poll(
        self,
        cursor: str | None = None,
        *,
        branch: str | None = None,
        start: str | None = None,
        page_token: str | None = None,
        kinds: Names = None,
        types: Names = None,
        ops: Names = None,
        limit: int = LIMIT,
    ) -> FeedPage:
        """Return what happened since a cursor, up to the head of now.

        Without a cursor, `start` says where to begin: "now" (nothing is replayed), "beginning", or
        "after:COMMIT". `limit` bounds the changes of a page.
        """
        branch = self._view.line(branch)
        check_limit(limit)
        if sum(argument is not None for argument in (cursor, start, page_token)) > 1:
            raise InvalidRequest(
                "a poll begins at one point", remedy="Give a cursor, a page token or a start"
            )
        with measured():
            head = self._store.snapshot(branch).state
            change_filter = ChangeFilter.read([self._catalogs.get(head.schema)], kinds, types, ops)
            cut = head
            if page_token is not None:
                values = self._bound(PAGE, page_token, head, change_filter)
                try:
                    cut, begin = self._cut(head, int(values["cut"])), _begin(values)
                except HistoryReclaimed as error:
                    raise _gap(branch, page_token, None) from error
            elif cursor is not None:
                begin = _begin(self._bound(CURSOR, cursor, head, change_filter))
            else:
                begin = self._start(branch, head, start or "now")
            return self._page(branch, cut, begin, change_filter, limit, cursor)

    def wait(
        self, cursor: str | None = None, *, timeout: float = 30.0, branch: str | None = None, **options: Any
    ) -> FeedPage:
        """Poll until there is something, or until the time is over; between looks it sleeps."""
        clock, branch = self._store.clock, self._view.line_named(branch)
        until, pause = clock.monotonic() + timeout, FIRST_PAUSE
        page = self.poll(cursor, branch=branch, **options)
        options = {name: value for name, value in options.items() if name not in ("start", "page_token")}
        seen = None
        while not page.blocks and (left := until - clock.monotonic()) > 0:
            clock.sleep(min(pause, left))
            pause = min(pause * 2, LONGEST_PAUSE)
            head = self._store.snapshot(branch).commit_id  # one request, while nothing happens
            if head != seen:
                page, seen = self.poll(page.cursor, branch=branch, **options), head
        return page

    def baseline(self, *, branch: str | None = None, kinds: Names = None, types: Names = None) -> Baseline:
        """Return everything there is now, with a cursor for what comes next under the same filter."""
        head = self._store.snapshot(self._view.line(branch, Action.EXPORT)).state
        change_filter = ChangeFilter.read([self._catalogs.get(head.schema)], kinds, types, None)
        whole = StateComparison(self._store, self._catalogs, None, head, change_filter)
        return Baseline(whole, _cursor(head, head.position, head.head, change_filter))

    def of(
        self,
        commit_id: str,
        *,
        kinds: Names = None,
        types: Names = None,
        ops: Names = None,
        limit: int = LIMIT,
        page_token: str | None = None,
    ) -> CommitChanges:
        """Return what one commit changed, against its first parent."""
        line = self._view.line(None)
        check_limit(limit)
        with measured():
            commit_id = self._view.readable_commit(self._store, line, commit_id)
            before, after = self._around(commit_id)
            catalogs = [self._catalogs.get(state.schema) for state in (after, before)]
            change_filter = ChangeFilter.read(catalogs, kinds, types, ops)
            inside = None
            if page_token is not None:
                values = unseal(COMMIT_PAGE, page_token)
                if (values["commit"], values["filter"]) != (commit_id, change_filter.digest):
                    raise rejected("it was given for another commit or filter")
                inside = _inside(values)
            block, more = self._block(before, after, change_filter, Packer(limit), inside)
            if not more:
                return CommitChanges(block)
            values = {
                "commit": commit_id,
                "filter": change_filter.digest,
                "inside": block.changes[-1].sort_key,
            }
            return CommitChanges(block, seal(COMMIT_PAGE, values))

    # -- pages -------------------------------------------------------------------------------------

    def _page(
        self,
        branch: str,
        cut: ManifestState,
        begin: _From,
        change_filter: ChangeFilter,
        limit: int,
        cursor: str | None,
    ) -> FeedPage:
        blocks: list[FeedCommit] = []
        packer = Packer(limit)
        position, commit_id = begin.position, begin.commit_id
        states = self._store.history.line(cut).after(begin.position)
        while packer.has_room:
            lost: str | None = None
            try:
                before, after = next(states)
                lost = after.head
                inside = begin.inside if not blocks else None
                block, more = self._block(before, after, change_filter, packer, inside)
            except StopIteration:
                break
            except HistoryReclaimed as error:
                if blocks:
                    break  # what there is comes first; the next poll meets the gap
                raise _gap(branch, cursor, error.commit_id if isinstance(error, Gap) else lost) from error
            blocks.append(block)
            if more:
                values = _values(cut, position, commit_id, change_filter)
                values |= {"cut": cut.version, "inside": block.changes[-1].sort_key}
                return FeedPage(tuple(blocks), page_token=seal(PAGE, values))
            position, commit_id = after.position, after.head
        return self._last(branch, cut, position, commit_id, change_filter, blocks)

    def _last(
        self,
        branch: str,
        cut: ManifestState,
        position: ChainPosition | None,
        commit_id: str | None,
        change_filter: ChangeFilter,
        blocks: list[FeedCommit],
    ) -> FeedPage:
        """End a page after whole commits, unless the branch is no longer the one that was read."""
        live = self._store.snapshot(branch).state
        if live.line.incarnation != cut.line.incarnation:
            raise rejected(f"branch {branch!r} was deleted and made anew meanwhile")
        if position is None or commit_id is None:  # the first commit of all, and nothing after it
            position, commit_id = cut.position, cut.head
        cursor = _cursor(cut, position, commit_id, change_filter)
        return FeedPage(tuple(blocks), cursor, caught_up=live.position == position)

    def _block(
        self,
        before: ManifestState,
        after: ManifestState,
        change_filter: ChangeFilter,
        packer: Packer,
        inside: tuple[bool, str, str] | None,
    ) -> tuple[FeedCommit, bool]:
        """Return a commit with as many changes as the page takes, and whether there are more."""
        comparison = StateComparison(self._store, self._catalogs, before, after, change_filter)
        changes, more = packer.take(comparison.changes(inside))
        steps = schema_steps(comparison) if inside is None else ()
        return FeedCommit(Cause.of(after.commit), changes, steps), more

    # -- positions ---------------------------------------------------------------------------------

    def _start(self, branch: str, head: ManifestState, start: str) -> _From:
        how, _, commit_id = start.partition(":")
        if start == "now":
            return _From(head.position, head.head)
        if start == "beginning":
            return _From(None, None)
        if how != "after" or not commit_id:
            raise InvalidRequest(f"a feed cannot start at {start!r}", remedy=f"Give {START}")
        commit_id = self._view.full_id(self._store, branch, commit_id)
        owner, state = self._store.history.get(commit_id, first=branch)
        if not self._store.history.line(head).holds(state.position, commit_id):
            access = self._view.access
            if access is not None and not access.allows(Action.READ, branch=owner):
                raise no_such_commit(commit_id)
            raise InvalidRequest(
                f"commit {commit_id} did not lead to the head of the branch",
                remedy="Name a commit of the branch's own history",
            )
        return _From(state.position, commit_id)

    def _bound(
        self, use: str, token: str, head: ManifestState, change_filter: ChangeFilter
    ) -> dict[str, Any]:
        """Return the values of a token, if it is for this branch and filter."""
        values = unseal(use, token)
        if values["branch"] != head.line.incarnation:
            raise rejected("it is for another branch, or for an earlier branch of this name")
        if values["filter"] != change_filter.digest:
            raise rejected("it is for another filter")
        position, commit_id = _begin(values).position, values["commit"]
        if position is not None and not self._store.history.line(head).holds(position, commit_id):
            raise rejected("it is of another graph")
        return values

    def _cut(self, head: ManifestState, version: int) -> ManifestState:
        """Return the head that the first page of an answer saw."""
        if version > head.version:
            raise rejected("it is of another graph")
        return (
            head if version == head.version else self._store.branches.chain(head.line.incarnation).at(version)
        )

    def _around(self, commit_id: str) -> tuple[ManifestState, ManifestState]:
        """Return the states before and after a commit."""
        _, after = self._store.history.get(commit_id)
        if after.commit.parent is None:
            raise ParentlessCommit(
                f"commit {commit_id} is the first of its graph",
                remedy="It made the empty graph; its successors have changes",
                reason="parentless_commit",
                graph_commit_id=commit_id,
            )
        chain = self._store.branches.chain(after.line.incarnation)
        floor = (chain.known or after).floor
        if after.version - 1 < floor:
            raise HistoryReclaimed(
                f"the state before commit {commit_id} is below the retention floor",
                remedy="Choose a newer commit",
                commit=commit_id,
                floor=floor,
            )
        return chain.at(after.version - 1), after


def _values(
    state: ManifestState, position: ChainPosition | None, commit_id: str | None, change_filter: ChangeFilter
) -> dict[str, Any]:
    return {
        "branch": state.line.incarnation,
        "filter": change_filter.digest,
        "place": position,
        "commit": commit_id,
    }


def _cursor(
    state: ManifestState, position: ChainPosition, commit_id: str, change_filter: ChangeFilter
) -> str:
    return seal(CURSOR, _values(state, position, commit_id, change_filter))


def _begin(values: dict[str, Any]) -> _From:
    position = values["place"]
    begin = None if position is None else (str(position[0]), int(position[1]))
    return _From(begin, values["commit"], _inside(values))


def _inside(values: dict[str, Any]) -> tuple[bool, str, str] | None:
    inside = values.get("inside")
    return None if inside is None else (bool(inside[0]), str(inside[1]), str(inside[2]))


def _gap(branch: str, cursor: str | None, commit_id: str | None) -> ChangeFeedGap:
    return ChangeFeedGap(
        f"what follows the cursor on branch {branch!r} was cleaned",
        remedy="Start again from a baseline",
        cursor=cursor,
        first_unreadable_commit_id=commit_id,
    )
