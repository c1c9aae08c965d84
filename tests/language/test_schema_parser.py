"""The lexical rules, the disambiguation rules and the shape of the tree."""

from __future__ import annotations

import pytest

from omnigraph.language.diagnostics import SchemaError
from omnigraph.language.literals import LiteralKind, LiteralSyntax
from omnigraph.language.schema import SchemaSyntax, load, parse
from omnigraph.language.schema.tree import ColumnsConstraintSyntax, RangeConstraintSyntax
from omnigraph.language.syntax import EnumType

LIBRARY = """
// Everything in one place.
interface Titled { title: String @index }

node Book @description("One edition") implements Titled {
    isbn: String @key
    shelf: enum(fiction, non-fiction,
                2024) @index
    pages: U32?
    topics: [String]?
    blurb: String?
    blurb_vec: Vector(768)? @embed("blurb", model="acme/embed-1") @index
    cover: Blob?
    added: DateTime @default(now)
    @range(pages, 1..20000)
    @check(isbn, "^[0-9X-]{10,17}$")
}
node Reader { club: String  number: U32  since: Date?  @key(club, number) }
edge Borrowed: Reader -> Book @card(0..5) { due: Date  renewals: I32?  @unique(src, dst) }
edge SequelOf: Book -> Book   // one after the other
edge InReplyTo: Reader -> Reader @card(1..1) { @unique(src) }
"""


# What schemas in use are made of: keyless chunks, slugs, nullable enums and unique links, lists of dates.
NEWSROOM = """
node Article {
    slug: String @key
    title: String @index
    stage: enum(pre-draft, draft,
                in-review, published)? @index
    link: String? @unique
    tags: [String]?
    revised: [Date]?
    score: F32?
    price: F64?
    free: Bool?
    words: I32?
    type: String
    when: DateTime
    source: String?
    photo: Blob?
}

// No key: every chunk is its own.
node Chunk { text: String  position: I32  vec: Vector(3072) @embed("text") @index }

edge ChunkOf: Chunk -> Article @card(1..1) { @unique(src) }
edge RespondsTo: Article -> Article @card(0..1)   // the one it answers
edge Cites: Article -> Article { note: String?  path: String? }
"""


def tree(text: str) -> SchemaSyntax:
    """Parse a text that has no mistakes."""
    return load(text).schema


def test_the_whole_language_in_one_schema() -> None:
    schema = tree(LIBRARY)

    assert [d.name.text for d in schema.declarations] == [
        "Titled",
        "Book",
        "Reader",
        "Borrowed",
        "SequelOf",
        "InReplyTo",
    ]
    book = schema.nodes[0]
    assert [p.name.text for p in book.properties][:3] == ["isbn", "shelf", "pages"]
    assert book.properties[1].type.shape == EnumType(("fiction", "non-fiction", "2024"))
    assert [str(p.type) for p in book.properties[:4]] == [
        "String",
        "enum(2024, fiction, non-fiction)",
        "U32?",
        "[String]?",
    ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(NEWSROOM, id="newsroom"),
        pytest.param("  // only a comment", id="comment-only"),
        pytest.param("node Marker {}", id="no-properties"),
        pytest.param(
            "node Shared {} edge Shared: Shared -> Shared interface Shared {}", id="three-namespaces"
        ),
        pytest.param("edge E: A -> A node A {}", id="any-order"),
        pytest.param("node A{x:String@index y:I32?}edge E:A->A@card(0..1){z:Bool}", id="no-spaces"),
        pytest.param("node\tA\r\n{\r\n}\r\n", id="tabs-and-crlf"),
        pytest.param(
            "node A { /* a */ x /* b */ : /* c */ String /* d */ ? /* e */ @index }", id="comments-between"
        ),
        pytest.param("node A { v: Vector( /* n */ 3 ) }", id="comment-in-arguments"),
        pytest.param("node A { x: String // { not a brace\n }", id="brace-in-comment"),
        pytest.param('node A @description("node B { // /* ") {}', id="declaration-in-string"),
        pytest.param('node A @description("two\nlines") {}', id="newline-in-string"),
        pytest.param("\N{ZERO WIDTH NO-BREAK SPACE}node A {}", id="byte-order-mark"),
        pytest.param(
            "node A { type: String when: String date: Date limit: I32 match: Bool }", id="query-words"
        ),
        pytest.param(
            "node A { node: String edge: String interface: String enum: enum(enum) }", id="schema-words"
        ),
        pytest.param(
            "node A { implements: String @implements @node @edge(node) }", id="words-as-annotations"
        ),
        pytest.param("node A { true: String falsely: I32 @unique(true, falsely) }", id="boolean-like-names"),
        pytest.param("node A { createdAt: DateTime source_ref: String _x: String _row_id: I32 }", id="names"),
        pytest.param(
            "node A { src: String dst: String from: String to: String }", id="endpoints-are-free-on-nodes"
        ),
        pytest.param("node A { k: enum(data-eng, phase-1, 2024, i-owe, -) }", id="variants"),
        pytest.param("node A { x: String @ key y: String @ index }", id="space-after-at"),
        pytest.param("node A @tier(2) @tier(3) {}", id="custom-annotations-repeat"),
        pytest.param("interface I { x: I32 } node A implements I, I {}", id="repeated-interface"),
        pytest.param(
            "interface I { x: I32 @key } node A implements I { x: I32 y: I32 @key }", id="redeclared-key"
        ),
        pytest.param("interface I { x: [I32] @key }", id="unimplemented-interface-is-not-checked"),
        pytest.param("node A { x: [String] y: Vector(2) @index(x) @index(x, y) }", id="lists-in-body-index"),
        pytest.param("node A {} edge E: A -> A { x: I32 @unique(src, dst, x) @index(dst) }", id="endpoints"),
        pytest.param("node A { x: I32 @range(x, -5..) @range(x, ..5.5) @range(x, -1.5..-1.5) }", id="bounds"),
        pytest.param('node A { x: enum(a, b) @check(x, "^a") v: Vector(2) @embed(x) }', id="enum-is-text"),
        pytest.param("node A { x: String @range @check }", id="bare-range-is-metadata"),
        pytest.param(
            'node A { x: I32 @default(-1) y: F32 @default(3) z: Date @default("2026-01-31") }', id="defaults"
        ),
        pytest.param("node A {} edge E: A -> A @card(0..4294967295)", id="largest-cardinality"),
    ],
)
def test_accepted(text: str) -> None:
    load(text)


def test_inline_annotations_belong_to_the_property_before_them() -> None:
    [node] = tree("node A { x: String @unique y: String @index @tier(2) }").nodes

    assert [[a.name.text for a in p.annotations] for p in node.properties] == [["unique"], ["index", "tier"]]
    assert node.constraints == ()


def test_with_parentheses_a_constraint_stands_alone() -> None:
    [node] = tree("node A { email: String @unique(email) }").nodes

    assert node.properties[0].annotations == ()
    [constraint] = node.constraints
    assert isinstance(constraint, ColumnsConstraintSyntax)
    assert [c.text for c in constraint.columns] == ["email"]


def test_the_upper_bound_alone_is_an_upper_bound() -> None:
    [node] = tree("node A { x: I32 @range(x, ..5) }").nodes

    [constraint] = node.constraints
    assert isinstance(constraint, RangeConstraintSyntax)
    assert (constraint.low, constraint.high) == (None, "5")


@pytest.mark.parametrize(("written", "meant"), [("0..1", (0, 1)), ("1..", (1, None)), ("007..08", (7, 8))])
def test_cardinality(written: str, meant: tuple[int, int | None]) -> None:
    [edge] = tree(f"node A {{}} edge E: A -> A @card({written})").edges

    assert edge.card is not None
    assert (edge.card.low, edge.card.high) == meant


@pytest.mark.parametrize(
    ("written", "kind", "text"),
    [
        ("2", LiteralKind.INTEGER, "2"),
        ("2.50", LiteralKind.FLOAT, "2.50"),
        ("true", LiteralKind.BOOLEAN, "true"),
        (r'"a\"\\\n\r\té"', LiteralKind.STRING, 'a"\\\n\r\té'),
    ],
)
def test_literals_keep_their_text(written: str, kind: LiteralKind, text: str) -> None:
    [node] = tree(f"node A @x({written}, k={written}) {{}}").nodes

    [annotation] = node.annotations
    argument = annotation.argument
    assert isinstance(argument, LiteralSyntax)
    assert (argument.kind, argument.text) == (kind, text)
    assert annotation.keywords[0].value == argument


def test_spans_take_no_part_in_equality() -> None:
    assert tree("node A { x: String }") == tree("\n\nnode A{x:String}")


def test_every_part_knows_its_place() -> None:
    [node] = tree("\n  node Person { name: String? @index }").nodes
    [declared] = node.properties

    assert (node.span.line, node.span.column) == (2, 3)
    assert (declared.name.span.column, declared.type.span.column) == (17, 23)
    assert declared.annotations[0].span.column == 31
    assert declared.span.end - declared.span.start == len("name: String? @index")


@pytest.mark.parametrize("content", [b"node A {}\n\xff", b"\xc3(", b"node \xed\xa0\x80"])
def test_bytes_that_are_not_utf8_are_a_finding(content: bytes) -> None:
    [finding] = parse(content).diagnostics

    assert finding.code == "PG103"
    assert finding.span is not None


def test_a_lone_surrogate_is_a_finding() -> None:
    with pytest.raises(SchemaError, match="PG103"):
        load('node A @description("\ud800") {}')


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("node A { x: " + "[" * 20_000 + "]" * 20_000 + " }", id="deep-list"),
        pytest.param(
            "node A { x: " + "[" * 20_000 + "String" + "]" * 20_000 + " }", id="deep-list-of-strings"
        ),
        pytest.param("node A @x(" * 5_000, id="open-parentheses"),
        pytest.param("{" * 50_000, id="open-braces"),
        pytest.param('"' * 9_999, id="quotes"),
        pytest.param('node A @description("' + '\\"' * 500_000, id="open-string"),
        pytest.param("node A {} " + "/* " * 500_000, id="open-comments"),
        pytest.param("node A { x: Vector(" + "9" * 50_000 + ") }", id="huge-number"),
        pytest.param("node A { x: I32 @range(x, 1.." + "9" * 50_000 + ") }", id="huge-bound"),
        pytest.param("node " + "A" * 100_000 + " implements B {}", id="huge-name"),
    ],
)
def test_extreme_texts_are_findings_not_crashes(text: str) -> None:
    with pytest.raises(SchemaError) as refused:
        load(text)

    assert str(refused.value)


def test_a_large_schema_is_parsed_in_reasonable_time() -> None:
    """500 types; a quadratic step anywhere would show in the suite's timeout."""
    text = "".join(f"node N{i} {{ {' '.join(f'p{j}: String?' for j in range(10))} }}\n" for i in range(500))

    assert len(load(text).nodes) == 500
