"""Corpora: matches, fuzzy matches and scores against the slow and obvious."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import log

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.execution.search.parts import SearchFragment
from omnigraph.execution.search.search_cache import Corpus
from omnigraph.execution.search.text_index import Postings, analyse, invert, within

Texts = list[str | None]
WORDS = st.sampled_from(
    ["cat", "cats", "cot", "coat", "dog", "the", "running", "run", "été", "x" * 41, "café"]
)
TEXTS = st.lists(st.none() | st.lists(WORDS, max_size=8).map(" ".join), max_size=12)
QUERIES = st.lists(WORDS, max_size=4).map(" ".join)


def corpus(*fragments: Texts, dead: Sequence[int] = ()) -> Corpus:
    """Return the corpus of some fragments, without the rows of some ordinals."""
    parts: list[SearchFragment[Postings]] = []
    start = 0
    for texts in fragments:
        alive = np.array([start + row not in dead for row in range(len(texts))], dtype=bool)
        parts.append(
            SearchFragment(
                invert(pa.chunked_array([pa.array(texts, pa.string())])),
                start,
                None if alive.all() else alive,
            )
        )
        start += len(texts)
    return Corpus(start, parts)


def living(fragments: Sequence[Texts], dead: Sequence[int]) -> dict[int, list[str]]:
    """Return the tokens of the texts that count, by ordinal."""
    every = [text for texts in fragments for text in texts]
    return {n: analyse(text) for n, text in enumerate(every) if text is not None and n not in dead}


def slow_bm25(texts: dict[int, list[str]], query: str) -> dict[int, float]:
    """The formula, as it is written."""
    found: dict[int, float] = {}
    if not texts:
        return found
    average = sum(map(len, texts.values())) / len(texts)
    for token in analyse(query):
        having = sum(token in tokens for tokens in texts.values())
        idf = log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for ordinal, tokens in texts.items():
            if token in tokens:
                often = tokens.count(token)
                norm = 1.2 * (1 - 0.75 + 0.75 * len(tokens) / average)
                found[ordinal] = found.get(ordinal, 0.0) + idf * often * 2.2 / (often + norm)
    return found


@cache
def slow_levenshtein(a: str, b: str) -> int:
    if not a or not b:
        return len(a) + len(b)
    if a[0] == b[0]:
        return slow_levenshtein(a[1:], b[1:])
    return 1 + min(slow_levenshtein(a[1:], b), slow_levenshtein(a, b[1:]), slow_levenshtein(a[1:], b[1:]))


@given(st.lists(TEXTS, max_size=3), st.sets(st.integers(0, 30)), QUERIES)
def test_scores_are_those_of_the_formula(fragments: list[Texts], dead: set[int], query: str) -> None:
    made = corpus(*fragments, dead=sorted(dead))
    expected = slow_bm25(living(fragments, sorted(dead)), query)

    scores = made.scores(query)

    assert {n: pytest.approx(score) for n, score in expected.items()} == {
        int(n): float(scores[n]) for n in np.flatnonzero(scores)
    }
    assert made.texts == len(living(fragments, sorted(dead)))


@given(st.lists(TEXTS, max_size=3), st.sets(st.integers(0, 30)), QUERIES)
def test_a_text_matches_when_it_has_some_token_of_the_query(
    fragments: list[Texts], dead: set[int], query: str
) -> None:
    wanted = set(analyse(query))

    found = corpus(*fragments, dead=sorted(dead)).matches(query)

    texts = living(fragments, sorted(dead))
    assert found.tolist() == [n for n, tokens in texts.items() if wanted & set(tokens)]


@given(st.lists(TEXTS, max_size=3), st.sets(st.integers(0, 30)), QUERIES, st.integers(-1, 5))
def test_fuzzy_matches_are_those_of_levenshtein(
    fragments: list[Texts], dead: set[int], query: str, edits: int
) -> None:
    wanted = set(analyse(query))

    found = corpus(*fragments, dead=sorted(dead)).fuzzy(query, edits)

    texts = living(fragments, sorted(dead))
    assert found.tolist() == [
        n
        for n, tokens in texts.items()
        if any(slow_levenshtein(a, b) <= edits for a in wanted for b in tokens)
    ]


@given(
    st.text("abcé中", min_size=1, max_size=6), st.text("abcé中", min_size=1, max_size=6), st.integers(0, 7)
)
def test_distance_within_some_edits(token: str, other: str, edits: int) -> None:
    letters = np.frombuffer(other.encode("utf-32-le"), dtype=np.uint32).reshape(1, -1)

    assert within(token, letters, edits).tolist() == [slow_levenshtein(token, other) <= edits]


@given(st.lists(TEXTS, min_size=1, max_size=3), QUERIES)
def test_scores_do_not_depend_on_how_rows_are_cut_into_fragments(fragments: list[Texts], query: str) -> None:
    whole = corpus([text for texts in fragments for text in texts])

    assert np.array_equal(corpus(*fragments).scores(query), whole.scores(query))


@given(TEXTS, QUERIES, st.integers(0, 14), st.booleans())
def test_the_best_are_all_that_are_not_worse_than_the_last(
    texts: Texts, query: str, count: int, some: bool
) -> None:
    made = corpus(texts)
    among = np.arange(0, len(texts), 2) if some else None
    scores = made.scores(query)
    expected = sorted(
        (n for n in range(len(texts)) if scores[n] > 0 and (not some or n % 2 == 0)), key=lambda n: -scores[n]
    )
    cut = scores[expected[count - 1]] if 0 < count <= len(expected) else (0.0 if count else np.inf)

    found, best = made.top(query, count, among)

    assert set(found.tolist()) == {n for n in expected if scores[n] >= cut}
    assert best.tolist() == scores[found].tolist()


def test_a_missing_entity_scores_nothing() -> None:
    made = corpus(["cat", "dog"])

    assert made.scores("cat", np.array([-1, 1, 0, 0])).tolist()[:2] == [0.0, 0.0]
    assert made.scores("cat", np.array([0]))[0] > 0


def test_an_empty_text_counts_and_null_does_not() -> None:
    assert corpus(["cat", "", None]).texts == 2
    assert corpus(["cat", ""]).scores("cat")[0] > corpus(["cat", None]).scores("cat")[0]


def test_a_query_without_tokens_finds_nothing() -> None:
    made = corpus(["the cat"])

    for query in ("", "the", "…"):
        assert made.matches(query).tolist() == []
        assert made.fuzzy(query).tolist() == []
        assert made.scores(query).tolist() == [0.0]


def test_a_corpus_without_rows() -> None:
    made = corpus()

    assert made.matches("cat").tolist() == []
    assert made.scores("cat", np.zeros(0, np.int64)).tolist() == []
    assert made.top("cat", 5)[0].tolist() == []
