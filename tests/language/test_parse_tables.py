"""The shipped parse tables belong to the grammars, and are run as Lark runs a grammar."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from omnigraph.language.lalr import END, Child, Parser, ParseTree, SyntaxMismatch
from omnigraph.language.query import grammar as query_grammar
from omnigraph.language.schema import parser as schema_grammar
from scripts.parse_tables import files
from tests.language import rejected as wrong_schemas
from tests.language.query import rejected as wrong_queries
from tests.language.query.texts import LIBRARY

SCHEMA = """
interface Named { name: String @unique  tags: [String]? }
node Person @description("a \\"person\\"") implements Named, Aged {
    name: String @key  size: F32 @default(-1.5)  kind: enum(staff, guest-2)?
    v: Vector(3) @embed("name", model="m")
    @index(name, kind)  @range(size, 0..10) @range(size, ..3.5) // a comment
}
edge Knows: Person -> Person @card(0..1) { since: Date? }
"""
DAMAGE: list[str] = ["", *'{}(),@<"é', "$x", "not", "and", "count", "1.5", "..", "node", "/*"]


def test_the_shipped_tables_are_those_of_the_grammars() -> None:
    for path, text in files().items():
        assert path.read_text("utf-8") == text, "run: python scripts/parse_tables.py"


def query_texts() -> Iterator[str]:
    yield from (f"query {part}" for part in LIBRARY.split("query ")[1:])
    yield from (case.source for case in wrong_queries.REJECTED)


def schema_texts() -> Iterator[str]:
    for text in (SCHEMA, *(case.text.replace("§", "") for case in wrong_schemas.GRAMMAR)):
        yield from text.strip().split("\n")
        yield from (f"{part}}}" for part in text.split("}"))


def damaged(text: str, dice: random.Random) -> str:
    start = dice.randrange(len(text) + 1)
    return text[:start] + dice.choice(DAMAGE) + text[start + dice.randrange(4) :]


@pytest.mark.parametrize(
    ("grammar", "start", "parser", "texts"),
    [
        (query_grammar.GRAMMAR, "query", query_grammar.parser(), list(query_texts())),
        (schema_grammar.GRAMMAR, "declaration", schema_grammar.parser(), list(schema_texts())),
    ],
    ids=["query", "schema"],
)
def test_texts_are_read_and_refused_as_by_lark(
    grammar: str, start: str, parser: Parser, texts: list[str]
) -> None:
    lark = Lark(grammar, start=start, parser="lalr", propagate_positions=True, maybe_placeholders=False)
    dice = random.Random(15)
    for text in [*texts, *(damaged(text, dice) for text in texts for _ in range(4))]:
        assert_same_outcome(outcome(parser, text), outcome_of_lark(lark, text), text)


def assert_same_outcome(ours: Any, larks: Any, text: str) -> None:
    if isinstance(ours[0], int) and ours[1] is None:
        # Where no token can be read, Lark lists all that its state knows, also what only goes on elsewhere.
        assert ours[:2] == larks[:2], text
        assert ours[2], text
        assert ours[2] <= larks[2] | {END}, text
    else:
        assert ours == larks, text


def outcome(parser: Parser, text: str) -> Any:
    try:
        return shape(parser.parse(text))
    except SyntaxMismatch as error:
        return error.position, error.token and (error.token.type, error.token.text), error.expected


def shape(child: Child) -> object:
    inside = [shape(c) for c in child.children] if isinstance(child, ParseTree) else child.text
    return child.rule if isinstance(child, ParseTree) else child.type, child.start, child.end, inside


def outcome_of_lark(lark: Lark, text: str) -> Any:
    try:
        return shape_of_lark(lark.parse(text))
    except UnexpectedToken as error:
        position = len(text) if error.token.type == "$END" else error.pos_in_stream
        return position, (error.token.type, str(error.token)), error.accepts or error.expected
    except UnexpectedCharacters as error:
        return error.pos_in_stream, None, set(error.allowed or ()) - {"<END-OF-FILE>"}
    except UnexpectedInput as error:
        raise AssertionError("Lark knows a further error") from error


def shape_of_lark(child: Token | Tree[Token]) -> object:
    if isinstance(child, Token):
        return child.type, child.start_pos, child.end_pos, str(child)
    return (
        str(child.data),
        child.meta.start_pos,
        child.meta.end_pos,
        [shape_of_lark(c) for c in child.children],
    )
