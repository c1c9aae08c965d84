"""Search over real tables: after writes, on branches, in the past, and whatever an index covers (S-13)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from omnigraph.engine.change import Catalogs
from omnigraph.engine.indexes import ensure_indexes
from omnigraph.execution.entities import EntityTable
from omnigraph.execution.search import parts as parts_room
from omnigraph.execution.search import search_cache, stored, text_index
from omnigraph.execution.search.search_cache import Corpus, Search
from omnigraph.execution.search.text_index import analyse
from omnigraph.execution.search.vectors import as_query, measured
from omnigraph.storage.tables.indexes import partitions_for
from tests.execution.search.documents import Documents, by_id, ids, places, texts

SCHEMA = """
node Doc {
    text: String? @index
    kind: enum(note, report)?
    embedding: Vector(4)? @index
}
"""
WORDS = ("apple", "Äpfel", "orange", "pear", "willing", "résumé", "the", "running", "runner")
QUERY = [0.2, -0.4, 0.6, 0.1]


@pytest.fixture
def documents(tmp_path: Path) -> Iterator[Documents]:
    made = Documents(tmp_path / "graph.og", SCHEMA)
    yield made
    made.graph.close()


def record(number: int, edition: int = 0) -> dict[str, Any]:
    """Return a document; every seventh has no text, every fifth no vector."""
    rng = np.random.default_rng((number, edition))
    words = rng.choice(WORDS, size=int(rng.integers(0, 6)))
    return {
        "id": f"d{number:05d}",
        "text": None if number % 7 == 3 else " ".join([*words, f"n{number % 11}"]),
        "kind": "note" if number % 2 else "report",
        "embedding": None if number % 5 == 4 else rng.normal(size=4).tolist(),
    }


def ensure(documents: Documents, branch: str = "main") -> None:
    ensure_indexes(documents.graph.store, Catalogs(documents.graph.store.schemas), branch)


def check(search: Search, table: EntityTable) -> None:
    """Compare every answer with one worked out from the rows of the table."""
    tokens = {i: analyse(text) for i, text in texts(table).items() if text is not None}
    corpus = search.text(table, "text")
    for query in ("apple pear", "resume", "willing", "apfel", "n4 runs", "the", "zzz"):
        wanted = set(analyse(query))
        expected = sorted(i for i, found in tokens.items() if wanted & set(found))
        assert sorted(ids(table, corpus.matches(query))) == expected, query
        scores = by_id(table, table.every(), corpus.scores(query, table.every()))
        assert {i for i, score in scores.items() if score > 0} == set(expected), query
    assert sorted(ids(table, corpus.fuzzy("aple", 1))) == sorted(i for i, t in tokens.items() if "appl" in t)
    every = table.every()
    vectors = dict(zip(ids(table, every), table.take("embedding", every).to_pylist(), strict=True))
    distances = {
        i: float(measured(np.array([v], np.float32), as_query(QUERY))[0])
        for i, v in vectors.items()
        if v is not None
    }
    near, measures = search.vectors(table, "embedding").top(QUERY, 10)
    best = sorted(distances.values())[:10]
    assert by_id(table, near, measures) == {i: d for i, d in distances.items() if d <= best[-1]}


HISTORY: dict[str, Callable[[Documents], None]] = {
    "insert": lambda d: d.put(record(n) for n in range(300, 340)),
    "replace": lambda d: d.put(record(n, 1) for n in range(0, 300, 13)),
    "delete": lambda d: d.delete([f"d{n:05d}" for n in range(0, 300, 17)]),
    "replace few": lambda d: d.put([record(5, 2)]),
    "delete more": lambda d: d.delete([f"d{n:05d}" for n in range(100, 200)]),
}


def test_answers_follow_every_write(documents: Documents) -> None:
    search = Search()
    documents.put(record(n) for n in range(300))
    check(search, documents.table())
    for change in HISTORY.values():
        change(documents)
        check(search, documents.table())


@pytest.mark.parametrize("covered", range(len(HISTORY) + 1))
def test_answers_are_the_same_whatever_an_index_covers(documents: Documents, covered: int) -> None:
    """Indexes are made after so many steps of the history: none, part or all of the rows have one."""
    documents.put(record(n) for n in range(300))
    for number, change in enumerate(HISTORY.values()):
        if number == covered:
            ensure(documents)
        change(documents)
    if covered == len(HISTORY):
        ensure(documents)

    check(Search(), documents.table())


def test_the_past_and_branches_have_answers_of_their_own(documents: Documents) -> None:
    documents.put(record(n) for n in range(300))
    before = documents.graph.store.snapshot().commit_id
    documents.graph.store.branches.create("review", "main")
    documents.delete([f"d{n:05d}" for n in range(0, 300, 2)])
    documents.put([{"id": "only here", "text": "quince", "embedding": QUERY}], "review")
    search = Search()

    for table in (
        documents.table(),
        documents.table(at=before),
        documents.table("review"),
        documents.table(),
    ):
        check(search, table)
    review = documents.table("review")
    assert ids(review, search.text(review, "text").matches("quince")) == ["only here"]
    assert search.text(documents.table(), "text").matches("quince").tolist() == []
    near, _ = search.vectors(review, "embedding").top(QUERY, 1)
    assert ids(review, near) == ["only here"]


def test_after_a_small_write_only_what_it_wrote_is_analysed(
    documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents.put(record(n) for n in range(6_000))
    search = Search()
    search.text(documents.table(), "text").matches("apple")
    documents.delete(["d00001"])
    documents.put([record(7, 3)])
    analysed: list[int] = []
    derive = search._texts._derive

    def counting(column: Any) -> text_index.Postings:
        analysed.append(len(column))
        return derive(column)

    monkeypatch.setattr(search._texts, "_derive", counting)
    check(search, documents.table())

    assert sum(analysed) == 1


def test_memory_is_bounded_and_old_versions_go_first(documents: Documents) -> None:
    documents.put(record(n) for n in range(3_000))
    first = documents.table()
    search = Search()
    search.text(first, "text").matches("apple")
    limit = search.nbytes + search.nbytes // 2
    small = Search(limit)
    small.text(first, "text").matches("apple")
    documents.put(record(n, 1) for n in range(3_000))
    second = documents.table()
    small.text(second, "text").matches("apple")

    assert small._texts.known(first, "text") is None
    assert small._texts.known(second, "text") is not None
    assert small.nbytes <= limit
    check(small, first)


def test_any_string_property_can_be_searched(documents: Documents) -> None:
    documents.put([record(0), record(1)])
    table = documents.table()

    assert ids(table, Search().text(table, "kind").matches("reports")) == ["d00000"]


def test_a_table_without_rows(documents: Documents) -> None:
    table = documents.table()
    search = Search()

    assert search.text(table, "text").matches("apple").tolist() == []
    assert search.vectors(table, "embedding").top(QUERY, 3)[0].tolist() == []
    rows, distances = search.vectors(table, "embedding").best(QUERY, np.array([-1]), 3)
    assert (rows.tolist(), distances.tolist()) == ([], [])


# -- the best among some


def test_the_best_of_repeated_and_missing_entities(documents: Documents) -> None:
    documents.put(record(n) for n in range(200))
    table = documents.table()
    vectors = Search().vectors(table, "embedding")
    chosen = places(table, ["d00010", "d00020", "d00004", "d00033", "d00010"])
    rows: NDArray[np.int64] = np.concatenate([chosen, [-1]])
    distances = vectors.distances(QUERY, rows)

    at, near = vectors.best(QUERY, rows, 2)

    two = sorted(set(distances[~np.isnan(distances)].tolist()))[:2]
    assert sorted(at.tolist()) == np.flatnonzero(np.isin(distances, two)).tolist()
    assert near.tolist() == distances[at].tolist()
    whole, _ = vectors.best(QUERY, table.every(), 5)
    assert len(whole) == 5


# -- columns too large to hold


@pytest.mark.slow
@pytest.mark.parametrize("approximate", [True, False])
@pytest.mark.parametrize("indexed", [True, False])
def test_vectors_that_do_not_fit_are_answered_from_storage(
    documents: Documents, approximate: bool, indexed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents.put(record(n) for n in range(20_000))
    if indexed:
        ensure(documents)
    documents.delete([f"d{n:05d}" for n in range(0, 20_000, 11)])
    documents.put(record(n, 1) for n in range(5, 300, 13))
    table = documents.table()
    asked: list[int] = []
    ask = stored.indexed

    def counting(*given: Any) -> Any:
        asked.append(given[-1])
        return ask(*given)

    monkeypatch.setattr(stored, "indexed", counting)
    small, large = (Search(limit, approximate=approximate) for limit in (1_000, 1 << 30))
    some = table.every()[::3]
    every = large.vectors(table, "embedding").distances(QUERY, table.every())
    large_distances = by_id(table, table.every(), every)
    for among, count in ((None, 10), (some, 10), (some[:20], 3), (None, 0), (None, 90), (None, 20_000)):
        expected = large.vectors(table, "embedding").top(QUERY, count, among)
        found = small.vectors(table, "embedding").top(QUERY, count, among)
        true, got = by_id(table, *expected), by_id(table, *found)
        assert len(got) >= min(count, len(true))
        if approximate and indexed and among is None:  # it may miss one, but never makes one up
            assert len(true.keys() & got.keys()) >= 0.95 * len(true)
            assert all(distance == large_distances[name] for name, distance in got.items())
        else:
            assert got == true
    assert np.array_equal(
        small.vectors(table, "embedding").distances(QUERY, some),
        large.vectors(table, "embedding").distances(QUERY, some),
        equal_nan=True,
    )
    assert small._vectors.known(table, "embedding") is None
    assert bool(asked) == (approximate and indexed)


def test_one_question_that_is_answered_badly_makes_an_index_look_further(
    documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents.put(record(n) for n in range(20_000))
    ensure(documents)
    table = documents.table()
    hard = list(stored._questions(table, "embedding"))[7].tolist()
    half = partitions_for(table.rows) // 2
    ask = stored._answer

    def forgetful(table: EntityTable, column: str, question: Any, probes: int) -> set[int]:
        found = ask(table, column, question, partitions_for(table.rows))
        return set(sorted(found)[2:]) if question.tolist() == hard and probes < half else found

    monkeypatch.setattr(stored, "_answer", forgetful)

    assert stored._calibrated(table, "embedding") == half


@pytest.mark.parametrize("from_zero", [0.0, 30_000.0])
def test_the_questions_of_an_index_are_judged_by_true_answers(documents: Documents, from_zero: float) -> None:
    documents.put(
        {
            "id": f"v{n}",
            "embedding": None if n % 50 == 7 else [from_zero + (n * 7919 % 5003) / 100, n % 17, 0, 0],
        }
        for n in range(12_000)
    )
    documents.delete([f"v{n}" for n in range(0, 12_000, 97)])
    table = documents.table()
    questions = stored._questions(table, "embedding")
    column = Search(1 << 30, approximate=False).vectors(table, "embedding")

    for question, answer in zip(questions, stored._answers(table, "embedding", questions), strict=True):
        true = set(column.top(question, stored.MOST_WANTED, None)[0].tolist())
        assert len(answer & true) >= 0.99 * len(answer)
        assert len(answer) >= stored.MOST_WANTED


def test_ties_beyond_what_an_index_was_asked_for_are_all_found(documents: Documents) -> None:
    documents.put({"id": f"t{n:04d}", "embedding": [1.0, 0.0, 0.0, 0.0]} for n in range(400))
    documents.put({"id": f"u{n:04d}", "embedding": [5.0, n, 0.0, 0.0]} for n in range(100))
    ensure(documents)
    table = documents.table()

    near, _ = stored.indexed(table, "embedding", as_query([1.0, 0.0, 0.0, 0.0]), 3, 50)

    assert ids(table, np.sort(near)) == [f"t{n:04d}" for n in range(400)]


# -- first searches by the index


def cold(documents: Documents, monkeypatch: pytest.MonkeyPatch, rows: int = 0) -> tuple[Search, list[Any]]:
    """Return a room that takes any table for large, and a list of what the index answered."""
    answers: list[Any] = []
    ask = text_index.matches_by_index

    def noting(table: EntityTable, column: str, query: str) -> Any:
        answers.append(ask(table, column, query))
        return answers[-1]

    monkeypatch.setattr(search_cache, "COLD_ROWS", rows)
    monkeypatch.setattr(search_cache, "matches_by_index", noting)
    return Search(), answers


@pytest.mark.parametrize(
    "query", ["n4", "n4 n5", "resume n1", "owns", "willing n3", "the", "zzz", "日本 n2", "x" * 45]
)
def test_a_first_search_by_the_index_finds_what_search_means(
    documents: Documents, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr(text_index, "MOST", 1)
    documents.put(record(n) for n in range(500))
    documents.put(
        [{"id": "x", "text": "It will be 日本, owned " + "x" * 45}, {"id": "y", "text": "owning a résumé"}]
    )
    ensure(documents)
    table = documents.table()
    search, answers = cold(documents, monkeypatch)

    found = search.text(table, "text").matches(query)

    assert len(answers) == 1
    assert answers[0] is not None
    assert found.tolist() == Search().text(table, "text").corpus.matches(query).tolist()
    assert search._texts.known(table, "text") is None  # nothing was analysed but the candidates


def test_an_index_that_lacks_rows_is_not_asked(documents: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    documents.put(record(n) for n in range(200))
    ensure(documents)
    documents.put([{"id": "new", "text": "quince"}])
    table = documents.table()
    search, answers = cold(documents, monkeypatch)

    assert ids(table, search.text(table, "text").matches("quince")) == ["new"]
    assert answers == [None]


def test_texts_that_are_searched_often_are_brought_to_memory(
    documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_index, "MOST", 1)
    documents.put(record(n) for n in range(200))
    ensure(documents)
    table = documents.table()
    search, answers = cold(documents, monkeypatch)

    for _ in range(search_cache.COLD_SEARCHES + 3):
        search.text(table, "text").matches("n4")

    assert len(answers) == search_cache.COLD_SEARCHES
    assert isinstance(search._texts.known(table, "text"), Corpus)


def test_small_tables_are_searched_in_memory(documents: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    documents.put(record(n) for n in range(50))
    ensure(documents)
    search, answers = cold(documents, monkeypatch, search_cache.COLD_ROWS)

    search.text(documents.table(), "text").matches("n4")

    assert answers == []


def test_parts_are_shared_by_the_versions_that_hold_them(documents: Documents) -> None:
    documents.put(record(n) for n in range(6_000))
    search = Search()
    before = documents.table()
    search.text(before, "text").matches("n4")
    documents.put([record(9_000)])
    after = documents.table()
    search.text(after, "text").matches("n4")

    held = [parts for _, parts in search._texts._known.values()]
    assert len(held) == 2
    assert held[0][0].derived is held[1][0].derived
    assert len(parts_room.fragments(after)) == len(held[1])
