"""Changes: the feed, the histories of entities and the differences of states of a remote graph."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import Any, ClassVar
from weakref import finalize

from omnigraph.base.arguments import Count, checked_methods
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, Unavailable
from omnigraph.base.ids import SystemClock
from omnigraph.base.times import At
from omnigraph.catalog.steps import Step
from omnigraph.engine.history.changes import LIMIT, Change, Names, check_limit
from omnigraph.engine.history.diff import stats_json, steps_json
from omnigraph.engine.history.entity import EntityHistory
from omnigraph.engine.history.feed import CommitChanges, FeedPage
from omnigraph.engine.options import View
from omnigraph.engine.write import TypeCount
from omnigraph.surfaces.client import decode
from omnigraph.surfaces.client.calls import Calls, Json, listed, moment
from omnigraph.surfaces.client.steps import steps
from omnigraph.surfaces.client.transport import NDJSON, Payload, RemoteRequest, segment

LONGEST_WAIT = 20.0  # seconds that one request of `wait` stays open
IN_MEMORY = 8 << 20  # bytes of a baseline; more go to a file
LONGEST_END = 1 << 16  # bytes of the last line
BASELINE = "baseline"  # the last line of one


@checked_methods
class RemoteChanges:
    """The feed of one graph: `poll`, `wait`, `baseline`, and `of` for a single commit."""

    def __init__(self, calls: Calls, view: View) -> None:
        self._calls = calls
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
        check_limit(limit)
        if sum(argument is not None for argument in (cursor, start, page_token)) > 1:
            raise InvalidRequest(
                "a poll begins at one point", remedy="Give a cursor, a page token or a start"
            )
        return self._page(
            branch=self._view.line(branch),
            cursor=cursor,
            start=start,
            page_token=page_token,
            limit=limit,
            kind=listed(kinds),
            type=listed(types),
            op=listed(ops),
        )

    def _page(self, **query: Any) -> FeedPage:
        return decode.feed_page(self._calls.read("/changes", **query))

    def wait(
        self, cursor: str | None = None, *, timeout: float = 30.0, branch: str | None = None, **options: Any
    ) -> FeedPage:
        """Poll until there is something, or until the time is over; the server answers when it happens."""
        clock, branch = SystemClock(), self._view.line(branch)
        until = clock.monotonic() + timeout
        page = self.poll(cursor, branch=branch, **options)
        chosen = {name: listed(options.get(f"{name}s")) for name in ("kind", "type", "op")}
        longest = min(LONGEST_WAIT, self._calls.transport.timeout / 2)
        while not page.blocks and (left := until - clock.monotonic()) > 0:
            page = self._page(
                branch=branch,
                cursor=page.cursor,
                limit=options.get("limit"),
                wait=round(min(left, longest), 3),
                **chosen,
            )
        return page

    def baseline(
        self, *, branch: str | None = None, kinds: Names = None, types: Names = None
    ) -> RemoteBaseline:
        """Return everything there is now, with a cursor for what comes next under the same filter."""
        body = {"branch": self._view.line(branch), "kind": listed(kinds), "type": listed(types)}
        return RemoteBaseline(self._calls, body)

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
        check_limit(limit)
        document = self._calls.read(
            f"/commits/{segment(commit_id)}/changes",
            kind=listed(kinds),
            type=listed(types),
            op=listed(ops),
            limit=limit,
            page_token=page_token,
        )
        return decode.commit_changes(document)


class RemoteBaseline:
    """Everything there is at one commit, and the cursor that goes on from there. It is fetched at once."""

    reads_later: ClassVar[bool] = True  # when it is gone through: it may take long

    def __init__(self, calls: Calls, body: Json) -> None:
        self._lines = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - it lives as long as this does
        request = RemoteRequest("POST", "/changes/baseline", body=Payload.of(body), accept=NDJSON)
        tail = b""
        with calls.transport.stream(request) as (_, chunks):
            for chunk in chunks:
                self._lines.write(chunk)
                tail = (tail + chunk)[-LONGEST_END:]
        finalize(self, self._lines.close)
        self._end = _end_of(tail.rstrip(b"\n").rpartition(b"\n")[2])
        self._done = False

    @property
    def snapshot_commit_id(self) -> str:
        """The commit that is read."""
        return str(self._end["snapshot_commit_id"])

    def __iter__(self) -> Iterator[Change]:
        """Yield every entity as an insert, in the order of changes."""
        self._lines.seek(0)
        for line in self._lines:
            document = json.loads(line)
            if BASELINE not in document:
                yield decode.change(document)
        self._done = True

    @property
    def resume_cursor(self) -> str:
        """Where the feed goes on; only after all entities were read."""
        if not self._done:
            raise InvalidRequest("the baseline was not read to its end", remedy="Iterate over it first")
        return str(self._end["resume_cursor"])


def _end_of(line: bytes) -> Json:
    try:
        end: Json = json.loads(line)[BASELINE]
    except (ValueError, KeyError, TypeError):
        raise Unavailable("the baseline broke off before its end", remedy="Ask again") from None
    return end


@checked_methods
class RemoteEntity:
    """One entity of a graph, whether it exists now or not."""

    def __init__(self, calls: Calls, type_name: str, entity_id: str, view: View) -> None:
        self._calls = calls
        self.type_name = type_name
        self.id = entity_id
        self._view = view

    def get(self, *, branch: str | None = None, at: At | None = None) -> dict[str, Any] | None:
        """Return the entity's values, now or then, under the names of now; None if it is not there."""
        target, at = self._view.read(branch, at)
        entity: dict[str, Any] | None = self._calls.read(self._path, branch=target, snapshot=moment(at))[
            "entity"
        ]
        return entity

    def history(self, *, branch: str | None = None, limit: int = 50) -> EntityHistory:
        """List the versions of the entity, newest first: who changed what, when and why."""
        if limit < 1:
            raise InvalidRequest(f"a history has at least 1 version, not {limit}", remedy="Raise the limit")
        target, at = self._view.read(branch, None)
        return decode.entity_history(
            self._calls.read(f"{self._path}/history", branch=target, snapshot=moment(at), limit=limit)
        )

    @property
    def _path(self) -> str:
        return f"/entities/{segment(self.type_name)}/{segment(self.id)}"


# -- differences -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StateName:
    """One end of a difference."""

    commit_id: str
    branch: str


@checked_methods
@dataclass(frozen=True)
class RemoteDiff:
    """The way from one state to another; pages of its changes are fetched as they are asked for."""

    reads_later: ClassVar[bool] = True  # when it is gone through: it may take long

    _calls: Calls
    _query: dict[str, Any]
    _first: dict[str, Any]

    def __repr__(self) -> str:
        return f"Diff({self.from_commit_id} to {self.to_commit_id})"

    @property
    def before(self) -> StateName:
        """The state that the diff starts from."""
        return StateName(self._first["from"], str(self._first.get("from_branch", self._query["from"])))

    @property
    def after(self) -> StateName:
        """The state that it leads to."""
        return StateName(self._first["to"], str(self._first.get("to_branch", self._query["to"])))

    @property
    def from_commit_id(self) -> str:
        """The commit that the diff starts from."""
        return str(self._first["from"])

    @property
    def to_commit_id(self) -> str:
        """The commit that it leads to."""
        return str(self._first["to"])

    @cached_property
    def types(self) -> tuple[TypeCount, ...]:
        """How many entities of each type changed, nodes before edges, by name; others are left out."""
        return decode.type_counts(self._first["stats"])

    @cached_property
    def schema(self) -> tuple[Step, ...]:
        """What became of the schema, as the steps of a migration."""
        return steps(self._first["schema"])

    def changes(self) -> Iterator[Change]:
        """Stream the changes: nodes before edges, by type id, by entity id."""
        page = self._first
        while True:
            yield from (decode.change(entry) for entry in page["changes"])
            token = page.get("next_page_token")
            if token is None:
                return
            pinned = {**self._query, "from": self.from_commit_id, "to": self.to_commit_id}
            page = self._calls.read("/diff", **pinned, page_token=token)

    def __iter__(self) -> Iterator[Change]:
        return self.changes()

    def __bool__(self) -> bool:
        return bool(self.schema) or next(self.changes(), None) is not None

    def to_json(self, limit: Count | None = None) -> dict[str, Any]:
        """Return the public shape, with at most `limit` changes; counts are of all of them."""
        shown = list(islice(self.changes(), limit))
        total = sum(count.inserted + count.updated + count.deleted for count in self.types)
        return {
            "from": self.from_commit_id,
            "to": self.to_commit_id,
            "stats": stats_json(self.types),
            "schema": steps_json(self.schema),
            "changes": [change.to_json() for change in shown],
            "truncated": len(shown) < total,
        }


def difference(
    calls: Calls, a: At, b: At, *, branch: str, kinds: Names, types: Names, ops: Names
) -> RemoteDiff:
    """Return the way from one state to another."""
    query = {
        "from": moment(a),
        "to": moment(b),
        "branch": branch,
        "kind": listed(kinds),
        "type": listed(types),
        "op": listed(ops),
        "limit": LIMIT,
    }
    return RemoteDiff(calls, query, calls.read("/diff", **query))
