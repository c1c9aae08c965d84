"""No text crashes the checker: a query is checked, or refused with places."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from omnigraph.catalog.query import examine
from tests.catalog.query.rejected import REJECTED
from tests.language.query.test_fuzz import assert_answered, damaged_queries
from tests.language.query.texts import LIBRARY
from tests.support.checked_queries import CATALOG
from tests.support.fuzz import ROUNDS

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
    """Exchange words of queries for others of their sort: many still parse, and mean something else."""
    rng = random.Random(20_260_301)
    texts = [case.source for case in REJECTED] + re.split(r"(?m)^(?=query)", LIBRARY)[1:]
    pool: dict[str, list[str]] = {}
    for word in sorted({token for text in texts for token in TOKEN.findall(text)}):
        pool.setdefault(_sort(word), []).append(word)
    for _ in range(rounds):
        tokens = TOKEN.findall(rng.choice(texts))
        for _ in range(rng.randrange(1, 4)):
            places = [at for at, token in enumerate(tokens) if _sort(token)]
            at = rng.choice(places)
            tokens[at] = rng.choice(pool[_sort(tokens[at])])
        yield "".join(tokens)


def _sort(token: str) -> str:
    if token[0] == "$":
        return "$." if "." in token else "$"
    if token[0] in "=<>+-*/!":
        return "operator"
    if token[0].isalpha():
        return "Type" if token[0].isupper() else "word"
    return "value" if token[0] == '"' or token.isdigit() else ""


@ROUNDS
def test_shuffled_queries(rounds: int) -> None:
    assert sum(assert_checked(text) for text in shuffled_queries(rounds)) > rounds // 4


@ROUNDS
def test_damaged_queries(rounds: int) -> None:
    for text in damaged_queries(rounds):
        assert_checked(text)
