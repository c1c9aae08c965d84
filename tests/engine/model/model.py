"""What loads and mutations mean, in plain Python: dictionaries of rows, and constraints over whole images.

Room    tests. Written to be obviously right, not fast: a change makes a new image, and the image is judged
        as a whole. Only what the rules say about *how* a row came about (a load has no order, a source that
        is not touched is not judged) needs more than the image.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.engine.model.schemas import BAD, Kind, Schema

Row: TypeAlias = Mapping[str, Any]
Image: TypeAlias = dict[str, dict[str, Row]]  # by type name, then by id
ORDER = (
    "type",
    "required",
    "unknown_property",
    "enum",
    "range",
    "check",
    "key_conflict",
    "unique",
    "orphan_edge",
    "cardinality",
)
NEW = "new "  # how the ids of entities begin that will get an id of their own


class Refused(Exception):
    """The write breaks a rule; the code is that of the first violation reported."""

    def __init__(self, codes: Iterable[str]) -> None:
        self.code = min(codes, key=ORDER.index)
        super().__init__(self.code)


# -- what is written ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """A row as given: of a type, with an id or without; `wrong` is what is the matter with its values."""

    kind: Kind
    row: Row
    wrong: str | None = None


@dataclass(frozen=True)
class Load:
    """One load."""

    mode: str
    records: tuple[Record, ...]
    empty: tuple[str, ...] = ()


@dataclass(frozen=True)
class Insert:
    """One new entity."""

    kind: Kind
    row: Row


@dataclass(frozen=True)
class Test:
    """A comparison of a property with a value; with the operator `is null` the value is not looked at."""

    name: str
    operator: str
    value: Any = None

    def true(self, row: Row) -> bool:
        """Say whether it is true of a row; unknown is not true."""
        found = row[self.name]
        if self.operator == "is null":
            return found is None
        if found is None or self.value is None:
            return False
        compare: Callable[[Any, Any], bool] = {
            "=": lambda a, b: a == b,
            "!=": lambda a, b: a != b,
            "<": lambda a, b: a < b,
            "<=": lambda a, b: a <= b,
            ">": lambda a, b: a > b,
            ">=": lambda a, b: a >= b,
        }[self.operator]
        return compare(found, self.value)


@dataclass(frozen=True)
class Where:
    """One test, or two that are joined."""

    tests: tuple[Test, ...]
    both: bool = True

    def true(self, row: Row) -> bool:
        """Say whether it is true of a row."""
        found = [test.true(row) for test in self.tests]
        return all(found) if self.both else any(found)


@dataclass(frozen=True)
class Update:
    """New values for entities."""

    kind: Kind
    values: Row
    where: Where


@dataclass(frozen=True)
class Delete:
    """The end of entities."""

    kind: Kind
    where: Where


Statement: TypeAlias = Insert | Update | Delete


# -- what comes of it --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Done:
    """An accepted write: the image after it, and how many entities it touched."""

    image: Image
    nodes: int
    edges: int


@dataclass
class Model:
    """A graph."""

    schema: Schema
    image: Image = field(default_factory=dict)
    _made: int = 0

    def __post_init__(self) -> None:
        self.image = {kind.name: {} for kind in self.schema.kinds}

    def load(self, load: Load) -> Done:
        """Say what comes of a load."""
        for record in load.records:
            wrong = [record.wrong] if record.wrong else list(breaches(record.kind, record.row))
            if wrong:
                raise Refused(wrong)  # reported in the order of the input
        given = [(record.kind, self._id(record.kind, record.row), record.row) for record in load.records]
        after = {name: dict(rows) for name, rows in self.image.items()}
        if load.mode == "overwrite":
            for name in {kind.name for kind, _, _ in given} | set(load.empty):
                after[name] = {}
        broken = set(self._broken_ids(load.mode, given)) | set(_repeated(given))
        for kind, row_id, row in given:
            after[kind.name][row_id] = {**row, "id": row_id}
        broken |= set(self.broken(after))
        if broken:
            raise Refused(broken)
        edges = sum(kind.ends is not None for kind, _, _ in given)
        return Done(after, len(given) - edges, edges)

    def _broken_ids(self, mode: str, given: Sequence[tuple[Kind, str, Row]]) -> Iterable[str]:
        times = Counter((kind.name, row_id) for kind, row_id, _ in given)
        for kind, row_id, _ in given:
            if mode == "append" and row_id in self.image[kind.name]:
                yield "key_conflict"
            if times[kind.name, row_id] > 1:
                if kind.key:
                    yield "unique"
                elif mode != "merge":
                    yield "key_conflict"

    def mutate(self, statements: Sequence[Statement]) -> Done:
        """Say what comes of a mutation."""
        after = {name: dict(rows) for name, rows in self.image.items()}
        written: dict[tuple[str, str], Kind] = {}
        touched = Counter[bool]()  # by whether it is an edge
        gone: set[tuple[str, str]] = set()
        for statement in statements:
            kind, is_edge = statement.kind, statement.kind.ends is not None
            match statement:
                case Insert(_, row):
                    row_id = self._id(kind, row)
                    after[kind.name][row_id] = {**row, "id": row_id}
                    written[kind.name, row_id] = kind
                    touched[is_edge] += 1
                case Update(_, values, where):
                    for row_id in [i for i, row in after[kind.name].items() if where.true(row)]:
                        after[kind.name][row_id] = {**after[kind.name][row_id], **values}
                        written[kind.name, row_id] = kind
                        touched[is_edge] += 1
                case Delete(_, where):
                    gone |= self._deleted(kind, where)
        for name, row_id in gone:
            del after[name][row_id]
            touched[any(kind.name == name for kind in self.schema.edges)] += 1
        broken = {code for (name, i), kind in written.items() for code in breaches(kind, after[name][i])}
        if broken:
            raise Refused(broken)
        broken = set(self.broken(after))
        if broken:
            raise Refused(broken)
        return Done(after, touched[False], touched[True])

    def _deleted(self, kind: Kind, where: Where) -> set[tuple[str, str]]:
        """Return what goes: deletes act on what is committed, and take the edges of nodes along."""
        ids = {row_id for row_id, row in self.image[kind.name].items() if where.true(row)}
        gone = {(kind.name, row_id) for row_id in ids}
        if kind.ends is None:
            for edge in self.schema.edges:
                for row_id, row in self.image[edge.name].items():
                    ends = dict(zip(("src", "dst"), edge.ends or (), strict=True))
                    if any(row[end] in ids for end, target in ends.items() if target == kind.name):
                        gone.add((edge.name, row_id))
        return gone

    def broken(self, after: Image) -> Iterable[str]:
        """Yield the codes of what is wrong with an image that comes after the present one."""
        for kind in self.schema.kinds:
            rows = list(after[kind.name].values())
            for group in kind.uniques:
                if _twice(rows, group):
                    yield "unique"
            if kind.ends is None:
                continue
            for row in rows:
                if row["src"] not in after[kind.ends[0]] or row["dst"] not in after[kind.ends[1]]:
                    yield "orphan_edge"
            now = Counter(row["src"] for row in rows)
            emptied = {row["src"] for row in self.image[kind.name].values()} & after[kind.ends[0]].keys()
            for source in emptied | now.keys():
                if now[source] < kind.low or (kind.high is not None and now[source] > kind.high):
                    yield "cardinality"

    def _id(self, kind: Kind, row: Row) -> str:
        if kind.key:
            texts = [key_text(row[name]) for name in kind.key]
            return (
                texts[0] if len(texts) == 1 else json.dumps(texts, separators=(",", ":"), ensure_ascii=False)
            )
        if "id" in row:
            return str(row["id"])
        self._made += 1
        return f"{NEW}{self._made}"


def key_text(value: Any) -> str:
    """Return a value of a key as ids spell it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "0" if value == 0 else str(value)
    return str(value)


def breaches(kind: Kind, row: Row) -> Iterable[str]:
    """Yield the codes of what is wrong with the values of one row."""
    for prop in kind.props:
        value = row[prop.name]
        if value is None and not prop.nullable:
            yield "required"
        code, bad = BAD.get(prop.kind, ("", None))
        if value is not None and value == bad and (code == "enum" or kind.ends is None):
            yield code


def _repeated(given: Sequence[tuple[Kind, str, Row]]) -> Iterable[str]:
    """Yield `unique` when two records of a load hold one tuple, even under one id: a load has no order."""
    for kind in {kind.name: kind for kind, _, _ in given}.values():
        rows = [row for other, _, row in given if other.name == kind.name]
        if any(_twice(rows, group) for group in kind.uniques):
            yield "unique"


def _twice(rows: Sequence[Row], group: tuple[str, ...]) -> bool:
    tuples = [tuple(row[name] for name in group) for row in rows]
    complete = [one for one in tuples if None not in one]
    return len(set(complete)) < len(complete)
