"""Random schema histories on three branches, with names used again on purpose, beside a plain model."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.merge.conflicts import MergeConflict, SchemaConflict
from omnigraph.engine.merge.merge import MergeOutcome
from tests.engine.merge.schema_model import (
    DST,
    SRC,
    Commit,
    Merged,
    RowsRefused,
    SchemaRefused,
    State,
    Type,
    best_common,
    merge,
)
from tests.engine.merge.schema_readings import check_head, check_past, check_way, differences, is_clear, told
from tests.engine.merge.schema_run import BRANCHES, Run, Step

Image = dict[str, dict[str, Any]]  # rows by id
Verdict = Merged | SchemaRefused | RowsRefused
COMMON: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


def images(state: State) -> dict[str, Image]:
    return {t.name: state.image(t.number) for t in state.types.values()}


def _verdict(base: State, ours: State, theirs: State) -> Verdict:
    try:
        return merge(base, ours, theirs)
    except (SchemaRefused, RowsRefused) as refused:
        return refused


class History(Run):
    """One history with merges; after each step, both have the same."""

    def step(self, step: Step) -> None:
        what, branch, one, two, three = step
        act: Callable[[int, str, int, int, int], None] = getattr(self, what)
        before = dict(self.heads)
        handle = (one + two + three) % 2
        act(handle, BRANCHES[branch], one, two, three)
        if self.heads != before:
            self.check(handle, BRANCHES[branch])

    # -- branches ------------------------------------------------------------------------------------

    def merge(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        source = self._other(branch, one)
        theirs, ours = self.heads[source], self.heads[branch]
        if theirs in ours.ancestors:
            self._say(handle, branch, f"merge {source}, which it has")
            assert self.handles[handle].merge(source, branch).outcome.value == "already_up_to_date"
            return
        bases = best_common(ours, theirs)
        self._say(handle, branch, f"merge {source}")
        outcome = "fast_forward" if bases == [ours] else "merged"
        self._merged(handle, branch, bases, theirs, outcome, theirs, source)

    def add_twice(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        """Declare the same on two branches, each for itself, with rows on both, and merge."""
        for name in (branch, self._other(branch, one)):
            if three % 2:
                self.add_type(handle, name, 0, two, 0)
            else:
                self.add_prop(handle, name, two, 0, 0)
            self.put(handle, name, len(self._nodes(name)) - 1, BRANCHES.index(name), one)
        self.merge(handle, branch, one, two, three)

    def settle(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        """Do what the remedy of a schema conflict says: apply one schema to both branches, then merge."""
        self.align(handle, branch, one, two, three)
        self.merge(handle, branch, one, two, three)

    def wait(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        """Do nothing: what a step shrinks to."""

    def revert(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        undone = self.heads[branch]
        steps = one % 4
        for _ in range(steps):
            undone = undone.parents[0] if undone.parents else undone
        if not undone.parents:
            return
        self._say(handle, branch, f"revert {branch}~{steps}")
        commit = self.handles[handle].commits.get(f"{branch}~{steps}", branch=branch)
        self._merged(handle, branch, [undone], undone.parents[0], "merged", None, commit.id)

    def _merged(
        self,
        handle: int,
        branch: str,
        bases: list[Commit],
        theirs: Commit,
        outcome: str,
        parent: Commit | None,
        source: str,
    ) -> None:
        """Let both merge, and compare how it ended."""
        graph = self.handles[handle]
        verdicts = [_verdict(base.state, self._state(branch), theirs.state) for base in bases]
        head = graph.store.snapshot(branch).commit_id
        result: MergeOutcome | str | set[tuple[str, str | None]]
        try:
            result = graph.revert(source, branch=branch) if parent is None else graph.merge(source, branch)
        except SchemaConflict as error:
            result = f"schema_conflict: {error}"
        except MergeConflict as error:
            result = {(conflict.kind.value, conflict.entity_id) for conflict in error.conflicts}
        shown = ["merged" if isinstance(verdict, Merged) else repr(verdict) for verdict in verdicts]
        said = result.outcome.value if isinstance(result, MergeOutcome) else result
        self.log.append(f"    the model says {shown}, the engine {said}")
        if isinstance(result, MergeOutcome):
            assert said == outcome, self.told()
            self._commit(branch, self._agreed(graph, branch, verdicts, result), parent)
            return
        assert graph.store.snapshot(branch).commit_id == head, self.told()
        if len(verdicts) > 1:
            return  # branches that were merged crosswise may be refused
        wanted = verdicts[0]
        if isinstance(result, str):  # a schema conflict
            assert isinstance(wanted, SchemaRefused) or wanted.may_refuse, self.told()
        else:
            assert isinstance(wanted, RowsRefused), self.told()
            assert wanted.conflicts == result, self.told()

    def _agreed(self, graph: Graph, branch: str, verdicts: Sequence[Verdict], result: MergeOutcome) -> State:
        """Return the state of the model that the engine has; with several bases, it may take any of them."""
        unified = frozenset((one.type_name, one.property_name) for one in result.unified)
        losses = ((one.kind, one.type_name, one.property_name, one.rows) for one in result.dropped)
        dropped = frozenset(losses)
        for verdict in verdicts:
            if (
                isinstance(verdict, Merged)
                and (verdict.unified, verdict.dropped) == (unified, dropped)
                and self._stored(graph, branch, verdict.state) == images(verdict.state)
            ):
                return verdict.state
        raise AssertionError(f"{branch}, unified {unified}, dropped {dropped}: {verdicts}\n{self.told()}")

    def renew(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        """Delete a branch and make it again from another."""
        if branch == "main":
            return
        source = self._other(branch, one)
        graph = self.handles[handle]
        try:
            graph.branches.delete(branch)
        except og.GraphError:
            return  # another one was forked from it
        self._say(handle, branch, f"made again from {source}")
        graph.branches.create(branch, source)
        self.heads[branch] = self.heads[source]
        self.made = {i: (name, commit) for i, (name, commit) in self.made.items() if name != branch}

    # -- comparing -----------------------------------------------------------------------------------

    def check(self, handle: int, branch: str) -> None:
        """Compare a branch by every way of reading, warm and fresh; the others by their rows."""
        warm = self.handles[handle], self.handles[1 - handle]
        for graph in warm:
            self._check_queries(graph, branch)
        with og.connect(self.place) as fresh:
            self._check_rows(fresh, branch)
        for name in BRANCHES:
            self._check_rows(warm[0], name)

    def check_all(self) -> None:
        """Compare everything by every way of reading."""
        with og.connect(self.place) as fresh:
            for graph in (*self.handles, fresh):
                for branch in BRANCHES:
                    self._check_rows(graph, branch)
                    self._check_queries(graph, branch)
        try:
            self._check_readings(self.handles[0])
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()}") from error

    def _check_readings(self, graph: Graph) -> None:
        for branch, other in zip(BRANCHES, [*BRANCHES[1:], BRANCHES[0]], strict=True):
            check_head(graph, branch, self._state(branch))
            check_way(graph, branch, other, self._state(branch), self._state(other))
        for commit_id, (branch, commit) in list(self.made.items())[-6:]:
            check_past(graph, commit_id, commit.state, self._state(branch))
            if commit.parents and is_clear(commit.parents[0].state, commit.state):
                changes = graph.changes.of(commit_id).block.changes
                assert told(changes) == differences(commit.parents[0].state, commit.state), commit_id

    def _stored(self, graph: Graph, branch: str, state: State) -> dict[str, Image] | None:
        """Return the rows of all types; None if there are other types than in a state."""
        catalog = graph.schema.catalog(branch)
        if {t.name for t in catalog.tables} != {t.name for t in state.types.values()}:
            return None
        return {t.name: self._rows(graph, branch, t) for t in state.types.values()}

    def _rows(self, graph: Graph, branch: str, declared: Type) -> Image:
        view = (graph.edges if declared.is_edge else graph.nodes)(declared.name, branch=branch)
        return {row["id"]: row for row in view.to_arrow().to_pylist()}

    def _check_rows(self, graph: Graph, branch: str) -> None:
        state = self._state(branch)
        assert self._stored(graph, branch, state) == images(state), f"{branch}\n{self.told()}"

    def _check_queries(self, graph: Graph, branch: str) -> None:
        state = self._state(branch)
        for declared in state.types.values():
            if declared.ends is not None:
                self._check_edges(graph, branch, declared, *(state.types[end].name for end in declared.ends))
                continue
            names = sorted(p.name for p in declared.props)
            shown = ", ".join(f"$n.{name} as {name}" for name in names)
            text = f"query q() {{ match {{ $n: {declared.name} }} return {{ {shown} }} }}"
            rows = {row["k"]: {"id": row["k"], **row} for row in graph.query(text, branch=branch).rows}
            assert rows == state.image(declared.number), f"query on {branch} {declared.name}\n{self.told()}"

    def _check_edges(self, graph: Graph, branch: str, edge: Type, source: str, target: str) -> None:
        clause = f"$a: {source} $b: {target} $a {edge.name.lower()} $b"
        text = f"query q() {{ match {{ {clause} }} return {{ $a.k as a, $b.k as b }} }}"
        pairs = {(row["a"], row["b"]) for row in graph.query(text, branch=branch).rows}
        stored = {(row[SRC], row[DST]) for row in self._state(branch).rows[edge.number].values()}
        assert pairs == stored, f"query on {branch} {edge.name}\n{self.told()}"


ROWS = ("put", "put", "set_value", "set_value", "delete", "put_edge")
PROPERTIES = ("add_prop", "drop_prop", "remake_prop", "rename_prop", "swap_props", "widen_prop")
TYPES = (
    "add_twice",
    "add_twice",
    "add_type",
    "add_edge",
    "drop_type",
    "remake_type",
    "rename_type",
    "swap_types",
)
JOINS = ("merge", "merge", "merge", "merge", "merge", "settle", "revert", "renew")


def steps(*words: str) -> st.SearchStrategy[Step]:
    return st.tuples(st.sampled_from(words), st.integers(0, 2), *(st.integers(0, 5) for _ in range(3)))


# Rows are written before and after each change of a schema, and branches joined often.
rounds = st.tuples(
    steps(*ROWS),
    steps(*PROPERTIES, *TYPES),
    steps("wait", *ROWS),
    steps(*JOINS),
    steps("wait", *JOINS),
)


def histories(least: int, most: int) -> st.SearchStrategy[list[Step]]:
    """Histories of so many rounds."""
    return st.lists(rounds, min_size=least, max_size=most).map(
        lambda found: [one for part in found for one in part]
    )


def play(history: Sequence[Step]) -> None:
    place = Path(tempfile.mkdtemp(prefix="histories-"))
    try:
        run = History(place / "graph.og")
        try:
            for one in history:
                run.step(one)
            run.check_all()
        except og.GraphError as error:
            raise AssertionError(f"{error.code}: {error}\n{run.told()}") from error
        finally:
            run.close()
    finally:
        shutil.rmtree(place)


# What random histories met first, as short as it gets; the names say what came of it before.
KNOWN: dict[str, list[Step]] = {
    "a property made anew arrives empty": [("remake_prop", 1, 0, 1, 1), ("merge", 0, 0, 0, 0)],
    "values of a property made anew are lost": [
        ("put", 0, 1, 0, 1),
        ("remake_prop", 1, 0, 1, 1),
        ("merge", 0, 0, 0, 0),
    ],
    "a value given to a property that goes is lost": [
        ("put", 0, 2, 3, 2),
        ("remake_prop", 1, 4, 1, 4),
        ("merge", 1, 2, 3, 1),
    ],
    "a type made anew arrives empty": [("remake_type", 1, 0, 0, 1), ("merge", 0, 0, 0, 0)],
    "rows of a type made anew are lost": [
        ("remake_type", 1, 0, 0, 1),
        ("put", 0, 1, 0, 2),
        ("merge", 0, 0, 0, 0),
    ],
    "a row put into a type that goes is lost": [
        ("remake_type", 1, 0, 0, 1),
        ("put", 0, 0, 2, 2),
        ("merge", 0, 0, 0, 0),
    ],
    "swapped properties arrive swapped": [("swap_props", 1, 0, 0, 0), ("merge", 0, 0, 0, 0)],
    "swapped types arrive swapped": [
        ("drop_prop", 0, 0, 1, 0),
        ("merge", 1, 0, 0, 0),
        ("swap_types", 1, 0, 0, 0),
        ("merge", 0, 0, 0, 0),
    ],
    "rows of a type that both made are lost": [
        ("add_type", 1, 0, 0, 0),
        ("add_type", 2, 0, 0, 0),
        ("put", 1, 2, 0, 1),
        ("put", 2, 2, 1, 0),
        ("merge", 0, 0, 0, 0),
        ("merge", 0, 1, 0, 0),
        ("put", 2, 2, 2, 1),
        ("merge", 0, 1, 0, 0),
        ("merge", 1, 0, 0, 0),
    ],
    "values of a property that both made are lost": [
        ("add_prop", 0, 0, 0, 0),
        ("add_prop", 1, 0, 0, 0),
        ("remake_prop", 1, 0, 2, 0),
        ("put", 0, 0, 0, 1),
        ("put", 1, 0, 1, 2),
        ("merge", 0, 0, 0, 0),
        ("put", 1, 0, 2, 0),
        ("merge", 0, 0, 0, 0),
    ],
    "a warm handle writes into the wrong column": [
        ("set_value", 0, 0, 0, 0),
        ("swap_props", 0, 0, 0, 0),
        ("set_value", 0, 0, 0, 2),
    ],
    "a warm handle cannot write to what was made anew": [("put", 0, 0, 0, 0), ("remake_prop", 0, 0, 1, 1)],
    "a drop taken back after it was made anew": [("remake_prop", 0, 0, 1, 0), ("revert", 0, 1, 0, 0)],
    "the column of another property is taken for its own": [
        ("remake_prop", 0, 0, 1, 0),
        ("remake_prop", 1, 0, 1, 0),
        ("revert", 0, 1, 0, 0),
        ("merge", 0, 0, 0, 0),
    ],
    "an edge joins a type that is gone": [
        ("add_edge", 0, 0, 0, 0),
        ("remake_type", 2, 0, 0, 2),
        ("merge", 2, 0, 0, 0),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("history", KNOWN.values(), ids=KNOWN)
def test_known_histories(history: list[Step]) -> None:
    play(history)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=12, derandomize=True, **COMMON)
@given(histories(2, 4))
def test_histories(history: list[Step]) -> None:
    play(history)


@pytest.mark.full
@pytest.mark.timeout(3600)
@settings(max_examples=500, **COMMON)
@given(histories(3, 8))
def test_five_hundred_histories(history: list[Step]) -> None:
    play(history)
