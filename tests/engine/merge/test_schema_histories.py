"""Random schema histories on three branches, with names used again on purpose, beside a plain model.

A step is five small numbers, read as far as the state allows it, so that a failure shrinks to its essence. Every
step is done by one of two handles that stay open over all schema changes; a third one is opened anew to compare.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.merge.conflicts import MergeConflict, SchemaConflict
from tests.engine.merge.schema_model import (
    DST,
    SRC,
    Commit,
    Merged,
    Prop,
    RowsRefused,
    SchemaRefused,
    State,
    Type,
    best_common,
    merge,
)

BRANCHES = ["main", "left", "right"]
NODES, EDGES = ["A", "B", "C"], ["Link", "Bond"]
PROPS, KINDS = ["x", "y", "z"], ["I32", "String"]
VALUES: dict[str, list[Any]] = {"I32": [1, 2, None], "String": ["p", "q", None]}
ROWS = ["r1", "r2", "r3"]

Step = tuple[str, int, int, int, int]  # what, on which branch, and what the step makes of the rest
COMMON: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


def schema_text(state: State, old_names: dict[int, str] | None = None) -> str:
    """Write a schema; what is renamed says what it was called."""
    old_names = old_names or {}

    def hint(number: int) -> str:
        return f' @rename_from("{old_names[number]}")' if number in old_names else ""

    lines = []
    for declared in sorted(state.types.values(), key=lambda t: (t.is_edge, t.name)):
        props = [
            f"{p.name}: {p.kind}{' @key' if p.name == 'k' else '?'}{hint(p.number)}"
            for p in sorted(declared.props, key=lambda p: p.name)
        ]
        head = f"node {declared.name}"
        if declared.ends is not None:
            source, target = (state.types[end].name for end in declared.ends)
            head = f"edge {declared.name}: {source} -> {target}"
        lines.append(f"{head}{hint(declared.number)} {{ {'  '.join(props)} }}")
    return "\n".join(lines) + "\n"


class Run:
    """One history, in the engine and in the model."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.numbers = count(1)
        self.log: list[str] = []
        state = State().with_type(self._node("A", ["x", "y"])).with_type(self._node("B", ["x"]))
        og.init(place, schema_text(state), durability="os").close()
        self.handles = [og.connect(place, durability="os") for _ in range(2)]
        self.heads = dict.fromkeys(BRANCHES, Commit((), state))
        for number, row_id in enumerate(ROWS[:2]):
            for declared in list(state.types.values()):
                self._put(0, "main", declared, row_id, [number, number])
        for name in BRANCHES[1:]:
            self.handles[0].branches.create(name)
            self.heads[name] = self.heads["main"]

    def close(self) -> None:
        for handle in self.handles:
            handle.close()

    def step(self, step: Step) -> None:
        what, branch, one, two, three = step
        act: Callable[[int, str, int, int, int], None] = getattr(self, what)
        act((one + two + three) % 2, BRANCHES[branch], one, two, three)

    # -- helpers -------------------------------------------------------------------------------------

    def _node(self, name: str, props: Sequence[str], kind: str = "I32") -> Type:
        number = next(self.numbers)
        key = Prop(next(self.numbers), "k", "String")
        return Type(number, name, (key, *(Prop(next(self.numbers), p, kind) for p in props)))

    def _state(self, branch: str) -> State:
        return self.heads[branch].state

    def _nodes(self, branch: str) -> list[Type]:
        return [t for t in self._state(branch).types.values() if not t.is_edge]

    def _edges(self, branch: str) -> list[Type]:
        return [t for t in self._state(branch).types.values() if t.is_edge]

    def _commit(self, branch: str, state: State, merged: Commit | None = None) -> None:
        parents = (self.heads[branch],) if merged is None else (self.heads[branch], merged)
        self.heads[branch] = Commit(parents, state)

    def _apply(self, handle: int, branch: str, state: State, old_names: dict[int, str] | None = None) -> None:
        text = schema_text(state, old_names)
        self._say(handle, branch, f"apply {text.strip()}")
        self.handles[handle].schema.apply(text, branch=branch)
        self._commit(branch, state)

    def _say(self, handle: int, branch: str, what: str) -> None:
        self.log.append(f"[{handle}] {branch}: {what}")

    # -- rows ----------------------------------------------------------------------------------------

    def put(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        nodes = self._nodes(branch)
        if nodes:
            self._put(handle, branch, nodes[one % len(nodes)], ROWS[two % 3], [three, three + one])

    def _put(self, handle: int, branch: str, declared: Type, row_id: str, picks: list[int]) -> None:
        """Load a row with all its values."""
        row: dict[int, Any] = {}
        for number, prop in enumerate(declared.props):
            values = VALUES[prop.kind]
            row[prop.number] = row_id if prop.name == "k" else values[picks[number % 2] % len(values)]
        data = {p.name: row[p.number] for p in declared.props}
        self._say(handle, branch, f"load {declared.name} {data}")
        self.handles[handle].load([{"type": declared.name, "data": data}], mode="merge", branch=branch)
        state = self._state(branch)
        rows = {**state.rows[declared.number], row_id: row}
        self._commit(branch, state.with_rows(declared.number, rows))

    def set_value(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        """Insert a row by a mutation, or update it if it is there: the same texts again and again."""
        state = self._state(branch)
        choices = [(t, p) for t in self._nodes(branch) for p in t.props if p.name != "k"]
        if not choices:
            return
        declared, prop = choices[one % len(choices)]
        row_id, value = ROWS[two % 3], VALUES[prop.kind][three % 3]
        rows = state.rows[declared.number]
        head = f"query q($k: String, $v: {prop.kind}?)"
        if row_id in rows:
            text = f"{head} {{ update {declared.name} set {{ {prop.name}: $v }} where k = $k }}"
            row = {**rows[row_id], prop.number: value}
        else:
            text = f"{head} {{ insert {declared.name} {{ k: $k, {prop.name}: $v }} }}"
            row = {p.number: row_id if p.name == "k" else None for p in declared.props} | {prop.number: value}
        self._say(handle, branch, f"{text} k={row_id} v={value}")
        self.handles[handle].mutate(text, {"k": row_id, "v": value}, branch=branch)
        self._commit(branch, state.with_rows(declared.number, {**rows, row_id: row}))

    def delete(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        state = self._state(branch)
        choices = [(t, row_id) for t in self._nodes(branch) for row_id in sorted(state.rows[t.number])]
        if not choices:
            return
        declared, row_id = choices[(one + two) % len(choices)]
        self._say(handle, branch, f"delete {declared.name} {row_id}")
        text = f"query q($k: String) {{ delete {declared.name} where k = $k }}"
        self.handles[handle].mutate(text, k=row_id, branch=branch)
        self._commit(branch, state.without_row(declared.number, row_id))

    def put_edge(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        state = self._state(branch)
        edges = self._edges(branch)
        if not edges:
            return
        edge = edges[one % len(edges)]
        assert edge.ends is not None
        ids = [sorted(state.rows[end]) for end in edge.ends]
        if not all(ids):
            return
        source, target = ids[0][two % len(ids[0])], ids[1][three % len(ids[1])]
        values = {p.name: VALUES[p.kind][three % 3] for p in edge.props}
        name = f"e{two % 2}"
        self._say(handle, branch, f"load {edge.name} {name} {source}->{target} {values}")
        record = {"edge": edge.name, "from": source, "to": target, "data": {"id": name, **values}}
        self.handles[handle].load([record], mode="merge", branch=branch)
        row = {p.number: values[p.name] for p in edge.props} | {SRC: source, DST: target}
        self._commit(branch, state.with_rows(edge.number, {**state.rows[edge.number], name: row}))

    # -- schemas -------------------------------------------------------------------------------------

    def add_type(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        state = self._state(branch)
        free = [name for name in NODES if state.named(name) is None]
        if free:
            made = self._node(free[one % len(free)], PROPS[: 1 + two % 2], KINDS[three // 3 % 2])
            self._apply(handle, branch, state.with_type(made))

    def add_edge(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        state = self._state(branch)
        free = [name for name in EDGES if state.named(name) is None]
        nodes = self._nodes(branch)
        if free and nodes:
            ends = nodes[two % len(nodes)].number, nodes[three % len(nodes)].number
            props = (Prop(next(self.numbers), "x", "I32"),)
            self._apply(
                handle, branch, state.with_type(Type(next(self.numbers), free[one % len(free)], props, ends))
            )

    def drop_type(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        types = list(self._state(branch).types.values())
        if len(types) > 1:
            gone = types[one % len(types)]
            after = self._state(branch).without(gone.number)
            if after.types:
                self._apply(handle, branch, after)

    def remake_type(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        """Drop a type and declare it again, with a row."""
        state, nodes = self._state(branch), self._nodes(branch)
        if len(nodes) < 2:
            return
        old = nodes[one % len(nodes)]
        self._apply(handle, branch, state.without(old.number))
        props = tuple(Prop(next(self.numbers), p.name, p.kind) for p in old.props)
        made = Type(next(self.numbers), old.name, props)
        self._apply(handle, branch, self._state(branch).with_type(made))
        if three % 2:
            self._put(handle, branch, made, ROWS[two % 3], [three, two])

    def rename_type(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        state = self._state(branch)
        nodes = self._nodes(branch)
        free = [name for name in NODES if state.named(name) is None]
        if nodes and free:
            self._rename_type(handle, branch, nodes[one % len(nodes)].number, free[two % len(free)])

    def _rename_type(self, handle: int, branch: str, number: int, name: str) -> None:
        state = self._state(branch)
        old = state.types[number]
        renamed = Type(number, name, old.props, old.ends, old.also)
        self._apply(handle, branch, state.with_type(renamed), {number: old.name})

    def swap_types(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        nodes = self._nodes(branch)
        if len(nodes) < 2:
            return
        a, b = nodes[one % len(nodes)], nodes[(one + 1) % len(nodes)]
        self._rename_type(handle, branch, a.number, "T")
        self._rename_type(handle, branch, b.number, a.name)
        self._rename_type(handle, branch, a.number, b.name)

    def _typed(self, branch: str, pick: int) -> tuple[Type, list[Prop]] | None:
        types = list(self._state(branch).types.values())
        if not types:
            return None
        declared = types[pick % len(types)]
        return declared, [p for p in declared.props if p.name != "k"]

    def _with_props(self, branch: str, declared: Type, props: Sequence[Prop]) -> State:
        current = self._state(branch).types[declared.number]
        changed = Type(current.number, current.name, tuple(props), current.ends, current.also)
        kept = {p.number for p in props} | {SRC, DST}
        state = self._state(branch)
        rows = {
            i: {p: v for p, v in row.items() if p in kept} for i, row in state.rows[current.number].items()
        }
        return state.with_type(changed).with_rows(current.number, rows)

    def add_prop(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        chosen = self._typed(branch, one)
        if chosen is None:
            return
        declared, props = chosen
        free = [name for name in PROPS if declared.prop(name) is None]
        if free:
            made = Prop(next(self.numbers), free[two % len(free)], KINDS[three // 3 % 2])
            self._apply(handle, branch, self._with_props(branch, declared, [*declared.props, made]))

    def drop_prop(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        chosen = self._typed(branch, one)
        if chosen is None or not chosen[1]:
            return
        declared, props = chosen
        gone = props[two % len(props)]
        self._apply(
            handle, branch, self._with_props(branch, declared, [p for p in declared.props if p != gone])
        )

    def remake_prop(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        """Drop a property and declare it again."""
        chosen = self._typed(branch, one)
        if chosen is None or not chosen[1]:
            return
        declared, props = chosen
        old = props[two % len(props)]
        rest = [p for p in declared.props if p != old]
        self._apply(handle, branch, self._with_props(branch, declared, rest))
        made = Prop(next(self.numbers), old.name, old.kind)
        self._apply(handle, branch, self._with_props(branch, declared, [*rest, made]))
        again = self._state(branch).types[declared.number]
        if three % 2 and not declared.is_edge:
            self._put(handle, branch, again, ROWS[two % 3], [three, two])

    def rename_prop(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        chosen = self._typed(branch, one)
        if chosen is None or not chosen[1]:
            return
        declared, props = chosen
        free = [name for name in PROPS if declared.prop(name) is None]
        if free:
            self._rename_prop(handle, branch, declared, props[two % len(props)].number, free[three % len(free)])

    def _rename_prop(self, handle: int, branch: str, declared: Type, number: int, name: str) -> None:
        current = self._state(branch).types[declared.number]
        props = [Prop(p.number, name, p.kind, p.also) if p.number == number else p for p in current.props]
        old = next(p.name for p in current.props if p.number == number)
        self._apply(handle, branch, self._with_props(branch, declared, props), {number: old})

    def swap_props(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        chosen = self._typed(branch, one)
        if chosen is None or len(chosen[1]) < 2:
            return
        declared, props = chosen
        a, b = props[two % len(props)], props[(two + 1) % len(props)]
        self._rename_prop(handle, branch, declared, a.number, "t")
        self._rename_prop(handle, branch, declared, b.number, a.name)
        self._rename_prop(handle, branch, declared, a.number, b.name)

    def align(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        """Apply the text of another branch, as people do before they merge: what lacks is made or dropped."""
        other = self._state(self._other(branch, one))
        mine = self._state(branch)
        types: dict[int, Type] = {}
        for wanted in sorted(other.types.values(), key=lambda t: t.is_edge):
            known = mine.named(wanted.name)
            ends = None
            if wanted.ends is not None:
                by_name = {t.name: n for n, t in types.items()}
                ends = (by_name[other.types[wanted.ends[0]].name], by_name[other.types[wanted.ends[1]].name])
            props = []
            for prop in wanted.props:
                same = known.prop(prop.name) if known else None
                if same is not None and same.kind != prop.kind:
                    return  # such a change is refused
                props.append(same or Prop(next(self.numbers), prop.name, prop.kind))
            if known is None:
                known = Type(next(self.numbers), wanted.name, (), ends)
            elif known.ends != ends:
                return
            types[known.number] = Type(known.number, known.name, tuple(props), ends, known.also)
        rows = {}
        for number, declared in types.items():
            kept = {p.number for p in declared.props} | {SRC, DST}
            old = mine.rows.get(number, {})
            rows[number] = {i: {p: v for p, v in row.items() if p in kept} for i, row in old.items()}
        state = State(types, rows)
        if schema_text(state) != schema_text(mine):
            self._apply(handle, branch, state)

    # -- branches ------------------------------------------------------------------------------------

    def _other(self, branch: str, pick: int) -> str:
        return [name for name in BRANCHES if name != branch][pick % 2]

    def merge(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        source = self._other(branch, one)
        theirs, ours = self.heads[source], self.heads[branch]
        if theirs in ours.ancestors:
            self._say(handle, branch, f"merge {source}, which it has")
            assert self.handles[handle].merge(source, branch).outcome.value == "already_up_to_date"
            return
        bases = best_common(ours, theirs)
        if len(bases) > 1:
            return  # test_model.py has these
        self._say(handle, branch, f"merge {source}")
        outcome = "fast_forward" if bases == [ours] else "merged"
        self._merged(handle, branch, bases[0], theirs, outcome, theirs, source)

    def revert(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        undone = self.heads[branch]
        steps = one % 4
        for _ in range(steps):
            undone = undone.parents[0] if undone.parents else undone
        if not undone.parents:
            return
        self._say(handle, branch, f"revert {branch}~{steps}")
        commit = self.handles[handle].commits.get(f"{branch}~{steps}", branch=branch)
        self._merged(handle, branch, undone, undone.parents[0], "merged", None, commit.id)

    def _merged(
        self,
        handle: int,
        branch: str,
        base: Commit,
        theirs: Commit,
        outcome: str,
        parent: Commit | None,
        source: str,
    ) -> None:
        """Let both merge, and compare how it ended."""
        ours = self.heads[branch]
        wanted: Any
        try:
            wanted = merge(base.state, ours.state, theirs.state)
        except SchemaRefused as refused:
            wanted = f"schema_conflict: {refused}"
        except RowsRefused as refused:
            wanted = refused.conflicts
        graph = self.handles[handle]
        head = graph.store.snapshot(branch).commit_id
        result: Any
        try:
            done = graph.revert(source, branch=branch) if parent is None else graph.merge(source, branch)
            result = done.outcome.value
        except SchemaConflict as error:
            result = f"schema_conflict: {error}"
        except MergeConflict as error:
            result = {(conflict.kind.value, conflict.entity_id) for conflict in error.conflicts}
        shown = "merged" if isinstance(wanted, Merged) else wanted
        self.log.append(f"    the model says {shown}, the engine {result}")
        if isinstance(result, str) and result == outcome and isinstance(wanted, Merged):
            self._commit(branch, wanted.state, parent)
            return
        assert graph.store.snapshot(branch).commit_id == head, self.told()
        if isinstance(result, str) and result.startswith("schema_conflict"):
            refused = isinstance(wanted, str) or (isinstance(wanted, Merged) and wanted.may_refuse)
            assert refused, self.told()
        else:
            assert result == wanted, self.told()

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

    # -- comparing -----------------------------------------------------------------------------------

    def check(self, branch: str) -> None:
        """Compare a branch by every door, warm and fresh; the others by their rows."""
        with og.connect(self.place) as fresh:
            for graph in (*self.handles, fresh):
                self._check_rows(graph, branch)
                self._check_queries(graph, branch)
        for other in BRANCHES:
            if other != branch:
                self._check_rows(self.handles[0], other)

    def _check_rows(self, graph: Graph, branch: str) -> None:
        state = self._state(branch)
        for declared in state.types.values():
            door = graph.edges if declared.is_edge else graph.nodes
            rows = {row["id"]: row for row in door(declared.name, branch=branch).to_arrow().to_pylist()}
            assert rows == state.image(declared.number), f"{branch} {declared.name}\n{self.told()}"

    def _check_queries(self, graph: Graph, branch: str) -> None:
        state = self._state(branch)
        for declared in state.types.values():
            if declared.is_edge:
                continue
            names = sorted(p.name for p in declared.props)
            shown = ", ".join(f"$n.{name} as {name}" for name in names)
            text = f"query q() {{ match {{ $n: {declared.name} }} return {{ {shown} }} }}"
            rows = {row["k"]: {"id": row["k"], **row} for row in graph.query(text, branch=branch).rows}
            assert rows == state.image(declared.number), f"query on {branch} {declared.name}\n{self.told()}"

    def told(self) -> str:
        return "\n".join(self.log)


WEIGHTS = {
    "put": 4,
    "set_value": 4,
    "delete": 1,
    "put_edge": 1,
    "add_type": 2,
    "add_edge": 1,
    "drop_type": 1,
    "remake_type": 2,
    "rename_type": 1,
    "swap_types": 2,
    "add_prop": 2,
    "drop_prop": 1,
    "remake_prop": 2,
    "rename_prop": 1,
    "swap_props": 2,
    "align": 2,
    "merge": 8,
    "revert": 2,
    "renew": 1,
}
WORDS = [what for what, weight in WEIGHTS.items() for _ in range(weight)]
step = st.tuples(st.sampled_from(WORDS), st.integers(0, 2), *(st.integers(0, 5) for _ in range(3)))
histories = st.lists(step, min_size=4, max_size=16)


def play(history: Sequence[Step]) -> None:
    place = Path(tempfile.mkdtemp(prefix="histories-"))
    try:
        run = Run(place / "graph.og")
        try:
            for one in history:
                before = dict(run.heads)
                run.step(one)
                if run.heads != before:
                    run.check(BRANCHES[one[1]])
        except og.GraphError as error:
            raise AssertionError(f"{error.code}: {error}\n{run.told()}") from error
        finally:
            run.close()
    finally:
        shutil.rmtree(place)


@settings(max_examples=50, derandomize=True, **COMMON)
@given(histories)
def test_histories(history: list[Step]) -> None:
    play(history)


@pytest.mark.full
@pytest.mark.timeout(3600)
@settings(max_examples=500, **COMMON)
@given(st.lists(step, min_size=8, max_size=30))
def test_five_hundred_histories(history: list[Step]) -> None:
    play(history)
