"""The catalog as a value: lookups, stored schemas, index intents, bytes, digest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

import omnigraph
from omnigraph.base.errors import IntegrityError, NotFound
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.identity import IdMinter
from omnigraph.catalog.model import Cardinality, Check, Embed, IndexKind, Range, Unique
from omnigraph.catalog.resolve import resolve_text
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.language.literals import NOW
from omnigraph.language.schema import load, print_schema
from tests.language.strategies import plain_schemas, schemas
from tests.language.test_schema_parser import LIBRARY
from tests.support.catalogs import catalog

relaxed = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])


def test_lookups() -> None:
    made = catalog(LIBRARY)
    book, reader, borrowed = made.node("Book"), made.node("Reader"), made.edge("Borrowed")

    assert made.edge("borrowed") is borrowed
    assert made.find_node("Nobody") is None
    assert made.by_id.get(book.id) is book
    assert made.table(borrowed.table_id) is borrowed
    assert [t.name for t in made.tables] == ["Book", "Reader", "Borrowed", "InReplyTo", "SequelOf"]
    assert [e.name for e in made.edges_from(reader.id)] == ["Borrowed", "InReplyTo"]
    assert [e.name for e in made.edges_to(book.id)] == ["Borrowed", "SequelOf"]
    with pytest.raises(NotFound):
        made.node("Nobody")
    with pytest.raises(NotFound):
        made.table(made.interface("Titled").id)


def test_stored_schemas() -> None:
    made = catalog(LIBRARY)

    assert made.node("Book").stored_schema.equals(
        pa.schema(
            [
                pa.field("id", pa.string(), nullable=False),
                pa.field("added", pa.date64()),
                pa.field("blurb", pa.string()),
                pa.field("blurb_vec", pa.list_(pa.field("item", pa.float32()), 768)),
                pa.field("cover", pa.large_binary()),
                pa.field("isbn", pa.string()),
                pa.field("pages", pa.uint32()),
                pa.field("shelf", pa.string()),
                pa.field("title", pa.string()),
                pa.field("topics", pa.list_(pa.field("item", pa.string()))),
            ]
        )
    )
    borrowed = made.edge("Borrowed").stored_schema
    assert borrowed.names == ["id", "src", "dst", "due", "renewals"]
    assert [borrowed.field(name).nullable for name in borrowed.names] == [False, False, False, True, True]


def test_constraints_and_defaults_by_identity() -> None:
    made = catalog(LIBRARY)
    book, borrowed = made.node("Book"), made.edge("Borrowed")
    ids = {p.name: p.id for p in book.properties}

    assert book.key == (ids["isbn"],)
    assert Range(ids["pages"], 1, 20000) in book.constraints
    assert Check(ids["isbn"], "^[0-9X-]{10,17}$") in book.constraints
    assert book.property_by_id(ids["added"]).default == NOW
    assert book.property_by_id(ids["blurb_vec"]).embed == Embed(ids["blurb"], "acme/embed-1")
    assert borrowed.constraints == (Unique(("dst", "src")),)
    assert borrowed.card == Cardinality(0, 5)


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("String @index", IndexKind.FULL_TEXT),
        ("String @key", IndexKind.FULL_TEXT),
        ("enum(a, b) @index", IndexKind.ORDERED),
        ("I32 @key", IndexKind.ORDERED),
        ("Bool @index", IndexKind.ORDERED),
        ("F64? @index", IndexKind.ORDERED),
        ("DateTime @index", IndexKind.ORDERED),
        ("Vector(2) @index", IndexKind.VECTOR),
        ("[String] @index(p)", None),
        ("String @unique", None),
        ("String q: I32 @index(p, q)", None),
        ("String q: I32 @key(p, q)", None),
    ],
)
def test_index_intents(declared: str, kind: IndexKind | None) -> None:
    intents = catalog(f"node N {{ p: {declared} }}").index_intents

    assert [(i.column, i.kind) for i in intents] == ([] if kind is None else [("p", kind)])


def test_an_index_that_is_declared_twice_is_one_intent() -> None:
    assert len(catalog("node N { p: I32 @key @index @index(p) }").index_intents) == 1


def test_endpoint_indexes_need_no_intent() -> None:
    assert catalog("node N {} edge E: N -> N { @index(src) }").index_intents == ()


# -- interfaces --------------------------------------------------------------------------------------


def test_inherited_properties_bring_their_constraints() -> None:
    node = catalog("interface I { a: String @key b: I32 @unique } node N implements I { c: I32 }").node("N")

    assert [p.name for p in node.properties] == ["a", "b", "c"]
    assert [node.name_of(p) for p in node.key] == ["a"]
    assert len(node.constraints) == 1


def test_a_redeclared_property_keeps_only_its_own_annotations() -> None:
    node = catalog("interface I { slug: String @key } node N implements I { slug: String @index }").node("N")

    assert node.key == ()
    assert [i.column for i in node.index_intents] == ["slug"]


def test_embed_source_may_come_from_another_interface() -> None:
    made = catalog(
        "interface T { text: String } interface V { vec: Vector(2) @embed(text) } node N implements V, T {}"
    )

    node = made.node("N")
    vector, text = node.find("vec"), node.find("text")
    assert vector is not None
    assert text is not None
    assert vector.embed == Embed(text.id)


# -- types -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "shown", "arrow"),
    [
        ("String", "String", pa.string()),
        ("Bool", "Bool", pa.bool_()),
        ("I32?", "I32?", pa.int32()),
        ("I64", "I64", pa.int64()),
        ("U32", "U32", pa.uint32()),
        ("U64", "U64", pa.uint64()),
        ("F32", "F32", pa.float32()),
        ("F64", "F64", pa.float64()),
        ("Date", "Date", pa.date32()),
        ("DateTime", "DateTime", pa.date64()),
        ("Blob?", "Blob?", pa.large_binary()),
        ("[String]", "[String]", pa.list_(pa.field("item", pa.string()))),
        ("Vector(3)", "Vector(3)", pa.list_(pa.field("item", pa.float32()), 3)),
        ("enum(b, a)?", "enum(a, b)?", pa.string()),
    ],
)
def test_types_are_shown_and_stored(written: str, shown: str, arrow: pa.DataType) -> None:
    [declared] = catalog(f"node N {{ p: {written} }}").node("N").properties

    assert str(declared.type) == shown
    assert declared.type.arrow == arrow
    assert PropertyType.from_json(declared.type.to_json()) == declared.type


def test_type_json_has_the_public_shape() -> None:
    assert PropertyType(Scalar.I32, nullable=True).to_json() == {
        "scalar": "I32",
        "nullable": True,
        "list": False,
        "enum_values": None,
    }
    assert PropertyType(Scalar.VECTOR, dimension=3).to_json()["scalar"] == {"Vector": 3}


# -- bytes and digest --------------------------------------------------------------------------------


@relaxed
@given(schemas())
def test_bytes_round_trip(text: str) -> None:
    made = catalog(text)

    again = Catalog.from_json(made.to_json())

    assert again == made
    assert again.to_json() == made.to_json()
    assert again.source == text
    assert again.declaration_digest == made.declaration_digest


@relaxed
@given(plain_schemas())
def test_digest_depends_on_nothing_but_the_meaning(text: str) -> None:
    """Not on identities, on layout, or on the order of declarations and properties."""
    schema = load(text).schema
    turned = type(schema)(tuple(reversed(schema.declarations)), schema.source)

    assert catalog(print_schema(turned)).declaration_digest == catalog(text).declaration_digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("node N { a: I32 b: I32 }", "node N { b: I32 a: I32 }"),
        ("node N { a: enum(x, y) }", "node N { a: enum(y, x) }"),
        ("node N { a: I32 b: I32 @unique(a, b) }", "node N { a: I32 b: I32 @unique(b, a) }"),
        ("node N { a: I32 @unique }", "node N { a: I32 @unique(a) }"),
        ("node N @x(1) @y {}", "node N @y @x(1) @y {}"),
        (
            "interface I {} interface J {} node N implements I, J {}",
            "interface J {} interface I {} node N implements J, I {}",
        ),
        ("node N { a: I32 }", 'node N @rename_from("M") { a: I32 @rename_from("b") }'),
        ("node A {} edge E: A -> A", "node A {} edge E: A -> A @card(0..) {}"),
    ],
)
def test_equal_digests(one: str, other: str) -> None:
    assert catalog(one).declaration_digest == catalog(other).declaration_digest
    assert catalog(one).declaration_digest.startswith("sha256:")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("node N {}", "node M {}"),
        ("node N { a: I32 }", "node N { a: I32? }"),
        ("node N { a: I32 @default(1) }", "node N { a: I32 @default(2) }"),
        ("node A {} node B {} edge E: A -> B", "node A {} node B {} edge E: B -> A"),
        ("node N { s: String v: Vector(2) @embed(s) }", "node N { s: String v: Vector(2) }"),
    ],
)
def test_different_digests(one: str, other: str) -> None:
    assert catalog(one).declaration_digest != catalog(other).declaration_digest


def test_one_text_accepted_twice_has_two_identities() -> None:
    """Nobody may take the digest of a text for the identity of a schema: it is for texts, and says so."""
    first, second = (resolve_text("node N { a: I32 }", None, IdMinter(name)).catalog for name in "AB")

    assert first.declaration_digest == second.declaration_digest
    assert first.identity != second.identity
    assert replace(first, source="// other words").identity == first.identity
    root = Path(omnigraph.__file__).parent
    users = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "declaration_digest" in path.read_text(encoding="utf-8")
    }
    exports = {"engine/export/export.py", "engine/export/files.py", "engine/load/sources/json.py"}
    assert users == {
        "catalog/catalog.py",
        "surfaces/cli/schema.py",
        "surfaces/server/routes/schema.py",
        *exports,
    }


def test_ids_that_were_unified_are_kept_and_known() -> None:
    plain = resolve_text("interface I {} node N implements I { a: I32 }", None, IdMinter("A")).catalog
    (node,), (interface,) = plain.nodes, plain.interfaces
    (member,) = node.properties
    unified = replace(
        plain,
        interfaces=(replace(interface, aliases=("X",)),),
        nodes=(replace(node, aliases=("Y",), properties=(replace(member, aliases=("Z",)),)),),
    )

    assert b"aliases" not in plain.to_json()
    assert Catalog.from_json(unified.to_json()) == unified
    text = 'interface I {} node M @rename_from("N") implements I { a: I32  b: I32 }'
    again = resolve_text(text, unified, IdMinter("B"))
    assert (again.catalog.interfaces[0].aliases, again.catalog.nodes[0].aliases) == (("X",), ("Y",))
    other = replace(node, id="Y", properties=(replace(member, id="Z"),))
    found = again.catalog.same_table(other)
    assert found is not None
    assert found.name == "M"
    assert found.same_property(other.properties[0]) == found.find("a")


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"format": 99}', b'{"format":1,"interfaces":[{}]}'])
def test_damaged_bytes_are_an_integrity_error(content: bytes) -> None:
    with pytest.raises(IntegrityError):
        Catalog.from_json(content)
