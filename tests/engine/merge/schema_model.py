"""Schema model: schemas, rows and their merges by identity, in plain values, slow and obvious.

Room    tests.engine.merge. Knows nothing of the engine. A type or property is its number, whatever it is
        called; rows hold values by the number of a property. The rules are those of docs/merging.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

SRC, DST = -1, -2  # where a row keeps the ends of an edge
DEFAULT = 7
Row = dict[int, Any]
Rows = dict[str, Row]


@dataclass(frozen=True)
class Prop:
    number: int
    name: str
    kind: str  # as the schema language has it
    also: frozenset[int] = frozenset()  # numbers that were unified with it

    @property
    def default(self) -> Any:
        """What rows have that were never given a value."""
        return DEFAULT if "@default" in self.kind else None


@dataclass(frozen=True)
class Type:
    number: int
    name: str
    props: tuple[Prop, ...]
    ends: tuple[int, int] | None = None
    also: frozenset[int] = frozenset()

    def prop(self, name: str) -> Prop | None:
        return next((p for p in self.props if p.name == name), None)

    @property
    def is_edge(self) -> bool:
        return self.ends is not None


@dataclass(frozen=True)
class State:
    """Everything that a commit holds; never changed once made."""

    types: dict[int, Type] = field(default_factory=dict)
    rows: dict[int, Rows] = field(default_factory=dict)

    def named(self, name: str) -> Type | None:
        return next((t for t in self.types.values() if t.name == name), None)

    def with_type(self, declared: Type) -> State:
        rows = {**self.rows, declared.number: self.rows.get(declared.number, {})}
        return State({**self.types, declared.number: declared}, rows)

    def without(self, number: int) -> State:
        """Without a type, and without the edges that join it."""
        gone = {number} | {t.number for t in self.types.values() if t.ends and number in t.ends}
        return State(
            {n: t for n, t in self.types.items() if n not in gone},
            {n: r for n, r in self.rows.items() if n not in gone},
        )

    def with_props(self, number: int, props: Iterable[Prop]) -> State:
        """With other properties of a type; rows get the default of new ones, and lose the others."""
        declared = replace(self.types[number], props=tuple(props))
        rows = {
            row_id: {p.number: row.get(p.number, p.default) for p in declared.props}
            | {end: row[end] for end in (SRC, DST) if end in row}
            for row_id, row in self.rows[number].items()
        }
        return self.with_type(declared).with_rows(number, rows)

    def with_rows(self, number: int, rows: Rows) -> State:
        return replace(self, rows={**self.rows, number: rows})

    def without_row(self, number: int, row_id: str) -> State:
        """Without a row, and without the edges that join it."""
        rows = {n: dict(r) for n, r in self.rows.items()}
        del rows[number][row_id]
        for edge in self.types.values():
            for end, target in zip((SRC, DST), edge.ends or (), strict=False):
                if target == number:
                    rows[edge.number] = {i: r for i, r in rows[edge.number].items() if r[end] != row_id}
        return replace(self, rows=rows)

    def image(self, number: int) -> dict[str, dict[str, Any]]:
        """The rows of a type under the names of its properties."""
        names = {p.number: p.name for p in self.types[number].props} | {SRC: "src", DST: "dst"}
        return {
            row_id: {"id": row_id, **{names[p]: value for p, value in row.items()}}
            for row_id, row in self.rows[number].items()
        }


@dataclass(frozen=True, eq=False)
class Commit:
    parents: tuple[Commit, ...]
    state: State
    ancestors: frozenset[Commit] = field(init=False)

    def __post_init__(self) -> None:
        inherited = frozenset[Commit]().union(*(parent.ancestors for parent in self.parents))
        object.__setattr__(self, "ancestors", inherited | {self})


def best_common(one: Commit, other: Commit) -> list[Commit]:
    common = one.ancestors & other.ancestors
    return [c for c in common if not any(c is not d and c in d.ancestors for d in common)]


# -- merging -----------------------------------------------------------------------------------------


class SchemaRefused(Exception):
    """The two schemas do not go together."""


class RowsRefused(Exception):
    """Both sides changed the same thing: (kind of conflict, id) of all of them."""

    def __init__(self, conflicts: set[tuple[str, str]], may_refuse: bool) -> None:
        super().__init__(sorted(conflicts))
        self.conflicts = conflicts
        self.may_refuse = may_refuse


Loss = tuple[str, str, str | None, int]  # kind, type, property, how many rows or values


@dataclass(frozen=True)
class Merged:
    state: State
    may_refuse: bool = False  # the rules leave it open whether this is merged or a schema conflict
    unified: frozenset[tuple[str, str | None]] = frozenset()  # types and properties that both sides made
    dropped: frozenset[Loss] = frozenset()  # what ours had


def merge(base: State, ours: State, theirs: State) -> Merged:
    """Merge three states, or refuse."""
    groups = Groups([base, ours, theirs])
    if ours is base:
        return Merged(_known_by_all(groups, theirs), dropped=frozenset(_losses(groups, ours, theirs)))
    unified = _unify_new(groups, base, ours, theirs)
    before, mine, other = (_canonical(groups, state) for state in (base, ours, theirs))
    merging = Merging(groups, before, mine, other)
    for number in sorted({*before.types, *mine.types, *other.types}):
        merging.add(number)
    merged = merging.finish()
    losses = frozenset(_losses(groups, ours, merged.state))
    return replace(merged, unified=merged.unified | unified, dropped=losses)


def _known_by_all(groups: Groups, state: State) -> State:
    """The state with what was unified: a revert takes back rows, not that two ids are one thing."""
    types = {}
    for number, declared in state.types.items():
        props = tuple(replace(p, also=p.also | groups.members(p.number)) for p in declared.props)
        types[number] = replace(declared, props=props, also=declared.also | groups.members(number))
    return replace(state, types=types)


def _losses(groups: Groups, ours: State, merged: State) -> Iterator[Loss]:
    """What a target had and the merged schema has not."""
    there = {groups.of(t.number): t for t in merged.types.values()}
    for declared in ours.types.values():
        kind = "edge" if declared.is_edge else "node"
        rows = ours.rows[declared.number]
        kept = there.get(groups.of(declared.number))
        if kept is None:
            yield kind, declared.name, None, len(rows)
            continue
        members = {groups.of(p.number) for p in kept.props}
        for prop in declared.props:
            if groups.of(prop.number) not in members:
                values = sum(row[prop.number] is not None for row in rows.values())
                yield kind, declared.name, prop.name, values


class Groups:
    """Which numbers stand for one thing."""

    def __init__(self, states: Iterable[State]) -> None:
        self._parent: dict[int, int] = {}
        for state in states:
            for declared in state.types.values():
                things: list[Type | Prop] = [declared, *declared.props]
                for thing in things:
                    for alias in thing.also:
                        self.join(thing.number, alias)

    def of(self, number: int) -> int:
        while number in self._parent:
            number = self._parent[number]
        return number

    def join(self, kept: int, other: int) -> None:
        if self.of(kept) != self.of(other):
            self._parent[self.of(other)] = self.of(kept)

    def members(self, number: int) -> frozenset[int]:
        root = self.of(number)
        return frozenset(n for n in (*self._parent, root) if self.of(n) == root and n != number)


def _unify_new(groups: Groups, base: State, ours: State, theirs: State) -> frozenset[tuple[str, str | None]]:
    """Join types that both sides made under one name, if they declare the same; nodes before edges."""
    known = {groups.of(n) for n in base.types}
    unified: set[tuple[str, str | None]] = set()
    for is_edge in (False, True):
        for mine in [t for t in ours.types.values() if t.is_edge is is_edge]:
            other = next(
                (t for t in theirs.types.values() if (t.is_edge, t.name) == (is_edge, mine.name)), None
            )
            if other is None or groups.of(mine.number) == groups.of(other.number):
                continue
            if {groups.of(mine.number), groups.of(other.number)} & known:
                continue  # a collision of names, seen to later
            if _text(groups, mine) != _text(groups, other):
                raise SchemaRefused(f"{mine.name} was made twice")
            groups.join(mine.number, other.number)
            unified.add((mine.name, None))
            for prop in mine.props:
                twin = other.prop(prop.name)
                assert twin is not None
                groups.join(prop.number, twin.number)
    return frozenset(unified)


def _text(groups: Groups, declared: Type) -> Any:
    """What a declaration says, by name; ends count as what they are."""
    ends = declared.ends and tuple(groups.of(end) for end in declared.ends)
    return declared.name, ends, frozenset((p.name, p.kind) for p in declared.props)


def _canonical(groups: Groups, state: State) -> State:
    """A state with one number for each group."""
    types: dict[int, Type] = {}
    rows: dict[int, Rows] = {}
    for declared in state.types.values():
        number = groups.of(declared.number)
        if number in types:
            raise SchemaRefused(f"{declared.name} and {types[number].name} were unified elsewhere")
        props = tuple(replace(p, number=groups.of(p.number)) for p in declared.props)
        if len({p.number for p in props}) < len(props):
            raise SchemaRefused(f"two properties of {declared.name} were unified elsewhere")
        ends = declared.ends and (groups.of(declared.ends[0]), groups.of(declared.ends[1]))
        types[number] = replace(declared, number=number, props=props, ends=ends)
        rows[number] = {
            row_id: {groups.of(p) if p > 0 else p: value for p, value in row.items()}
            for row_id, row in state.rows[declared.number].items()
        }
    return State(types, rows)


def _shape(declared: Type) -> Any:
    """What a declaration is: names and kinds by number."""
    return declared.name, declared.ends, frozenset((p.number, p.name, p.kind) for p in declared.props)


class Merging:
    """A merge under way; all numbers stand for their groups."""

    def __init__(self, groups: Groups, base: State, ours: State, theirs: State) -> None:
        self.groups, self.base, self.ours, self.theirs = groups, base, ours, theirs
        self.types: dict[int, Type] = {}
        self.may_refuse = False
        self.unified: set[tuple[str, str | None]] = set()

    def add(self, number: int) -> None:
        old, mine, other = (state.types.get(number) for state in (self.base, self.ours, self.theirs))
        if mine is None or other is None:
            kept, state = (mine, self.ours) if other is None else (other, self.theirs)
            if kept is not None and old is None:
                self.types[number] = kept
            elif kept is not None and old is not None:
                self._check_untouched(old, kept, state)
        elif _shape(mine) == _shape(other):
            self.types[number] = mine
        elif old is not None and _shape(old) == _shape(mine):
            self._check_dropped(old, other, self.ours)
            self.types[number] = other
        elif old is not None and _shape(old) == _shape(other):
            self._check_dropped(old, mine, self.theirs)
            self.types[number] = mine
        elif _text(self.groups, mine) == _text(self.groups, other):
            self.types[number] = self._both(old, mine, other)
        else:
            raise SchemaRefused(f"{mine.name} was changed twice")

    def _check_untouched(self, old: Type, kept: Type, state: State) -> None:
        """A type may go if the side that still has it did nothing to it but delete rows."""
        before = self.base.rows[old.number]
        rows = state.rows[old.number]
        if _shape(old) != _shape(kept) or not all(before.get(i) == rows[i] for i in rows):
            raise SchemaRefused(f"{kept.name} was dropped, and changed")

    def _check_dropped(self, old: Type, kept: Type, state: State) -> None:
        """A property may go if the side that still has it gave it no value."""
        there = {p.number for p in kept.props}
        has = {p.number for p in state.types[old.number].props}
        before = self.base.rows[old.number]
        for prop in old.props:
            if prop.number in there or prop.number not in has:
                continue
            for row_id, row in state.rows[old.number].items():
                known = [before[row_id][prop.number]] if row_id in before else [None, prop.default]
                if row[prop.number] not in known:
                    raise SchemaRefused(f"{old.name}.{prop.name} was dropped, and changed")

    def _both(self, old: Type | None, mine: Type, other: Type) -> Type:
        """Both say the same in other ways: properties by identity, as many as the text has."""
        known = {p.number: p for p in (old.props if old else ())}
        sides = [{p.number: p for p in side.props} for side in (mine, other)]
        for prop in mine.props:  # made on both sides
            twin = other.prop(prop.name)
            if twin is not None and prop.number not in known and twin.number not in known:
                if self.groups.of(prop.number) != self.groups.of(twin.number):
                    self.unified.add((mine.name, prop.name))
                self.groups.join(prop.number, twin.number)
        if old is not None:
            self._check_dropped(old, other, self.ours)
            self._check_dropped(old, mine, self.theirs)
        gone = [{n for n in known if n in here and n not in there} for here, there in (sides, sides[::-1])]
        self.may_refuse |= all(gone)  # each side made another property anew
        merged: dict[int, Prop] = {}
        for prop in (*mine.props, *other.props):
            number = self.groups.of(prop.number)
            in_both = all(any(self.groups.of(p) == number for p in side) for side in sides)
            if prop.number in known and not in_both:
                continue  # one side dropped it
            first = merged.setdefault(number, replace(prop, number=number))
            if first.name != prop.name:
                was = known[prop.number].name if prop.number in known else None
                if was == first.name:
                    merged[number] = replace(prop, number=number)
                elif was != prop.name:
                    raise SchemaRefused(f"{mine.name}.{first.name} has two new names")
        if {p.name for p in merged.values()} != {p.name for p in mine.props} or len(merged) != len(
            mine.props
        ):
            raise SchemaRefused(f"{mine.name}: the same text for other properties")
        return replace(mine, props=tuple(merged.values()))

    def finish(self) -> Merged:
        names = [(t.is_edge, t.name) for t in self.types.values()]
        if len(set(names)) < len(names):
            raise SchemaRefused("one name for two types")
        for edge in self.types.values():
            if not set(edge.ends or ()) <= set(self.types):
                raise SchemaRefused(f"{edge.name} joins a type that is gone")
            for side in (self.ours, self.theirs):
                for end in edge.ends or ():
                    if end in side.types and side.types[end].name != self.types[end].name:
                        self.may_refuse = True  # an edge is written with names that the other side changed
        rows: dict[int, Rows] = {}
        conflicts: set[tuple[str, str]] = set()
        for number, declared in self.types.items():
            rows[number], met = self._rows(declared)
            conflicts |= met
        conflicts = conflicts or set(_orphans(self.types, rows))
        if conflicts:
            raise RowsRefused(conflicts, self.may_refuse)
        state = State({n: self._with_aliases(t) for n, t in self.types.items()}, rows)
        return Merged(state, self.may_refuse, frozenset(self.unified))

    def _with_aliases(self, declared: Type) -> Type:
        props = tuple(replace(p, also=p.also | self.groups.members(p.number)) for p in declared.props)
        return replace(declared, props=props, also=declared.also | self.groups.members(declared.number))

    def _rows(self, declared: Type) -> tuple[Rows, set[tuple[str, str]]]:
        fills = {p.number: p.default for p in declared.props}
        fills |= {SRC: None, DST: None} if declared.is_edge else {}
        sides = [self._side(state, declared.number, fills) for state in (self.base, self.ours, self.theirs)]
        units: list[tuple[int, ...]] = [(p.number,) for p in declared.props]
        units += [(SRC, DST)] if declared.is_edge else []
        merged: Rows = {}
        conflicts: set[tuple[str, str]] = set()
        for row_id in sorted(set().union(*sides)):
            states = [side.get(row_id) for side in sides]
            row, kind = _entity(states[0], states[1], states[2], units)
            if kind is not None:
                conflicts.add((kind, row_id))
            elif row is not None:
                merged[row_id] = row
        return merged, conflicts

    def _side(self, state: State, number: int, fills: Mapping[int, Any]) -> Rows:
        """The rows of one side, with just the properties of the merged type."""
        rows: Rows = {}
        for row_id, row in state.rows.get(number, {}).items():
            values = {self.groups.of(p) if p > 0 else p: value for p, value in row.items()}
            rows[row_id] = {p: values.get(p, fill) for p, fill in fills.items()}
        return rows


def _entity(
    base: Row | None, ours: Row | None, theirs: Row | None, units: list[tuple[int, ...]]
) -> tuple[Row | None, str | None]:
    if ours == theirs or theirs == base:
        return ours, None
    if ours == base:
        return theirs, None
    if ours is None or theirs is None:
        return None, "delete_vs_update"
    merged: Row = {}
    for unit in units:
        mine, other = ({p: side[p] for p in unit} for side in (ours, theirs))
        before = None if base is None else {p: base[p] for p in unit}
        if mine == other or other == before:
            merged |= mine
        elif mine == before:
            merged |= other
        else:
            return None, "divergent_insert" if base is None else "divergent_update"
    return merged, None


def _orphans(types: Mapping[int, Type], rows: Mapping[int, Rows]) -> Iterable[tuple[str, str]]:
    for edge in types.values():
        for end, target in zip((SRC, DST), edge.ends or (), strict=False):
            yield from (
                ("orphan_edge", i) for i, row in rows[edge.number].items() if row[end] not in rows[target]
            )
