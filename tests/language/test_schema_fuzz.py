"""No text crashes the parser: it is read, or refused with a place."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from omnigraph.language.diagnostics import Severity
from omnigraph.language.schema import examine
from omnigraph.language.schema.parser import split
from tests.language.test_schema_parser import LIBRARY

ROUNDS = 10_000
ALPHABET = b'nodeAB {}()[]@:?.,=->/*"\\\n0x'
PIECES = [
    "node",
    "edge",
    "interface",
    "{",
    "}",
    "(",
    ")",
    "@",
    '"',
    "\\",
    "..",
    "//",
    "/*",
    "*/",
    ",",
    "?",
    "é",
    "\0",
    "-1",
    "[",
    "enum(",
    "@key(",
    "\ud800",
]


def assert_answered(text: str | bytes) -> None:
    """The parser must give a tree without errors, or errors with places inside the text."""
    checked, findings = examine(text)
    size = len(checked.source.text)
    for finding in findings:
        assert finding.severity is Severity.ERROR
        assert finding.message
        assert finding.span is not None
        assert 0 <= finding.span.start <= finding.span.end <= size
        assert finding.span.line >= 1
        assert finding.span.column >= 1


def test_random_bytes() -> None:
    """Half of them are any bytes, half are made of the characters that the grammar cares about."""
    rng = random.Random(20_260_131)
    for round_ in range(ROUNDS):
        size = rng.randrange(60)
        assert_answered(rng.randbytes(size) if round_ % 2 else bytes(rng.choices(ALPHABET, k=size)))


@pytest.mark.slow
def test_mutated_schemas() -> None:
    rng = random.Random(20_260_201)
    for text in _mutations(rng):
        assert_answered(text)


def _mutations(rng: random.Random) -> Iterator[str]:
    """Put valid declarations together and damage the text in a few places."""
    pieces = [LIBRARY[p.start : p.end] for p in split(LIBRARY)]
    for _ in range(ROUNDS):
        text = "\n".join(rng.choices(pieces, k=rng.choice([1, 1, 2])))
        for _ in range(rng.randrange(1, 4)):
            text = _damaged(text, rng.randrange(len(text) + 1), rng)
        yield text


def _damaged(text: str, at: int, rng: random.Random) -> str:
    match rng.randrange(4):
        case 0:
            return text[:at] + text[at + rng.randrange(1, 5) :]
        case 1:
            return text[:at] + rng.choice(PIECES) + text[at:]
        case 2:
            return text[:at] + chr(rng.choice([rng.randrange(128), rng.randrange(0x3000)])) + text[at + 1 :]
        case _:
            return text[:at] + text[max(0, at - rng.randrange(1, 30)) :]
