"""Schema run: writes of rows and schemas with names used again on purpose, to the engine and to the model.

Room    tests.engine.merge. A step is a word and four small numbers, read as far as the state allows it, so
        that a failure shrinks to its essence. Each is done by one of two handles that stay open over all
        changes of schemas; a third one is opened anew to compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import omnigraph as og
from tests.engine.merge.schema_model import (
    DEFAULT,
    DST,
    SRC,
    Commit,
    Prop,
    State,
    Type,
)

BRANCHES = ["main", "left", "right"]
NODES, EDGES = ["A", "B", "C"], ["Link", "Bond"]
PROPS, KINDS = ["x", "y", "z"], ["I32?", "String?", f"I32 @default({DEFAULT})"]
NARROW, WIDE = "I32?", "I64?"
VALUES: dict[str, list[Any]] = {
    NARROW: [1, 2, None],
    WIDE: [1, 2, None],
    "String?": ["p", "q", None],
    KINDS[2]: [1, 2, DEFAULT],
}
KEY = "String @key"
ROWS = ["r1", "r2", "r3", "r4", "r5", "r6"]

Step = tuple[str, int, int, int, int]  # what, on which branch, and what the step makes of the rest


def schema_text(state: State, old_names: dict[int, str] | None = None) -> str:
    """Write a schema; what is renamed says what it was called."""
    old_names = old_names or {}

    def hint(number: int) -> str:
        return f' @rename_from("{old_names[number]}")' if number in old_names else ""

    lines = []
    for declared in sorted(state.types.values(), key=lambda t: (t.is_edge, t.name)):
        props = [f"{p.name}: {p.kind}{hint(p.number)}" for p in sorted(declared.props, key=lambda p: p.name)]
        head = f"node {declared.name}"
        if declared.ends is not None:
            source, target = (state.types[end].name for end in declared.ends)
            head = f"edge {declared.name}: {source} -> {target}"
        lines.append(f"{head}{hint(declared.number)} {{ {'  '.join(props)} }}")
    return "\n".join(lines) + "\n"


class Run:
    """Writes of rows and schemas, to the engine and to the model."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.numbers = count(1)
        self.log: list[str] = []
        self.made: dict[str, tuple[str, Commit]] = {}  # commits by id, with the branch that has them
        state = State().with_type(self._node("A", ["x", "y"])).with_type(self._node("B", ["x"]))
        og.init(place, schema_text(state), durability="os").close()
        self.handles = [og.connect(place, durability="os") for _ in range(2)]
        self.heads = dict.fromkeys(BRANCHES, Commit((), state))
        for number, row_id in enumerate(ROWS[:2]):
            for other, declared in enumerate(state.types.values()):  # no two values of a row are the same
                self._put(0, "main", declared, row_id, [number + other, number + other + 1])
        for name in BRANCHES[1:]:
            self.handles[0].branches.create(name)
            self.heads[name] = self.heads["main"]

    def close(self) -> None:
        for handle in self.handles:
            handle.close()

    # -- helpers -------------------------------------------------------------------------------------

    def _node(self, name: str, props: Sequence[str], kind: str = KINDS[0]) -> Type:
        number = next(self.numbers)
        key = Prop(next(self.numbers), "k", KEY)
        return Type(number, name, (key, *(Prop(next(self.numbers), p, kind) for p in props)))

    def _state(self, branch: str) -> State:
        return self.heads[branch].state

    def _nodes(self, branch: str) -> list[Type]:
        return [t for t in self._state(branch).types.values() if not t.is_edge]

    def _edges(self, branch: str) -> list[Type]:
        return [t for t in self._state(branch).types.values() if t.is_edge]

    def _other(self, branch: str, pick: int) -> str:
        return [name for name in BRANCHES if name != branch][pick % 2]

    def _commit(self, branch: str, state: State, merged: Commit | None = None) -> None:
        parents = (self.heads[branch],) if merged is None else (self.heads[branch], merged)
        self.heads[branch] = Commit(parents, state)
        self.made[self.handles[0].store.snapshot(branch).commit_id] = branch, self.heads[branch]

    def _apply(self, handle: int, branch: str, state: State, old_names: dict[int, str] | None = None) -> None:
        text = schema_text(state, old_names)
        self._say(handle, branch, f"apply {text.strip()}")
        self.handles[handle].schema.apply(text, branch=branch)
        self._commit(branch, state)

    def told(self) -> str:
        return "\n".join(self.log)

    def _say(self, handle: int, branch: str, what: str) -> None:
        self.log.append(f"[{handle}] {branch}: {what}")

    # -- rows ----------------------------------------------------------------------------------------

    def put(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        nodes = self._nodes(branch)
        if nodes:
            self._put(handle, branch, nodes[one % len(nodes)], ROWS[two % 6], [three, three + one])

    def _put(self, handle: int, branch: str, declared: Type, row_id: str, picks: list[int]) -> None:
        """Load a row with all its values."""
        row: dict[int, Any] = {}
        for number, prop in enumerate(declared.props):
            row[prop.number] = row_id if prop.kind == KEY else VALUES[prop.kind][picks[number % 2] % 3]
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
        row_id, value = ROWS[two % 6], VALUES[prop.kind][three % 3]
        rows = state.rows[declared.number]
        head = f"query q($k: String, $v: {prop.kind.partition(' ')[0]})"
        if row_id in rows:
            text = f"{head} {{ update {declared.name} set {{ {prop.name}: $v }} where k = $k }}"
            row = {**rows[row_id], prop.number: value}
        else:
            text = f"{head} {{ insert {declared.name} {{ k: $k, {prop.name}: $v }} }}"
            row = {p.number: row_id if p.kind == KEY else p.default for p in declared.props}
            row[prop.number] = value
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
            made = self._node(free[one % len(free)], PROPS[: 1 + two % 2], KINDS[three % 3])
            self._apply(handle, branch, state.with_type(made))

    def add_edge(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        state = self._state(branch)
        free = [name for name in EDGES if state.named(name) is None]
        nodes = self._nodes(branch)
        if free and nodes:
            ends = nodes[two % len(nodes)].number, nodes[three % len(nodes)].number
            props = (Prop(next(self.numbers), "x", KINDS[0]),)
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
            self._put(handle, branch, made, ROWS[two % 6], [three, two])

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
        self._rename_type(handle, branch, a.number, _free("T", [t.name for t in nodes]))
        self._rename_type(handle, branch, b.number, a.name)
        self._rename_type(handle, branch, a.number, b.name)

    def _typed(self, branch: str, pick: int) -> tuple[Type, list[Prop]] | None:
        types = list(self._state(branch).types.values())
        if not types:
            return None
        declared = types[pick % len(types)]
        return declared, [p for p in declared.props if p.name != "k"]

    def add_prop(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        chosen = self._typed(branch, one)
        if chosen is None:
            return
        declared = chosen[0]
        free = [name for name in PROPS if declared.prop(name) is None]
        if free:
            made = Prop(next(self.numbers), free[two % len(free)], KINDS[three % 3])
            self._apply(
                handle, branch, self._state(branch).with_props(declared.number, [*declared.props, made])
            )

    def drop_prop(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        chosen = self._typed(branch, one)
        if chosen is None or not chosen[1]:
            return
        declared, props = chosen
        gone = props[two % len(props)]
        self._apply(
            handle,
            branch,
            self._state(branch).with_props(declared.number, [p for p in declared.props if p != gone]),
        )

    def remake_prop(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        """Drop a property and declare it again."""
        chosen = self._typed(branch, one)
        if chosen is None or not chosen[1]:
            return
        declared, props = chosen
        old = props[two % len(props)]
        rest = [p for p in declared.props if p != old]
        self._apply(handle, branch, self._state(branch).with_props(declared.number, rest))
        made = Prop(next(self.numbers), old.name, old.kind)
        self._apply(handle, branch, self._state(branch).with_props(declared.number, [*rest, made]))
        again = self._state(branch).types[declared.number]
        if three % 2 and not declared.is_edge:
            self._put(handle, branch, again, ROWS[two % 6], [three, two])

    def rename_prop(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        chosen = self._typed(branch, one)
        if chosen is None or not chosen[1]:
            return
        declared, props = chosen
        free = [name for name in PROPS if declared.prop(name) is None]
        if free:
            self._rename_prop(
                handle, branch, declared, props[two % len(props)].number, free[three % len(free)]
            )

    def _rename_prop(self, handle: int, branch: str, declared: Type, number: int, name: str) -> None:
        current = self._state(branch).types[declared.number]
        props = [Prop(p.number, name, p.kind, p.also) if p.number == number else p for p in current.props]
        old = next(p.name for p in current.props if p.number == number)
        self._apply(handle, branch, self._state(branch).with_props(declared.number, props), {number: old})

    def widen_prop(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        """Give a property a wider type, which moves its values to another column."""
        choices = [(t, p) for t in self._state(branch).types.values() for p in t.props if p.kind == NARROW]
        if choices:
            declared, prop = choices[one % len(choices)]
            wider = Prop(prop.number, prop.name, WIDE, prop.also)
            props = [wider if p == prop else p for p in declared.props]
            self._apply(handle, branch, self._state(branch).with_props(declared.number, props))

    def swap_props(self, handle: int, branch: str, one: int, two: int, three: int) -> None:
        chosen = self._typed(branch, one)
        if chosen is None or len(chosen[1]) < 2:
            return
        declared, props = chosen
        a, b = props[two % len(props)], props[(two + 1) % len(props)]
        self._rename_prop(handle, branch, declared, a.number, _free("t", [p.name for p in props]))
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
        state = State(types, {number: mine.rows.get(number, {}) for number in types})
        for declared in types.values():
            state = state.with_props(declared.number, declared.props)
        if schema_text(state) != schema_text(mine):
            self._apply(handle, branch, state)


def _free(name: str, taken: Sequence[str]) -> str:
    """Return a name for the middle of a swap; a revert may have left an earlier one."""
    return next(name * times for times in count(1) if name * times not in taken)
