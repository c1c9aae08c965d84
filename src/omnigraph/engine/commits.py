"""Commits and tags: `graph.commits` and `graph.tags`.

Who changed what, when; and names for commits that never move.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from omnigraph.base.arguments import checked_methods
from omnigraph.base.dataclass import JsonFields, dataclass
from omnigraph.base.errors import NotFound
from omnigraph.base.times import At
from omnigraph.engine.access import Action
from omnigraph.engine.history.resolve_at import resolve
from omnigraph.engine.options import View
from omnigraph.storage.cost import measured
from omnigraph.storage.history import LIMIT, Page
from omnigraph.storage.manifest.records import MAIN, CommitRecord, ManifestState
from omnigraph.storage.manifest.refs import TagRef
from omnigraph.storage.store import GraphStore


@checked_methods
class Commits:
    """The commits of one graph."""

    def __init__(self, store: GraphStore, view: View) -> None:
        self._store = store
        self._view = view

    def list(
        self,
        branch: str | None = None,
        limit: int = 50,
        before: str | None = None,
        *,
        actor: str | None = None,
    ) -> Page:
        """Return the commits of a branch, newest first, those it inherited included.

        `before` is the id of a commit: the page starts after it. `actor` chooses the commits of one actor.
        """
        with measured():
            head = self._head(branch)
            if before is not None:
                before = self._view.full_id(self._store, self._view.line_named(branch), before)
            if actor is None:
                return self._store.history.page(head, limit=limit, before=before)
            matching: list[CommitRecord] = []
            while True:
                page = self._store.history.page(head, limit=min(LIMIT, 2 * limit), before=before)
                matching += [commit for commit in page if commit.actor == actor]
                if len(matching) > limit:
                    return Page(tuple(matching[:limit]), matching[limit - 1].id)
                if page.next is None:
                    return Page(tuple(matching))
                before = page.next

    def graph(self, branch: str | None = None, limit: int = 50) -> tuple[CommitRecord, ...]:
        """Return the commits of a branch and of what was merged into them, as far as it can be found.

        A merged commit whose branch was deleted is only named by the merge.
        """
        with measured():
            commits: dict[str, CommitRecord] = {}
            waiting: deque[ManifestState] = deque([self._head(branch)])
            while waiting:
                for commit in self._store.history.page(waiting.popleft(), limit=limit):
                    if commit.id in commits or len(commits) >= LIMIT:
                        break
                    commits[commit.id] = commit
                    merged = None if commit.merged_parent is None else self._merged(commit.merged_parent)
                    if merged is not None:
                        waiting.append(merged)
            return tuple(commits.values())

    def _head(self, branch: str | None) -> ManifestState:
        """Return where a listing begins: at a branch's head, or at the state of a view."""
        return resolve(self._store, *self._view.read(branch, None)).state

    def _merged(self, commit_id: str) -> ManifestState | None:
        access = self._view.access
        if access is not None and not access.reads_commit(commit_id):
            return None
        try:
            return self._store.history.get(commit_id)[1]
        except NotFound:
            return None

    def get(self, at: At, *, branch: str | None = None) -> CommitRecord:
        """Return one commit by its id, whichever branch made it; or that of any other moment."""
        with measured():
            line = self._view.line_named(branch)
            return resolve(self._store, *self._view.read(line, at)).state.commit


@dataclass(frozen=True, slots=True)
class Tag(JsonFields):
    """A name for one commit."""

    json_names: ClassVar = {"commit_id": "graph_commit_id", "created_us": "created_at", "actor": "actor_id"}

    name: str
    commit_id: str
    created_us: int
    actor: str | None = None
    message: str | None = None


@checked_methods
class GraphTags:
    """The tags of one graph."""

    def __init__(self, store: GraphStore, view: View) -> None:
        self._store = store
        self._view = view

    def create(
        self,
        name: str,
        at: At | None = None,
        *,
        branch: str | None = None,
        actor: str | None = None,
        message: str | None = None,
        dry_run: bool = False,
    ) -> Tag:
        """Name a commit: the head of a branch, or any state that `at` names."""
        actor = self._view.by(actor)
        with measured():
            state = resolve(self._store, *self._view.read(branch, at, Action.CHANGE)).state
            if dry_run:
                self._store.tags.rehearse(name, state)
                return Tag(name, state.head, self._store.clock.now_us(), actor, message)
            return _shown(self._store.tags.create(name, state, actor=actor, message=message))

    def list(self) -> tuple[Tag, ...]:
        """Return all tags, by name."""
        self._view.allow(Action.READ, MAIN)
        with measured():
            return tuple(_shown(ref) for ref in self._store.tags.list())

    def get(self, name: str) -> Tag:
        """Return one tag."""
        self._view.allow(Action.READ, MAIN)
        with measured():
            return _shown(self._store.tags.get(name))

    def delete(self, name: str, *, dry_run: bool = False) -> Tag:
        """Take a name away; the commit stays. Returns what the tag was."""
        self._view.allow(Action.READ, MAIN)
        if self._view.access is not None:
            self._view.access.check_tag(Action.CHANGE, name)
        if dry_run:
            return self.get(name)
        with measured():
            return _shown(self._store.tags.delete(name))


def _shown(ref: TagRef) -> Tag:
    return Tag(ref.name, ref.commit_id, ref.created_us, ref.actor, ref.message)
