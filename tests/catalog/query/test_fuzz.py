"""No text crashes the checker: a query is checked, or refused with places."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from omnigraph.catalog.query import examine
from tests.catalog.query.rejected import REJECTED
from tests.catalog.query.support import CATALOG
from tests.language.query.test_fuzz import assert_answered, damaged_queries
from tests.language.query.texts import LIBRARY

ROUNDS = 1_000
FULL_ROUNDS = 10_000
TOKEN = re.compile(r'\s+|"[^"]*"|\$?\w+(?:\.@?\w+)?|.', re.DOTALL)


def assert_checked(text: str) -> int:
    """Every query that parses gives a checked query or findings inside the text; say how many parsed."""
    parsed = assert_answered(text)
    for query in parsed.file.queries:
        checked, found = examine(query, CATALOG)
        assert (checked is None) == bool(found)
        for finding in found:
            assert finding.span is not None
            assert query.span.start <= finding.span.start <= finding.span.end <= query.span.end
    return len(parsed.file.queries)


def shuffled_queries(rounds: int) -> Iterator[str]:
    """Exchange words of queries with each other, so that most still parse and mean something else."""
    rng = random.Random(20_260_301)
    texts = [case.source for case in REJECTED] + re.split(r"(?m)^(?=query)", LIBRARY)[1:]
    pool = sorted({t for text in texts for t in TOKEN.findall(text) if not t.isspace()})
    words = [t for t in pool if t[0].isalpha() or t[0] in '$"' or t.isdigit()]
    for _ in range(rounds):
        tokens = TOKEN.findall(rng.choice(texts))
        for _ in range(rng.randrange(1, 4)):
            places = [at for at, token in enumerate(tokens) if token in words]
            tokens[rng.choice(places)] = rng.choice(words)
        yield "".join(tokens)


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(FULL_ROUNDS, marks=pytest.mark.full)])
def test_shuffled_queries(rounds: int) -> None:
    assert sum(assert_checked(text) for text in shuffled_queries(rounds)) > rounds // 4


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(FULL_ROUNDS, marks=pytest.mark.full)])
def test_damaged_queries(rounds: int) -> None:
    for text in damaged_queries(rounds):
        assert_checked(text)
