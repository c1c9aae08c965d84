"""Lineage forgets the chains of deleted branches, and no merge starts from anywhere else for that.

Random histories of commits, forks (from heads and from older versions), merges, deleted branches and
cleanups, beside a plain graph of commits that forgets nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import pytest

from omnigraph.base.errors import BranchHasDescendants, HistoryReclaimed
from omnigraph.storage.history import merge_bases
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.publish import RetryPolicy
from omnigraph.storage.retention import Retainer, Retention, RetentionPlan
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Upsert
from omnigraph.storage.transaction import PlannedWrite, PublishPlan
from tests.support.graphs import PERSON, make_graph, people, upsert_person

AT_ONCE = RetryPolicy(confirm_after_s=0)
HISTORIES = 8


@dataclass
class Truth:
    """Every commit with all its ancestors, itself among them."""

    ancestors: dict[str, frozenset[str]] = field(default_factory=dict)

    def add(self, commit: str, *parents: str) -> None:
        """Note a commit."""
        self.ancestors[commit] = frozenset({commit}).union(*(self.ancestors[parent] for parent in parents))

    def bases(self, first: str, other: str) -> set[str]:
        """Return the common ancestors that no other common ancestor has."""
        common = self.ancestors[first] & self.ancestors[other]
        return {one for one in common if not any(one != c and one in self.ancestors[c] for c in common)}


def merge(store: GraphStore, source: str, into: str) -> None:
    """Commit a merge, whatever the rows."""
    theirs = store.snapshot(source).state
    plan = PublishPlan(
        CommitKind.MERGE,
        effects={PERSON: Upsert(people([source]))},
        always_commit=True,
        merged=theirs.ancestry,
        merged_parent=theirs.head,
    )
    store.publish(into, PlannedWrite(plan))


class History:
    """One random history, and the truth about it."""

    def __init__(self, store: GraphStore, draw: random.Random) -> None:
        self.store, self.draw = store, draw
        self.truth = Truth()
        self.made = self.compared = self.refused = 0
        self.truth.add(store.snapshot().state.head)

    def names(self) -> list[str]:
        """Return the branches there are."""
        return ["main", *(ref.name for ref in self.store.branches.list())]

    def step(self) -> None:
        """Do something."""
        does: list[Callable[[], object]] = [self.write, self.fork, self.merge_any]
        does += [self.delete, self.feature, self.clean]
        self.draw.choices(does, weights=[2, 2, 5, 2, 5, 5])[0]()

    def write(self, name: str | None = None) -> None:
        """Commit a row."""
        name = name or self.draw.choice(self.names())
        before = self.head(name)
        upsert_person(self.store, "row", age=self.draw.randrange(100), branch=name)
        self.truth.add(self.head(name), before)

    def head(self, name: str) -> str:
        """Return the newest commit of a branch."""
        return self.store.snapshot(name).state.head

    def fork(self) -> str:
        """Make a branch, from a head or from any version that stays."""
        source = self.draw.choice(self.names())
        head = self.store.snapshot(source).state
        state = head
        if self.draw.random() < 0.5:
            versions = [*head.kept, *range(max(1, head.floor), head.version + 1)]
            state = self.store.snapshot(source, at=self.draw.choice(versions)).state
        self.made += 1
        self.store.branches.create(f"b{self.made}", source, state)
        return f"b{self.made}"

    def merge_any(self) -> None:
        """Merge a branch into another."""
        self.merge(self.draw.choice(self.names()), self.draw.choice(self.names()))

    def merge(self, source: str, into: str) -> None:
        """Merge, if that is anything."""
        theirs, ours = self.head(source), self.head(into)
        if theirs not in self.truth.ancestors[ours]:
            merge(self.store, source, into)
            self.truth.add(self.head(into), ours, theirs)

    def delete(self) -> None:
        """Delete a branch, if nothing was forked from it."""
        for name in self.draw.sample(self.names()[1:], k=min(1, len(self.names()) - 1)):
            with suppress(BranchHasDescendants):
                self.store.branches.delete(name)

    def feature(self) -> None:
        """Make a branch, write there, merge it into one or two others, and delete it."""
        name = self.fork()
        self.write(name)
        others = [other for other in self.names() if other != name]
        for into in self.draw.sample(others, k=min(len(others), self.draw.choice([1, 1, 2]))):
            self.merge(name, into)
        self.store.branches.delete(name)

    def clean(self) -> None:
        """Give up history."""
        self.store.cleanup(Retention(self.draw.choice([0, 0, 2]), grace_us=0), dry_run=False)

    def compare(self) -> None:
        """Hold what each two branches would be merged by against the truth."""
        for one, other in combinations(self.names(), 2):
            first, second = (self.store.snapshot(name).state for name in (one, other))
            wanted = self.truth.bases(first.head, second.head)
            try:
                found = {state.head for state in merge_bases(self.store.branches, first, second)}
            except HistoryReclaimed:
                self.refused += 1
                continue
            self.compared += 1
            assert found == wanted, (one, other)


def run(folder: Path, seed: int, steps: int = 40) -> History:
    """Go through a history, and compare after each step."""
    make_graph(str(folder), durability="os").close()
    with GraphStore.open(str(folder), retry=AT_ONCE, durability="os") as store:
        history = History(store, random.Random(seed))
        for _ in range(steps):
            history.step()
            history.compare()
        for _ in range(2):
            history.clean()
        history.compare()
    return history


@pytest.mark.slow
def test_merges_start_where_they_would_if_nothing_were_forgotten(tmp_path: Path) -> None:
    compared = refused = 0
    for seed in range(HISTORIES):
        history = run(tmp_path / str(seed), seed)
        compared, refused = compared + history.compared, refused + history.refused

    assert compared > 20 * refused, "a refusal is no answer"


def test_a_history_that_forgets_too_much_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(_: Retainer, plan: RetentionPlan, ended: object) -> frozenset[str]:
        return frozenset(chain for head in plan.heads.values() for chain in head.seen)

    monkeypatch.setattr(Retainer, "forgotten", everything)

    def search() -> None:
        for seed in range(HISTORIES):
            run(tmp_path / str(seed), seed)

    with pytest.raises(AssertionError):
        search()


def test_versions_stay_small_however_many_branches_come_and_go(tmp_path: Path) -> None:
    make_graph(str(tmp_path / "graph"), durability="os").close()
    with GraphStore.open(str(tmp_path / "graph"), retry=AT_ONCE, durability="os") as store:
        store.branches.create("stays", "main")
        for number in range(12):
            store.branches.create(f"b{number}", "main")
            upsert_person(store, "row", age=number, branch=f"b{number}")
            merge(store, f"b{number}", "main")
            merge(store, "main", "stays")
            store.branches.delete(f"b{number}")
            upsert_person(store, "own", age=number)
        assert len(store.snapshot().state.seen) == 12
        for _ in range(2):  # the first deletes what is left of the chains, the second their names
            store.cleanup(Retention(0, grace_us=0), dry_run=False)

        assert set(store.snapshot().state.seen) == set()
        assert set(store.snapshot("stays").state.seen) == {"main"}
        merge(store, "stays", "main")
        upsert_person(store, "last", branch="stays")
        (base,) = merge_bases(store.branches, store.snapshot().state, store.snapshot("stays").state)
        assert base.line.incarnation == store.snapshot("stays").state.line.incarnation


@pytest.mark.parametrize("keep", [2, 10])  # so that what stays begins with the chain, or before it
def test_a_chain_is_remembered_while_two_older_states_have_it_from_nowhere_else(
    tmp_path: Path, keep: int
) -> None:
    """Both took it in by themselves: a merge of branches made there would start from it, or from nothing."""
    make_graph(str(tmp_path / "graph"), durability="os").close()
    with GraphStore.open(str(tmp_path / "graph"), retry=AT_ONCE, durability="os") as store:
        for name in ("fix", "left", "right"):
            store.branches.create(name, "main")
        upsert_person(store, "fixed", branch="fix")
        for name in ("left", "right"):
            upsert_person(store, "own", branch=name)
            merge(store, "fix", name)
        fixed = store.snapshot("fix").state
        store.branches.delete("fix")
        before = {name: store.snapshot(name).state.version for name in ("left", "right")}
        merge(store, "left", "right")  # from now on a merge of the two starts elsewhere
        upsert_person(store, "later", branch="left")
        for _ in range(3):
            store.cleanup(Retention(keep, grace_us=0), dry_run=False)
        for name, version in before.items():
            store.branches.create(f"{name}-again", name, store.snapshot(name, at=version).state)
    with GraphStore.open(str(tmp_path / "graph")) as fresh:
        again = [fresh.snapshot(f"{name}-again").state for name in before]
        assert all(fixed.line.incarnation in state.seen for state in again)
        with pytest.raises(HistoryReclaimed, match="common ancestor"):
            merge_bases(fresh.branches, *again)
