"""No text crashes the parser: it is read, or refused with a place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omnigraph.language.query import ParsedQueries, parse, parse_query, print_queries
from omnigraph.language.query.parser import split
from tests.language.query.texts import LIBRARY
from tests.support.fuzz import ROUNDS, assert_placed, damaged_texts, random_texts

ALPHABET = b'query m{}()[]$:?.,=<>-+*/"\\\n0xA'
WORDS = """query match return order limit offset insert update delete set where not exists count optional
and or in is null contains as asc desc distinct now date shortest true { } ( ) [ ] , : . @ $ $_ $x <x> = != <
>= + - * / // /* */ -1 0 1.5 $p.name {1,2} {0,} Person"""
PIECES = [*WORDS.split(), '"', "\\", "é", "\0", "\ud800", '[1,"a"]']


def assert_answered(text: str | bytes) -> ParsedQueries:
    """The parser must give a tree that can be printed, or errors with places inside the text."""
    parsed = parse(text)
    assert_placed(parsed.diagnostics, len(parsed.file.source.text))
    if not parsed.diagnostics:
        assert parse_query(print_queries(parsed.file)) == parsed.file
    return parsed


def damaged_queries(rounds: int) -> Iterator[str]:
    """Valid queries, damaged."""
    return damaged_texts([LIBRARY[part.start : part.end] for part in split(LIBRARY)], PIECES, rounds)


@ROUNDS
def test_random_texts(rounds: int) -> None:
    for text in random_texts(ALPHABET, rounds):
        assert_answered(text)


@ROUNDS
def test_damaged_queries(rounds: int) -> None:
    for text in damaged_queries(rounds):
        assert_answered(text)


@pytest.mark.parametrize(
    "text",
    [
        "query q() { match { " + "not { " * 5_000,
        "query q() { match { $p.a = " + "(" * 5_000 + "1" + ")" * 5_000 + " } return { 1 } }",
        "query q() { match { $p.a = " + "[" * 5_000,
        "query q() { match { $p: P } return { " + " + ".join(["1"] * 5_000) + " } }",
        "query q() { match { $p.a = 1" + " and $p.b = 2" * 2_000 + " } return { 1 } }",
        "query q() { match { $p: P } return { " + "$p.a, " * 5_000 + " } }",
        "query q() { match { $p: P } return { search" + " /* */" * 5_000 + " } }",
        "query q() { match { $p: P } return { " + "9" * 100_000 + " } }",
        "query q() { match { $p: P } return { " + "9" * 400 + ".5 } }",
        'query q() { match { $p: P } return { "' + "x" * 100_000,
        "/*" * 50_000,
        "/* " * 50_000,
        '"' + '\\"' * 50_000,
        "query q() { " + "a /* x */ " * 20_000,
    ],
    ids=lambda text: f"{text[:20]}...{len(text)}",
)
def test_deep_and_long_texts(text: str) -> None:
    assert_answered(text)
