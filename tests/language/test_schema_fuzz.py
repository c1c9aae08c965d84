"""No text crashes the parser: it is read, or refused with a place."""

from __future__ import annotations

from omnigraph.language.schema import examine
from omnigraph.language.schema.parser import split
from tests.language.test_schema_parser import LIBRARY
from tests.support.fuzz import ROUNDS, assert_placed, damaged_texts, random_texts

ALPHABET = b'nodeAB {}()[]@:?.,=->/*"\\\n0x'
WORDS = 'node edge interface { } ( ) @ " \\ .. // /* */ , ? é -1 [ enum( @key('
PIECES = [*WORDS.split(), "\0", "\ud800"]


def assert_answered(text: str | bytes) -> None:
    """The parser must give a tree without errors, or errors with places inside the text."""
    checked, findings = examine(text)
    assert_placed(findings, len(checked.source.text))


@ROUNDS
def test_random_bytes(rounds: int) -> None:
    for text in random_texts(ALPHABET, rounds):
        assert_answered(text)


@ROUNDS
def test_damaged_schemas(rounds: int) -> None:
    declarations = [LIBRARY[part.start : part.end] for part in split(LIBRARY)]
    for text in damaged_texts(declarations, PIECES, rounds):
        assert_answered(text)
