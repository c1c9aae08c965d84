"""The truth: what every branch held after each step, as a plain model says, and as the files really are.

Room    tests.simulation. Looks at the store after each step with a handle of its own. Every commit that came
        up is told by its message whose it is; what it holds must be what its operation makes of the commit
        before it. So the order of commits on a branch is the serial order of what was done to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph.storage.manifest.records import MAIN, CommitKind, CommitRecord, ManifestState
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot
from tests.engine.merge.model import Commit as ModelCommit
from tests.engine.merge.model import Image, best_common, orphans, three_way
from tests.simulation.operations import (
    Cleanup,
    Merge,
    Operation,
    Optimize,
    Refused,
    Revert,
    RowWrite,
    Widen,
)

# Commits that leave rows as they are, and who makes them.
KINDS: Mapping[CommitKind, type[Operation]] = {CommitKind.MAINTENANCE: Optimize, CommitKind.SCHEMA: Widen}


class Violation(AssertionError):
    """Something happened that may not happen."""


@dataclass(frozen=True)
class Landed:
    """A commit, when it came up, and what it holds."""

    record: CommitRecord
    step: int
    model: ModelCommit

    @property
    def image(self) -> Image:
        """What it holds."""
        return self.model.image


@dataclass
class Line:
    """The commits of one chain, with the step in which each became the head."""

    heads: list[tuple[int, str]] = field(default_factory=list)
    newest: ManifestState | None = None
    ended: int | None = None  # the step in which the branch was deleted
    sweeps: list[tuple[int, ManifestState]] = field(default_factory=list)  # as announced, with the step
    versions: dict[int, str] = field(default_factory=dict)  # the head of each

    def holds(self, commit: str, state: ManifestState) -> bool:
        """Say whether a state promises a version that has this commit as its head."""
        kept = (version for version in self.versions if version >= state.floor or version in state.kept)
        return any(self.versions[version] == commit for version in kept)


@dataclass(frozen=True)
class Names:
    """The registry after a step."""

    branches: Mapping[str, str]  # name -> incarnation
    deleting: frozenset[str]
    tags: Mapping[str, tuple[str, str]]  # name -> incarnation and commit

    def became(self, later: Names) -> Iterator[Named]:
        """Yield what a step has done to names."""
        were, are = ({chain: name for name, chain in one.branches.items()} for one in (self, later))
        for chain in sorted({*were, *are}):
            if chain not in were:
                yield Named(f"made {are[chain]}", chain)
            elif chain not in are:
                yield Named(f"deleted {were[chain]}", chain)
            elif were[chain] != are[chain]:
                yield Named(f"renamed {were[chain]} to {are[chain]}", chain)
        for tag in sorted({*self.tags, *later.tags}):
            was, now = self.tags.get(tag), later.tags.get(tag)
            if was != now:
                yield from [Named(f"untagged {tag}", was[1])] if was else []
                yield from [Named(f"tagged {tag}", now[1])] if now else []


@dataclass(frozen=True)
class Named:
    """A change of a name, and the chain or the commit that it is about."""

    what: str
    of: str

    def holds(self, names: Names) -> bool:
        """Say whether it is so still, and nobody has begun to change it."""
        verb, name = self.what.split()[0], self.what.split()[-1]
        match verb:
            case "made" | "renamed":
                return names.branches.get(name) == self.of and name not in names.deleting
            case "deleted":
                return name not in names.branches
            case "tagged":
                return name in names.tags and names.tags[name][1] == self.of
        return name not in names.tags


Read = dict[tuple[str, int], Image]  # a version of a table -> what it holds


class Rows:
    """Reads states row by row, each version of a table once."""

    def __init__(self, store: GraphStore, known: Read | None = None) -> None:
        self._store = store
        self._read = {} if known is None else known

    def image(self, state: ManifestState) -> Image:
        """Return everything that a state holds, straight from the files of its tables."""
        snapshot = PinnedSnapshot("", state)
        image: Image = {}
        for table_id, pin in state.pins.items():
            key = (table_id, pin.version)
            if key not in self._read:
                rows = self._store.table(snapshot, table_id).to_table().to_pylist()
                found = dict(map(_entity, rows))
                if len(found) != len(rows) or pin.rows != len(rows):
                    raise Violation(f"{pin.name} at {state.head}: {len(rows)} rows, {len(found)} entities")
                self._read[key] = found
            image |= self._read[key]
        return image


def _entity(row: Mapping[str, Any]) -> tuple[tuple[str, str], dict[str, Any]]:
    if "src" in row:
        return ("edge", row["tag"]), {"src": row["src"], "dst": row["dst"]}
    return ("node", row["id"]), {"age": row["age"]} if "age" in row else {}


@dataclass(frozen=True)
class Beginning:
    """What a graph held before anything happened, taken as it is: the same in every copy of it."""

    commits: dict[str, Landed] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)
    read: Read = field(default_factory=dict)

    @classmethod
    def of(cls, store: GraphStore) -> Beginning:
        """Read all of it."""
        found = cls()
        rows = Rows(store, found.read)
        for incarnation in (MAIN, *(ref.incarnation for ref in store.branches.list())):
            chain, line = store.branches.chain(incarnation), Line()
            for version in range(1, chain.latest().version + 1):
                line.newest = state = chain.at(version)
                line.versions[version] = state.head
                record = state.commit
                if record.id not in found.commits:
                    parents = () if record.parent is None else (found.commits[record.parent].model,)
                    model = ModelCommit(len(found.commits), parents, rows.image(state))
                    found.commits[record.id] = Landed(record, -1, model)
                if not line.heads or line.heads[-1][1] != state.head:
                    line.heads.append((-1, state.head))
            found.lines[incarnation] = line
        return found


class Truth:
    """What happened to one graph, step by step."""

    def __init__(self, store: GraphStore, beginning: Beginning, operations: Iterable[Operation]) -> None:
        self._store = store
        self._rows = Rows(store, dict(beginning.read))
        self._operations = {operation.name: operation for operation in operations}
        self.step = 0
        self.commits = dict(beginning.commits)
        self.by_operation: dict[str, list[Landed]] = {}
        self.lines = {
            chain: Line(list(line.heads), line.newest, versions=dict(line.versions))
            for chain, line in beginning.lines.items()
        }
        self.names: list[tuple[int, Names]] = []
        self.named: dict[str, list[tuple[int, Named]]] = {}  # by the operation whose step it was
        self._registry = 0
        self.look(None)

    # -- looking -----------------------------------------------------------------------------------

    def look(self, acting: Operation | None) -> None:
        """See what a step has changed; `acting` is what the actor that ran was doing."""
        refs = self._store.registry()
        if refs.version != self._registry:
            for ref in refs.branches:
                self.lines.setdefault(ref.incarnation, Line())
        for incarnation, line in self.lines.items():
            if line.ended is None:
                self._follow(incarnation, line, acting)
        live = {MAIN: MAIN} | {
            ref.name: ref.incarnation for ref in refs.branches if self.lines[ref.incarnation].ended is None
        }
        deleting = frozenset(ref.name for ref in refs.branches if ref.deleting)
        tags = {tag.name: (tag.incarnation, tag.commit_id) for tag in refs.tags}
        names = Names(live, deleting, tags)
        if not self.names or self.names[-1][1] != names:
            for change in self.names[-1][1].became(names) if self.names else ():
                assert acting is not None, "names change while somebody does something"
                self.named.setdefault(acting.name, []).append((self.step, change))
            self.names.append((self.step, names))
        self._registry = refs.version
        self.step += 1

    def _follow(self, incarnation: str, line: Line, acting: Operation | None) -> None:
        chain = self._store.branches.chain(incarnation)
        newest = chain.latest()
        if line.newest is not None and newest.version == line.newest.version:
            return
        for version in range(1 if line.newest is None else line.newest.version + 1, newest.version + 1):
            before, state = line.newest, chain.at(version)
            if state.commit.id not in self.commits:
                self._land(state, before, acting)
            line.versions[version] = state.head
            if not line.heads or line.heads[-1][1] != state.head:
                line.heads.append((self.step, state.head))
            if before is not None and state.swept != before.swept:
                line.sweeps.append((self.step, state))
                self._check_floor(before, state, acting)
            if state.tombstone is not None:
                line.ended = self.step
            line.newest = state

    def _check_floor(self, before: ManifestState, state: ManifestState, acting: Operation | None) -> None:
        """A cleanup gives up no more commits than it was told to."""
        if state.floor <= before.floor:
            return
        if not isinstance(acting, Cleanup):
            raise Violation(f"{acting} raised the floor of {state.line.incarnation}")
        own = [version for version, _ in state.recent]
        kept = sum(version >= state.floor for version in own)
        if own and kept < min(max(acting.keep, 1), len(own)):
            raise Violation(f"{acting} left {kept} of {len(own)} commits, floor {state.floor}")

    # -- a commit that came up ---------------------------------------------------------------------

    def _land(self, state: ManifestState, before: ManifestState | None, acting: Operation | None) -> None:
        record = state.commit
        if before is not None and record.parent != before.head:
            raise Violation(f"{record} stands on {record.parent}, and the head was {before.head}")
        assert record.parent is not None
        parent = self.commits[record.parent].model
        operation = self._operations.get(record.message or "")
        if record.kind is CommitKind.MAINTENANCE:  # it takes no message
            operation = acting
        expected, parents = self._expected(record, parent, operation)
        found = self._rows.image(state)
        if found != expected:
            raise Violation(f"{record} ({operation}) holds {_differing(found, expected)}")
        landed = Landed(record, self.step, ModelCommit(len(self.commits), parents, found))
        self.commits[record.id] = landed
        if operation is not None:
            self.by_operation.setdefault(operation.name, []).append(landed)

    def _expected(
        self, record: CommitRecord, parent: ModelCommit, operation: Operation | None
    ) -> tuple[Image, tuple[ModelCommit, ...]]:
        """Return what a commit must hold, and what it stands on."""
        sort = KINDS.get(record.kind)
        if sort is not None and isinstance(operation, sort):
            return parent.image, (parent,)
        if isinstance(operation, RowWrite):
            try:
                image = operation.effect(parent.image)
            except Refused as refused:
                raise Violation(f"{operation} landed on a state that refuses it: {refused}") from None
            if image is parent.image:
                raise Violation(f"{operation} landed where there was nothing to do")
            return image, (parent,)
        if isinstance(operation, Merge) and record.merged_parent is not None:
            theirs = self.commits[record.merged_parent].model
            image, conflicts = merged(parent, theirs)
            parents: tuple[ModelCommit, ...] = (parent, theirs)
        elif isinstance(operation, Revert):
            image, conflicts = reverted(parent, self.commits[record.labels["reverts"]].model)
            parents = (parent,)
        else:
            raise Violation(f"{record} is nobody's")
        if conflicts:
            raise Violation(f"{operation} landed with conflicts {conflicts}")
        return image, parents

    # -- asking ------------------------------------------------------------------------------------

    def names_between(self, start: int, end: int) -> Iterator[Names]:
        """Yield every registry that was in force from before one step to after another."""
        for number, (_, names) in enumerate(self.names):
            following = self.names[number + 1][0] if number + 1 < len(self.names) else end + 1
            if following >= start and self.names[number][0] <= end:
                yield names

    def heads_between(self, name: str, start: int, end: int) -> dict[str, list[str]]:
        """Return the heads that a name had meanwhile, by incarnation."""
        chains = dict.fromkeys(n.branches[name] for n in self.names_between(start, end) if name in n.branches)
        return {chain: self._line_between(chain, start, end) for chain in chains}

    def _line_between(self, incarnation: str, start: int, end: int) -> list[str]:
        heads = self.lines[incarnation].heads
        before = [head for step, head in heads if step < start][-1:]
        return before + [head for step, head in heads if start <= step <= end]

    def landed_between(self, start: int, end: int, branch: str) -> bool:
        """Say whether a branch got a commit meanwhile, or was another one."""
        chains = self.heads_between(branch, start, end)
        return len(chains) != 1 or any(len(heads) > 1 for heads in chains.values())

    def given_up(self, commit_id: str, end: int) -> bool:
        """Say whether a commit was at some moment up to a step on no chain that promised to have it.

        Known exactly for the chain that it was made on: a sweep says what it keeps. A fork holds its origin
        as well, so one that is kept by its forks alone counts as given up: whoever asked for it while these
        did not exist may have been refused.
        """
        line = self.lines[self.commits[commit_id].record.incarnation]
        return (line.ended is not None and line.ended <= end) or any(
            step <= end and not line.holds(commit_id, state) for step, state in line.sweeps
        )

    def path(self, commit_id: str, length: int) -> list[str]:
        """Return a commit and those before it, along first parents."""
        ids, model = list(self.commits), self.commits[commit_id].model
        found = [commit_id]
        while model.parents and len(found) < length:
            model = model.parents[0]
            found.append(ids[model.number])
        return found

    def bases(self, one: str, other: str) -> list[str]:
        """Return the best common ancestors of two commits."""
        ids = list(self.commits)
        return [ids[base.number] for base in best_common(self.commits[one].model, self.commits[other].model)]


def merged(ours: ModelCommit, theirs: ModelCommit) -> tuple[Image, set[tuple[str, str]]]:
    """Return what comes of a merge, and its conflicts."""
    bases = best_common(ours, theirs)
    image, conflicts = three_way([base.image for base in bases], ours.image, theirs.image)
    return image, conflicts or orphans(image)


def reverted(ours: ModelCommit, undone: ModelCommit) -> tuple[Image, set[tuple[str, str]]]:
    """Return what comes of taking a commit back, and its conflicts."""
    image, conflicts = three_way([undone.image], ours.image, undone.parents[0].image)
    return image, conflicts or orphans(image)


def _differing(found: Image, expected: Image) -> str:
    keys = sorted(key for key in {*found, *expected} if found.get(key) != expected.get(key))
    return "; ".join(f"{key[1]}: {found.get(key)}, expected {expected.get(key)}" for key in keys)
