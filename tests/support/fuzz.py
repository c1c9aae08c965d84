"""Texts that no parser expects, and what every parser owes to them: an answer, or errors with places.

Room    test support. Seeds are fixed, so that a text that was met once is met again.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

import pytest

from omnigraph.language.diagnostics import Diagnostic, Severity

ROUNDS = pytest.mark.parametrize("rounds", [1_000, pytest.param(10_000, marks=pytest.mark.full)])


def assert_placed(findings: Iterable[Diagnostic], size: int) -> None:
    """Assert that all findings are errors that say something and lie inside a text of this size."""
    for finding in findings:
        assert finding.severity is Severity.ERROR
        assert finding.message
        assert finding.span is not None
        assert 0 <= finding.span.start <= finding.span.end <= size
        assert finding.span.line >= 1
        assert finding.span.column >= 1


def random_texts(alphabet: bytes, rounds: int) -> Iterator[bytes]:
    """Half of them are any bytes, half are made of the characters that the grammar cares about."""
    rng = random.Random(20_260_131)
    for round_ in range(rounds):
        size = rng.randrange(60)
        yield rng.randbytes(size) if round_ % 2 else bytes(rng.choices(alphabet, k=size))


def damaged_texts(valid: Sequence[str], words: Sequence[str], rounds: int) -> Iterator[str]:
    """Put valid declarations together and damage the text in a few places."""
    rng = random.Random(20_260_201)
    for _ in range(rounds):
        text = "\n".join(rng.choices(valid, k=rng.choice([1, 1, 2])))
        for _ in range(rng.randrange(1, 4)):
            text = _damaged(text, rng.randrange(len(text) + 1), words, rng)
        yield text


def _damaged(text: str, at: int, words: Sequence[str], rng: random.Random) -> str:
    match rng.randrange(4):
        case 0:
            return text[:at] + text[at + rng.randrange(1, 5) :]
        case 1:
            gap = rng.choice(["", " "])
            return f"{text[:at]}{gap}{rng.choice(words)}{gap}{text[at:]}"
        case 2:
            return text[:at] + chr(rng.choice([rng.randrange(128), rng.randrange(0x3000)])) + text[at + 1 :]
        case _:
            return text[:at] + text[max(0, at - rng.randrange(1, 30)) :]
