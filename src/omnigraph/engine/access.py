"""Access: who asks, what may be asked of a graph, and who decides it.

The engine knows actions and a guard, and nothing of tokens, HTTP or policies. A graph that is bound to a
guard (`Graph.acting`) asks it at the start of every operation, before anything is read or written; a call
that names a state by something else than its branch is asked once more, for the branch that holds the state.

Rule    a state that may not be read is answered exactly as one that does not exist, so that a refusal tells
        nothing. A branch that is named is refused by its name alone, whether or not there is one.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol, runtime_checkable

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import (
    AmbiguousCommit,
    BadBranchName,
    BranchNotFound,
    HistoryReclaimed,
    NotFound,
    PermissionDenied,
)
from omnigraph.base.ids import is_short_id
from omnigraph.base.times import AncestorAt, At, CommitAt, TagAt, read_moment
from omnigraph.engine.history.resolve_at import full_commit_id, resolve, side, unknown
from omnigraph.storage.manifest.records import MAIN
from omnigraph.storage.manifest.refs import check_name
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot


class Action(Enum):
    """What an operation does, as far as permission goes; the value is its name in policy files."""

    READ = "read"
    EXPORT = "export"
    CHANGE = "change"
    SCHEMA_APPLY = "schema_apply"
    BRANCH_CREATE = "branch_create"
    BRANCH_DELETE = "branch_delete"
    BRANCH_MERGE = "branch_merge"
    INVOKE_QUERY = "invoke_query"
    ADMIN = "admin"
    GRAPH_LIST = "graph_list"


@runtime_checkable
class Guard(Protocol):
    """Decides for one actor on one graph."""

    def check(self, action: Action, *, branch: str | None = None, target: str | None = None) -> None:
        """Raise PermissionDenied unless the action is allowed.

        `branch` is the branch that is read or written, or the source of a fork or a merge; `target` is the
        branch that is made, merged into, deleted, or given another schema.
        """


@dataclass(frozen=True, slots=True)
class Access:
    """Who works on a graph, and who is asked before; without a guard everything is allowed."""

    store: GraphStore
    actor: str | None
    guard: Guard | None = None

    def check(self, action: Action, *, branch: str | None = None, target: str | None = None) -> None:
        """Raise PermissionDenied unless the action is allowed; names are checked as they will be used."""
        if self.guard is not None:
            self.guard.check(action, branch=_clean(branch), target=_clean(target))

    def allows(self, action: Action, *, branch: str | None = None) -> bool:
        """Say whether an action is allowed."""
        try:
            self.check(action, branch=branch)
        except PermissionDenied:
            return False
        return True

    # -- states ------------------------------------------------------------------------------------

    def state(self, action: Action, branch: str, at: At) -> tuple[str, At]:
        """Return a state that a call names as the branch and commit that it is, if both may be read."""
        self.check(action, branch=branch)
        if self.guard is None:
            return branch, at
        found = self._visible(branch, at)
        if action is not Action.READ and not _same(found.branch, branch):
            self.check(action, branch=found.branch)
        return found.branch, found.commit_id

    def end(self, branch: str, named: At) -> PinnedSnapshot:
        """Return one end of a diff, if it may be read: the head of a branch, or any state."""
        if self.guard is None:
            return side(self.store, named, branch)
        moment = read_moment(named)
        if isinstance(named, str) and not isinstance(moment, CommitAt) and self._reads_named(named):
            try:
                return self.store.snapshot(named)
            except BranchNotFound:
                pass
        if not (isinstance(moment, AncestorAt) and self._reads_named(moment.name)):
            self.check(Action.READ, branch=branch)
        return self._visible(branch, named)

    def _reads_named(self, name: str) -> bool:
        """Say whether a branch of this name might be read."""
        try:
            return self.allows(Action.READ, branch=name)
        except BadBranchName:
            return False

    def _visible(self, branch: str, at: At) -> PinnedSnapshot:
        """Return the state that an `at` names, as long as its own branch may be read."""
        moment = read_moment(at)
        try:
            if isinstance(moment, AncestorAt):  # how far a branch goes back is not told either
                start = resolve(self.store, branch, f"{moment.name}~0")
                if not self._reads(start.branch, branch):
                    self._refuse(at)
            found = resolve(self.store, branch, at)
        except AmbiguousCommit as error:
            ids = self._readable(error.candidates, branch)
            if len(ids) > 1:
                raise AmbiguousCommit(str(at), ids) from None
            return resolve(self.store, branch, ids[0]) if ids else self._refuse(at)
        except HistoryReclaimed:  # nobody can say whose it was
            if isinstance(moment, CommitAt | TagAt) and not self._reads_all():
                self._refuse(at)
            raise
        return found if self._reads(found.branch, branch) else self._refuse(at)

    def _reads(self, owner: str, named: str) -> bool:
        """Say whether the branch that holds a state may be read; for the one that is named it was asked."""
        return _same(owner, named) or self.allows(Action.READ, branch=owner)

    def _reads_all(self) -> bool:
        names = [MAIN, *(ref.name for ref in self.store.branches.list())]
        return all(self.allows(Action.READ, branch=name) for name in names)

    def _refuse(self, at: At) -> PinnedSnapshot:
        raise unknown(read_moment(at))

    # -- ids of commits ----------------------------------------------------------------------------

    def full_id(self, branch: str, text: str) -> str:
        """Return the id of the commit that a text begins, if its branch may be read; else the text."""
        if self.guard is None or not is_short_id(text):
            return full_commit_id(self.store, text)
        ids = self._readable(self.store.history.commits_like(text), branch)
        if len(ids) > 1:
            raise AmbiguousCommit(text, ids)
        return ids[0] if ids else text

    def readable_commit(self, branch: str, text: str) -> str:
        """Return the id of the commit that a text means; an unknown one if its branch may not be read."""
        commit_id = self.full_id(branch, text)
        if self.guard is not None and isinstance(read_moment(commit_id), CommitAt):
            self._visible(branch, commit_id)
        return commit_id

    def _readable(self, commit_ids: list[str] | tuple[str, ...], named: str) -> list[str]:
        readable = []
        for commit_id in commit_ids:
            try:
                owner, _ = self.store.history.get(commit_id, first=named)
            except NotFound:
                continue
            if self._reads(owner, named):
                readable.append(commit_id)
        return readable

    def reads_commit(self, commit_id: str) -> bool:
        """Say whether the branch that holds a commit may be read."""
        if self.guard is None:
            return True
        try:
            return self.allows(Action.READ, branch=self.store.history.get(commit_id)[0])
        except NotFound:
            return False

    # -- tags --------------------------------------------------------------------------------------

    def check_tag(self, action: Action, name: str) -> None:
        """Ask for the branch that holds the commit of a tag; whoever asks may see that there is a tag."""
        if self.guard is None:
            return
        incarnation = self.store.tags.get(name).incarnation
        try:
            self.check(action, branch=self.store.branches.name_of(incarnation))
        except BranchNotFound:  # deleted meanwhile, and the tag with it
            self.check(action, branch=MAIN)


def _clean(branch: str | None) -> str | None:
    return None if branch is None else check_name(branch)


def _same(owner: str, named: str) -> bool:
    return owner == named or check_name(owner) == check_name(named)
