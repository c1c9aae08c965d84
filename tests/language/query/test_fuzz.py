"""No text crashes the parser: it is read, or refused with a place."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from omnigraph.language.diagnostics import Severity
from omnigraph.language.query import ParsedQueries, parse, parse_query, print_queries
from omnigraph.language.query.parser import split
from tests.language.query.texts import LIBRARY

ROUNDS = 1_000
FULL_ROUNDS = 10_000
ALPHABET = b'query m{}()[]$:?.,=<>-+*/"\\\n0xA'
WORDS = """query match return order limit offset insert update delete set where not exists count optional
and or in is null contains as asc desc distinct now date shortest true { } ( ) [ ] , : . @ $ $_ $x <x> = != <
>= + - * / // /* */ -1 0 1.5 $p.name {1,2} {0,} Person"""
PIECES = [*WORDS.split(), '"', "\\", "é", "\0", "\ud800", '[1,"a"]']


def assert_answered(text: str | bytes) -> ParsedQueries:
    """The parser must give a tree that can be printed, or errors with places inside the text."""
    parsed = parse(text)
    size = len(parsed.file.source.text)
    for finding in parsed.diagnostics:
        assert finding.severity is Severity.ERROR
        assert finding.message
        assert finding.span is not None
        assert 0 <= finding.span.start <= finding.span.end <= size
        assert finding.span.line >= 1
        assert finding.span.column >= 1
    if not parsed.diagnostics:
        assert parse_query(print_queries(parsed.file)) == parsed.file
    return parsed


def random_texts(rounds: int) -> Iterator[str | bytes]:
    """Half of them are any bytes, half are made of the characters that the grammar cares about."""
    rng = random.Random(20_260_131)
    for round_ in range(rounds):
        size = rng.randrange(60)
        yield rng.randbytes(size) if round_ % 2 else bytes(rng.choices(ALPHABET, k=size))


def damaged_queries(rounds: int) -> Iterator[str]:
    """Put valid queries together and damage the text in a few places."""
    rng = random.Random(20_260_201)
    pieces = [LIBRARY[p.start : p.end] for p in split(LIBRARY)]
    for _ in range(rounds):
        text = "\n".join(rng.choices(pieces, k=rng.choice([1, 1, 2])))
        for _ in range(rng.randrange(1, 4)):
            text = _damaged(text, rng.randrange(len(text) + 1), rng)
        yield text


def _damaged(text: str, at: int, rng: random.Random) -> str:
    match rng.randrange(4):
        case 0:
            return text[:at] + text[at + rng.randrange(1, 5) :]
        case 1:
            return f"{text[:at]} {rng.choice(PIECES)} {text[at:]}"
        case 2:
            return text[:at] + chr(rng.choice([rng.randrange(128), rng.randrange(0x3000)])) + text[at + 1 :]
        case _:
            return text[:at] + text[max(0, at - rng.randrange(1, 30)) :]


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(FULL_ROUNDS, marks=pytest.mark.full)])
def test_random_texts(rounds: int) -> None:
    for text in random_texts(rounds):
        assert_answered(text)


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(FULL_ROUNDS, marks=pytest.mark.full)])
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
