"""How does search compare with bare pylance on the same rows, and is it exact?

    text      top 10 by BM25, with and without a filter that keeps a tenth of the documents; bare: the same
              question to a Lance full-text index
    vectors   the 10 nearest, likewise; bare: the question to a Lance IVF index with as many probes as give
              the recall that is asked for, and the brute force scan for reference
    first     a first `search` with nothing in memory, with and without the index
    again     a search after one document was replaced

    .venv/bin/python bench/search.py [--documents N] [--folder PATH] [--json]

Each is asked of the search room ("room") and as a whole query ("query"). Recall and exactness are measured
against brute force in NumPy and against BM25 written out in Python. A folder is kept and used again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import log
from pathlib import Path
from statistics import median
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.query import MatchQuery
from numpy.typing import NDArray

import omnigraph as og
from omnigraph.engine.change import Catalogs
from omnigraph.engine.graph import Graph
from omnigraph.engine.indexes import ensure_indexes
from omnigraph.execution.columns import ColumnCache
from omnigraph.execution.entities import EntityTable
from omnigraph.execution.search.search_cache import Search
from omnigraph.execution.search.text_index import analyse
from omnigraph.execution.search.vectors import as_query, measured
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.tables.effects import Append, Upsert
from omnigraph.storage.transaction import PlannedWrite, PublishPlan

SCHEMA = "node Doc { kind: I64 @index  text: String @index  embedding: Vector(128) @index }"
WORDS, DIMENSIONS, QUERIES, ROUNDS, TOP, RECALL = 50_000, 128, 20, 5, 10, 0.95
LATENT = 24
SYLLABLES = ("ka", "to", "mi", "re", "so", "lu", "ne", "va", "di", "po", "ze", "fa", "gu", "ro", "sha", "ty")


def vocabulary() -> list[str]:
    """Return words of a few syllables, common ones first."""
    rng = np.random.default_rng(1)
    found: dict[str, None] = {}
    while len(found) < WORDS:
        found["".join(rng.choice(SYLLABLES, size=int(rng.integers(2, 6))))] = None
    return list(found)


def documents(count: int) -> tuple[list[str], NDArray[np.float32], NDArray[np.int64]]:
    """Return texts with words by Zipf's law, vectors, and a number from 0 to 9.

    Vectors are like embeddings: topics in a space of a few dimensions, seen in many, with some noise.
    """
    rng = np.random.default_rng(2)
    words = np.array(vocabulary(), dtype=object)
    weights = 1.0 / np.arange(1, WORDS + 1)
    drawn = rng.choice(WORDS, size=(count, 40), p=weights / weights.sum())
    texts = [" ".join(row) for row in words[drawn]]
    topics = rng.normal(size=(300, LATENT))[rng.integers(0, 300, count)]
    latent = topics + 0.7 * rng.normal(size=(count, LATENT))
    vectors = latent @ rng.normal(size=(LATENT, DIMENSIONS)) + 0.5 * rng.normal(size=(count, DIMENSIONS))
    return texts, vectors.astype(np.float32), rng.integers(0, 10, count)


def questions(vectors: NDArray[np.float32]) -> list[tuple[str, NDArray[np.float32]]]:
    """Return queries of two or three words, common and rare, with a vector each."""
    rng = np.random.default_rng(3)
    words = vocabulary()
    asked = []
    for _ in range(QUERIES):
        chosen = [
            words[int(rank)]
            for rank in rng.choice([20, 100, 500, 2_000, 10_000], size=int(rng.integers(2, 4)))
        ]
        near = vectors[int(rng.integers(0, len(vectors)))] + 0.3 * rng.normal(size=DIMENSIONS)
        asked.append((" ".join(chosen), near.astype(np.float32)))
    return asked


def asking(ranking: str, declared: str, filtered: bool) -> str:
    """Return the text of a query."""
    entries = " { kind: 3 }" if filtered else ""
    return (
        f"query q($q: {declared}) {{ match {{ $d: Doc{entries} }} "
        f"return {{ $d.kind, {ranking} as value }} order {{ {ranking} }} limit {TOP} }}"
    )


def timed(action: Callable[[], object], repeat: int = 5) -> float:
    """Return the median milliseconds of an action that was run once before."""
    action()
    found = []
    for _ in range(repeat):
        started = time.perf_counter()
        action()
        found.append((time.perf_counter() - started) * 1e3)
    return median(found)


class Ground:
    """The documents, in a graph and in a bare Lance dataset with the same indexes."""

    def __init__(self, folder: Path, count: int) -> None:
        self.texts, self.vectors, self.kinds = documents(count)
        self.asked = questions(self.vectors)
        if not (folder / "graph.og").exists():
            self._write(folder)
        self.graph: Graph = og.connect(folder / "graph.og")
        self.bare = lance.dataset(str(folder / "bare.lance"))
        self.search = Search()

    def _write(self, folder: Path) -> None:
        with og.init(folder / "graph.og", SCHEMA) as graph:
            declared = graph.schema.catalog().node("Doc")
            columns = {
                "id": pa.array([f"d{n:07d}" for n in range(len(self.texts))]),
                "kind": pa.array(self.kinds),
                "text": pa.array(self.texts),
                "embedding": pa.FixedSizeListArray.from_arrays(pa.array(self.vectors.ravel()), DIMENSIONS),
            }
            rows = pa.table(
                [columns[f.name].cast(f.type) for f in declared.stored_schema], declared.stored_schema
            )
            effects = {declared.id: Append(rows)}
            graph.store.publish("main", PlannedWrite(PublishPlan(CommitKind.LOAD, effects=effects)))
            ensure_indexes(graph.store, Catalogs(graph.store.schemas))
            bare = lance.write_dataset(rows, str(folder / "bare.lance"))
            bare.create_scalar_index("kind", "BTREE")
            bare.create_scalar_index("text", "INVERTED")
            bare.create_index("embedding", "IVF_FLAT", metric="l2", num_partitions=max(len(rows) // 1_024, 1))

    def table(self) -> EntityTable:
        """Return the documents at the head, with cold columns."""
        snapshot = self.graph.store.snapshot()
        declared = self.graph.schema.catalog().node("Doc")
        pin = snapshot.pin(declared.id)
        return EntityTable(declared, pin.table_id, pin.version, self.graph.store.reads, ColumnCache())


def text(ground: Ground) -> dict[str, Any]:
    """Compare the best documents for some words."""
    table = ground.table()
    texts = ground.search.text(table, "text")
    texts.scores("warm")
    few = np.flatnonzero(ground.kinds == 3)
    queries = {filtered: asking("bm25($d.text, $q)", "String", filtered) for filtered in (False, True)}

    def room(query: str, filtered: bool) -> None:
        texts.top(query, TOP, _chosen(table) if filtered else None)

    def whole(query: str, filtered: bool) -> None:
        ground.graph.query(queries[filtered], {"q": query})

    def bare(query: str, filtered: bool) -> None:
        options: dict[str, Any] = {"filter": "kind = 3", "prefilter": True} if filtered else {}
        ground.bare.scanner(
            full_text_query=MatchQuery(query, "text"), limit=TOP, columns=["id", "_score"], **options
        ).to_table()

    analysed = [analyse(one) for one in ground.texts]
    counted, average = [Counter(one) for one in analysed], sum(map(len, analysed)) / len(analysed)
    wrong = 0
    for query, _ in ground.asked:
        for among in (None, few):
            found, scores = texts.top(query, TOP, among)
            truth = _bm25(counted, average, query)
            chosen = truth if among is None else truth[among]
            cut = np.partition(chosen, len(chosen) - TOP)[len(chosen) - TOP]
            right = set(np.flatnonzero(truth >= max(cut, 1e-300)).tolist())
            right = right if among is None else right & set(among.tolist())
            wrong += set(found.tolist()) != right or not np.allclose(scores, truth[found])
    sides = {"room": room, "query": whole, "bare": bare}
    return {"wrong answers": wrong, **_sides([query for query, _ in ground.asked], sides)}


def _chosen(table: EntityTable) -> NDArray[np.int64]:
    return np.flatnonzero(table.column("kind").to_numpy(zero_copy_only=False) == 3)


def _bm25(counted: list[Counter[str]], average: float, query: str) -> NDArray[np.float64]:
    scores = np.zeros(len(counted))
    for token in analyse(query):
        having = [(n, one[token], sum(one.values())) for n, one in enumerate(counted) if token in one]
        idf = log(1 + (len(counted) - len(having) + 0.5) / (len(having) + 0.5))
        for n, often, length in having:
            scores[n] += idf * often * 2.2 / (often + 1.2 * (0.25 + 0.75 * length / average))
    return scores


def vectors(ground: Ground) -> dict[str, Any]:
    """Compare the nearest documents."""
    table = ground.table()
    stored = ground.search.vectors(table, "embedding")
    stored.top(ground.asked[0][1].tolist(), TOP)
    few = np.flatnonzero(ground.kinds == 3)
    queries = {f: asking("nearest($d.embedding, $q)", f"Vector({DIMENSIONS})", f) for f in (False, True)}
    truth = {
        (n, filtered): _nearest(ground.vectors, query, few if filtered else None)
        for n, (_, query) in enumerate(ground.asked)
        for filtered in (False, True)
    }

    def ask(query: NDArray[np.float32], filtered: bool, probes: int | None) -> list[int]:
        near: dict[str, Any] = {"column": "embedding", "q": query, "k": TOP, "use_index": probes is not None}
        near |= {} if probes is None else {"minimum_nprobes": probes, "maximum_nprobes": probes}
        options: dict[str, Any] = {"filter": "kind = 3", "prefilter": True} if filtered else {}
        scanner = ground.bare.scanner(nearest=near, columns=["id", "_distance"], with_row_id=True, **options)
        return list(scanner.to_table()["_rowid"].to_pylist())

    def recall(answer: Callable[[NDArray[np.float32], bool], list[int]]) -> float:
        hits = [
            len(true & set(answer(ground.asked[n][1], filtered))) for (n, filtered), true in truth.items()
        ]
        return sum(hits) / (TOP * len(hits))

    def room(query: NDArray[np.float32], filtered: bool) -> list[int]:
        return list(stored.top(query.tolist(), TOP, _chosen(table) if filtered else None)[0].tolist())

    def whole(query: NDArray[np.float32], filtered: bool) -> None:
        ground.graph.query(queries[filtered], {"q": query.tolist()})

    reached = {
        probes: recall(partial(_flipped, ask, probes)) for probes in (1, 2, 4, 8, 16, 32, 64, 128, 4_096)
    }
    probes = min(probes for probes, share in reached.items() if share >= RECALL)
    sides: dict[str, Callable[[Any, bool], object]] = {
        "room": room,
        "query": whole,
        "bare": partial(_flipped, ask, probes),
    }
    return {
        "recall": recall(room),
        "bare recall": round(reached[probes], 3),
        "bare probes": probes,
        **_sides([query for _, query in ground.asked], sides),
        "bare brute force ms": round(timed(lambda: ask(ground.asked[0][1], False, None)), 2),
    }


def _flipped(
    ask: Callable[..., list[int]], probes: int, query: NDArray[np.float32], filtered: bool
) -> list[int]:
    return ask(query, filtered, probes)


def _nearest(
    stored: NDArray[np.float32], query: NDArray[np.float32], among: NDArray[np.int64] | None
) -> set[int]:
    distances = measured(stored, as_query(query.tolist()))
    if among is not None:
        distances[np.setdiff1d(np.arange(len(stored)), among)] = np.inf
    return set(np.argsort(distances, kind="stable")[:TOP].tolist())


def _sides(asked: Sequence[Any], sides: Mapping[str, Callable[[Any, bool], object]]) -> dict[str, Any]:
    """Return milliseconds of each side and ratios to the bare one, without and with the filter, in turns."""
    found: dict[str, Any] = {}
    for filtered, label in ((False, "all"), (True, "filtered")):
        rounds: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(ROUNDS + 1):
            for name, side in sides.items():
                started = time.perf_counter()
                for one in asked:
                    side(one, filtered)
                if number:  # the first round warms up
                    rounds[name].append((time.perf_counter() - started) * 1e3 / len(asked))
        times = {name: median(spent) for name, spent in rounds.items()}
        ratios = {f"{name} ratio": ms / times["bare"] for name, ms in times.items() if name != "bare"}
        found[label] = {name: round(value, 2) for name, value in {**times, **ratios}.items()}
    return found


def first(ground: Ground) -> dict[str, Any]:
    """Time a first search with nothing in memory: by the index, and by analysing every text."""
    ensure_indexes(ground.graph.store, Catalogs(ground.graph.store.schemas))
    query = vocabulary()[5_000]
    started = time.perf_counter()
    by_index = Search().text(ground.table(), "text").matches(query)
    middle = time.perf_counter()
    by_corpus = Search().text(ground.table(), "text").corpus.matches(query)
    ended = time.perf_counter()
    return {
        "same": bool(np.array_equal(by_index, by_corpus)),
        "by index s": round(middle - started, 2),
        "by analysis s": round(ended - middle, 2),
    }


def again(ground: Ground) -> dict[str, Any]:
    """Time the first ranking after one document was replaced."""
    ground.search.text(ground.table(), "text").scores("warm")
    declared = ground.graph.schema.catalog().node("Doc")
    row = ground.table().handle.take([7]).select(declared.stored_schema.names)
    effects = {declared.id: Upsert(row)}
    ground.graph.store.publish("main", PlannedWrite(PublishPlan(CommitKind.MUTATION, effects=effects)))
    table = ground.table()
    started = time.perf_counter()
    ground.search.text(table, "text").top(ground.asked[0][0], TOP)
    middle = time.perf_counter()
    ground.search.vectors(table, "embedding").top(ground.asked[0][1].tolist(), TOP)
    ended = time.perf_counter()
    return {"text ms": round((middle - started) * 1e3, 1), "vectors ms": round((ended - middle) * 1e3, 1)}


def main() -> None:
    """Run everything and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        ground = Ground(options.folder or Path(temporary), options.documents)
        found = {
            "first": first(ground),
            "text": text(ground),
            "vectors": vectors(ground),
            "again": again(ground),
        }
        ground.graph.close()
    if options.json:
        print(json.dumps(found))
        return
    for name, one in found.items():
        print(name)
        for key, value in one.items():
            print(f"    {key:22} {value}")


if __name__ == "__main__":
    main()
