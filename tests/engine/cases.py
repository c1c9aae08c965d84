"""Every kind of migration step as a case: a schema with rows, the schema to apply, and what must come out.

Room    tests. One list, run through every situation: rows in the table, a branch, a concurrent writer.
Rule    `rewrites` says that the step computes new values from the rows it finds (or rests on there being
        none), so that a row that arrives meanwhile must stop it; every other step lets the row in.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from tests.support.contents import Rows

ANN, BOB, LATE = "ann", "bob", "late"
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One change of a schema."""

    name: str
    before: str
    after: str
    kinds: tuple[str, ...]
    type_name: str  # the type that is changed, under its name before
    rows: Rows
    late: Row  # a row of that type which a concurrent writer adds, good under both schemas
    found: list[Row] | None  # the type's rows after the change, by id; None when it is gone
    new_name: str = ""
    late_found: Row | None = None  # the late row after the change; the late row itself if not given
    rewrites: bool = False

    @property
    def shown_name(self) -> str:
        """The name of the type afterwards."""
        return self.new_name or self.type_name

    def __str__(self) -> str:
        return self.name


def person(body: str = "", extra: str = "") -> str:
    """Return a schema with one keyed node type."""
    return f"node Person {{ slug: String @key {body} }}\n{extra}"


def knows(card: str = "", body: str = "") -> str:
    """Return a schema with persons and an edge type."""
    return person(extra=f"edge Knows: Person -> Person {card} {{ since: I32? {body} }}")


def on_person(
    name: str,
    before: str,
    after: str,
    kinds: str,
    values: tuple[Any, Any],
    expected: list[Row],
    late: Row,
    *,
    prop: str = "p",
    **more: Any,
) -> Case:
    """Return a case about one property of Person, on two rows."""
    rows = [{"slug": slug, prop: value} for slug, value in zip((ANN, BOB), values, strict=True)]
    found = [{"id": slug, "slug": slug, **row} for slug, row in zip((ANN, BOB), expected, strict=True)]
    late_row = {"id": LATE, "slug": LATE, **late}
    late_found = {"id": LATE, "slug": LATE, **more.pop("late_found", late)}
    return Case(
        name,
        person(before),
        person(after),
        tuple(kinds.split()),
        "Person",
        {"Person": rows},
        late_row,
        found,
        late_found=late_found,
        **more,
    )


def kept(name: str, before: str, after: str, kinds: str, values: tuple[Any, Any], late: Any) -> Case:
    """Return a case that changes no value."""
    return on_person(name, before, after, kinds, values, [{"p": v} for v in values], {"p": late})


PEOPLE = [{"slug": ANN}, {"slug": BOB}]
EDGES = [
    {"id": "e1", "src": ANN, "dst": BOB, "since": 1},
    {"id": "e2", "src": BOB, "dst": ANN, "since": 2},
]
LATE_EDGE = {"id": "late", "src": "carl", "dst": ANN, "since": 3}


def on_knows(name: str, before: str, after: str, kinds: str, **more: Any) -> Case:
    """Return a case about an edge type with two edges."""
    rows: Rows = {"Person": PEOPLE, "Knows": EDGES}
    return Case(name, before, after, tuple(kinds.split()), "Knows", rows, LATE_EDGE, EDGES, **more)


# -- types -----------------------------------------------------------------------------------------

PLAIN = person("p: I32?")
BOTH = ({"slug": ANN, "p": 1}, {"slug": BOB, "p": None})
SHOWN = [{"id": row["slug"], **row} for row in BOTH]
LATE_PERSON = {"id": LATE, "slug": LATE, "p": 9}


def on_type(name: str, after: str, kinds: str, *, found: list[Row] | None = SHOWN, **more: Any) -> Case:
    """Return a case about the type Person as a whole."""
    given: Rows = {"Person": BOTH}
    return Case(name, PLAIN, after, tuple(kinds.split()), "Person", given, LATE_PERSON, found, **more)


NEW_EDGE = "edge Lives: Person -> City @card(0..1) { since: Date? @unique(src, dst) }"
TYPES = [
    on_type("add-node-type", person("p: I32?", "node City { name: String @key }"), "add_type"),
    on_type(
        "add-edge-type",
        person("p: I32?", f"node City {{ name: String @key }}\n{NEW_EDGE}"),
        "add_type add_type",
    ),
    on_type("add-interface", person("p: I32?", "interface Named { name: String }"), "add_type"),
    on_type(
        "rename-node-type",
        'node Human @rename_from("Person") { slug: String @key p: I32? }',
        "rename_type",
        new_name="Human",
    ),
    on_type("drop-node-type", "node City {}", "add_type drop_type", found=None, rewrites=True),
    on_type(
        "type-metadata",
        'node Person @description("someone") { slug: String @key p: I32? }',
        "update_type_metadata",
    ),
    on_knows(
        "rename-edge-type",
        knows(),
        person(extra='edge Meets: Person -> Person @rename_from("Knows") { since: I32? }'),
        "rename_type",
        new_name="Meets",
    ),
    Case(
        "drop-edge-type",
        knows(),
        person(),
        ("drop_type",),
        "Knows",
        {"Person": PEOPLE, "Knows": EDGES},
        LATE_EDGE,
        None,
        rewrites=True,
    ),
]

# -- properties ------------------------------------------------------------------------------------

DAYS = (date(1969, 12, 31), date(2024, 2, 29))
MIDNIGHTS = tuple(datetime(day.year, day.month, day.day, tzinfo=UTC) for day in DAYS)
WIDE = "p: I64?"
EMBED = 'a: String? b: String? p: Vector(2)? @embed("{}", model="{}")'
PROPERTIES = [
    on_person(
        "add-nullable", "p: I32?", "p: I32? q: String?", "add_property", (1, None),
        [{"p": 1, "q": None}, {"p": None, "q": None}], {"p": 9}, late_found={"p": 9, "q": None},
    ),
    on_person(
        "add-filled", "p: I32?", 'p: I32? q: String @default("new")', "add_property", (1, None),
        [{"p": 1, "q": "new"}, {"p": None, "q": "new"}], {"p": 9}, rewrites=True,
    ),
    on_person(
        "add-nullable-filled", "p: I32?", "p: I32? q: U64? @default(18446744073709551615)", "add_property",
        (1, None), [{"p": 1, "q": 2**64 - 1}, {"p": None, "q": 2**64 - 1}], {"p": 9}, rewrites=True,
    ),
    on_person(
        "rename-property", "p: I32?", 'q: I32? @rename_from("p")', "rename_property", (1, None),
        [{"q": 1}, {"q": None}], {"p": 9}, late_found={"q": 9},
    ),
    on_person(
        "drop-property", "p: I32? q: String?", "q: String?", "drop_property", (1, None),
        [{"q": None}, {"q": None}], {"p": 9, "q": "x"}, late_found={"q": "x"},
    ),
    on_person(
        "drop-indexed-property", "p: I32? @index q: String?", "q: String?", "drop_property", (1, None),
        [{"q": None}, {"q": None}], {"p": 9, "q": "x"}, late_found={"q": "x"},
    ),
    kept("extend-enum", "p: enum(a, b)?", "p: enum(a, b, c)?", "extend_enum", ("a", None), "b"),
    on_person(
        "i32-to-i64", "p: I32?", WIDE, "alter_property", (-(2**31), 2**31 - 1),
        [{"p": -(2**31)}, {"p": 2**31 - 1}], {"p": 9}, rewrites=True,
    ),
    on_person(
        "u32-to-u64", "p: U32?", "p: U64?", "alter_property", (2**32 - 1, None),
        [{"p": 2**32 - 1}, {"p": None}], {"p": 9}, rewrites=True,
    ),
    on_person(
        "f32-to-f64", "p: F32?", "p: F64?", "alter_property", (0.1, -0.5),
        [{"p": 0.10000000149011612}, {"p": -0.5}], {"p": 9}, rewrites=True,
    ),
    on_person(
        "date-to-datetime", "p: Date?", "p: DateTime?", "alter_property", DAYS,
        [{"p": MIDNIGHTS[0]}, {"p": MIDNIGHTS[1]}], {"p": MIDNIGHTS[0]}, rewrites=True,
    ),
    on_person(
        "widened-and-filled", "p: I32?", "p: I64 @default(7)", "alter_property update_property_metadata",
        (2, None), [{"p": 2}, {"p": 7}], {"p": 9}, rewrites=True,
    ),
    kept("required-to-nullable", "p: I32", "p: I32?", "alter_property", (1, 2), 9),
    kept("nullable-to-required", "p: I32?", "p: I32", "alter_property", (1, 2), 9),
    on_person(
        "nullable-to-required-filled", "p: I32? @default(7)", "p: I32 @default(7)", "alter_property",
        (1, None), [{"p": 1}, {"p": 7}], {"p": 9}, rewrites=True,
    ),
    on_person(
        "embed-another-source", EMBED.format("a", "m"), EMBED.format("b", "m"), "change_embed",
        ([0.5, 1.0], [2.0, 3.0]), [{"a": None, "b": None, "p": None}] * 2,
        {"a": "t", "b": None, "p": [0.5, 0.5]}, late_found={"a": "t", "b": None, "p": None},
    ),
    on_person(
        "embed-another-model", EMBED.format("a", "m"), EMBED.format("a", "n"), "change_embed",
        ([0.5, 1.0], None), [{"a": None, "b": None, "p": None}] * 2,
        {"a": "t", "b": None, "p": [0.5, 0.5]}, late_found={"a": "t", "b": None, "p": None},
    ),
    kept("property-metadata", "p: I32?", 'p: I32? @description("n")', "update_property_metadata", (1, 2), 9),
    kept("default-changed", "p: I32?", "p: I32? @default(3)", "update_property_metadata", (1, None), 9),
]  # fmt: skip

# -- constraints -----------------------------------------------------------------------------------

TWO = 'p: I32? q: String? @check(slug, "^[a-z]+$")'
CONSTRAINTS = [
    kept("add-unique", "p: I32?", "p: I32? @unique", "add_constraint", (1, 2), 9),
    kept("drop-unique", "p: I32? @unique", "p: I32?", "drop_constraint", (1, 2), 9),
    kept("add-composite-unique", "p: I32?", "p: I32? @unique(p, slug)", "add_constraint", (1, 1), 1),
    kept("drop-composite-unique", "p: I32? @unique(p, slug)", "p: I32?", "drop_constraint", (1, 1), 1),
    kept("add-range", "p: I32?", "p: I32? @range(p, 0..9)", "add_constraint", (0, None), 9),
    kept("tighten-range", "p: I32? @range(p, 0..)", "p: I32? @range(p, 0..9)", "add_constraint", (0, 9), 3),
    kept("loosen-range", "p: I32? @range(p, 0..9)", "p: I32? @range(p, 0..)", "drop_constraint", (0, 9), 3),
    kept("drop-range", "p: I32? @range(p, 0..9)", "p: I32?", "drop_constraint", (0, 9), 3),
    kept("add-check", "p: String?", 'p: String? @check(p, "^a")', "add_constraint", ("ab", None), "ac"),
    kept("drop-check", 'p: String? @check(p, "^a")', "p: String?", "drop_constraint", ("ab", None), "ac"),
    kept("narrow-enum", "p: enum(a, b, c)?", "p: enum(a, b)?", "add_constraint", ("a", None), "b"),
    kept("add-index", "p: I32?", "p: I32? @index", "add_constraint", (1, 2), 9),
    kept("add-composite-index", "p: I32?", "p: I32? @index(p, slug)", "add_constraint", (1, 2), 9),
    kept("drop-index", "p: I32? @index", "p: I32?", "drop_constraint", (1, 2), 9),
    on_knows("add-card", knows(), knows("@card(0..1)"), "add_constraint"),
    on_knows("tighten-card", knows("@card(0..5)"), knows("@card(0..1)"), "add_constraint"),
    on_knows("drop-card", knows("@card(0..1)"), knows(), "drop_constraint"),
    on_knows("add-unique-endpoints", knows(), knows(body="@unique(src, dst)"), "add_constraint"),
]

CASES = [*TYPES, *PROPERTIES, *CONSTRAINTS]
