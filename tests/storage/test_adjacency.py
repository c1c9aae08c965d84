"""Adjacency: numbers of nodes by hash are those by text, and lists are in order whatever the numbers are."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter

from omnigraph.storage.derived import adjacency, key_hashes
from omnigraph.storage.derived.adjacency import Base, Bases, ByHash, Cover, Files, base_of
from omnigraph.storage.derived.blocks import Unusable
from omnigraph.storage.derived.files import DerivedFiles
from omnigraph.storage.derived.key_hashes import Hashes, KeyHashes, entries_of
from omnigraph.storage.location import Location

NODES, EDGES = "nodes", "edges"


class Tables:
    """Data files of a node table and of an edge table, with key hashes in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = DerivedFiles(Location(str(folder)))

    def write(self, table_id: str, pieces: Sequence[dict[str, list[str]]]) -> Files:
        place = self.folder / "tables" / table_id / "data"
        place.mkdir(parents=True)
        written = []
        for number, piece in enumerate(pieces):
            rows = pa.table({name: pa.array(texts, pa.string()) for name, texts in piece.items()})
            with LanceFileWriter(str(place / f"{number}.lance"), rows.schema) as writer:
                writer.write_batch(rows)
            written.append((f"{number}.lance", rows.num_rows))
        return tuple(written)

    def keys(self, table_id: str, data_file: str, column: str, rows: int) -> KeyHashes:
        values = self.files.column(table_id, data_file, column)
        assert len(values) == rows
        return KeyHashes(entries_of(values), rows)

    def by_text(self, cover: Cover) -> Base:
        with ThreadPoolExecutor(2) as pool:
            return Bases(self.files).build(EDGES, cover, pool)

    def by_hash(self, cover: Cover, outside: Sequence[str]) -> Base:
        ids = pa.array(outside, pa.string())
        join = ByHash.of(self.files, self.keys, EDGES, cover, (ids, ids))
        with ThreadPoolExecutor(2) as pool:
            return Bases(self.files).build(EDGES, cover, pool, join)


def assert_equal(one: Base, other: Base) -> None:
    arrays, expected = one.to_file()[1], other.to_file()[1]
    assert arrays.keys() == expected.keys()
    for name, values in expected.items():
        assert arrays[name].dtype == values.dtype, name
        assert arrays[name].tolist() == values.tolist(), name


def weak_hashes(values: pa.Array | pa.ChunkedArray, seed: int = 0) -> Hashes:
    """Hash texts to a few values, spread over all there are."""
    numbers = [sum(map(ord, text)) % 7 for text in values.to_pylist()]
    return np.array(numbers, dtype=np.uint64) * np.uint64(2**61 + 12_345)


def pieces(texts: list[list[str]], names: list[str], rnd: Random) -> list[dict[str, list[str]]]:
    """Cut columns of equal length into one to three files."""
    count = len(texts[0])
    cuts = sorted(rnd.sample(range(count + 1), rnd.randint(0, 2)))
    return [
        {name: column[start:stop] for name, column in zip(names, texts, strict=True)}
        for start, stop in zip([0, *cuts], [*cuts, count], strict=True)
        if stop > start
    ]


@pytest.mark.parametrize("weak", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_adjacency_by_hash_is_that_by_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, weak: bool
) -> None:
    if weak:
        monkeypatch.setattr(key_hashes, "hashes_of", weak_hashes)
        monkeypatch.setattr(adjacency, "hashes_of", weak_hashes)
    rnd = Random(seed)
    ids = [f"n{number}" for number in range(40)]
    inside, outside = ids[:30], ids[30:]
    rows = rnd.sample(inside, 30) + rnd.choices(inside, k=5)  # some were written again: the first row counts
    ends = [rnd.choices(ids, k=200) for _ in range(2)]
    tables = Tables(tmp_path)
    nodes = tables.write(NODES, pieces([rows], ["id"], rnd))
    edges = tables.write(EDGES, pieces(ends, ["src", "dst"], rnd))
    cover = Cover(NODES, NODES, edges, nodes, nodes)

    assert_equal(tables.by_hash(cover, outside), tables.by_text(cover))


def test_a_node_outside_with_the_hash_of_one_inside_costs_a_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (key_hashes, adjacency):
        monkeypatch.setattr(module, "hashes_of", weak_hashes)
    tables = Tables(tmp_path)
    nodes = tables.write(NODES, [{"id": ["ab", "b"]}])
    edges = tables.write(EDGES, [{"src": ["ab", "ba", "b"], "dst": ["b", "ab", "ba"]}])

    base = tables.by_hash(Cover(NODES, NODES, edges, nodes, nodes), ["ba"])  # the hash of "ab"

    assert base.loose.tolist() == [1, 2]
    assert base.forward.others.tolist() == [1]


@pytest.mark.parametrize("side", ["edges", "sources", "targets"])
def test_more_rows_than_a_base_can_number_are_refused(tmp_path: Path, side: str) -> None:
    few = (("a.lance", 1),)
    many = (("a.lance", 2**30), ("b.lance", 2**30))
    files = {"edges": few, "sources": few, "targets": few, side: many}
    cover = Cover(NODES, NODES, **files)

    with pytest.raises(Unusable, match="than one base can number"), ThreadPoolExecutor(1) as pool:
        Bases(DerivedFiles(Location(str(tmp_path)))).build(EDGES, cover, pool)


@pytest.mark.parametrize("span", [1, 2, 50, 2**20, 2**31 - 1])
@pytest.mark.parametrize("count", [0, 1, 2, 3_000])
def test_lists_are_in_order_however_many_bits_numbers_take(span: int, count: int) -> None:
    rng = np.random.default_rng(span % 1_000 + count)
    few = min(span, 60)  # so that pairs repeat
    sources, targets = (rng.integers(0, few, count).astype(np.int32) for _ in range(2))
    targets = np.where(targets == few - 1, span - 1, targets).astype(np.int32)
    edges = np.sort(rng.choice(4 * count + 1, count, replace=False)).astype(np.int32)

    side = adjacency.sorted_side(sources, targets, edges, (few, span))

    order = sorted(range(count), key=lambda at: (sources[at], targets[at], edges[at]))
    assert side.others.tolist() == targets[order].tolist()
    assert side.edges.tolist() == edges[order].tolist()
    assert side.offsets.tolist() == [int((sources < node).sum()) for node in range(few + 1)]
    assert side.degrees.tolist() == [len(set(targets[sources == node].tolist())) for node in range(few)]
    assert {array.dtype for array in (side.others, side.edges, side.offsets, side.degrees)} == {
        np.dtype(np.int32)
    }


def test_edges_with_an_end_that_has_no_number_are_loose() -> None:
    sources, targets = np.array([0, -1, 1, 1], np.int32), np.array([2, 0, -1, 0], np.int32)
    cover = Cover(NODES, NODES, (("e.lance", 4),), (("n.lance", 3),), (("n.lance", 3),))
    with ThreadPoolExecutor(1) as pool:
        base = base_of(cover, sources, targets, (3, 3), pool)

    assert base.loose.tolist() == [1, 2]
    assert base.forward.edges.tolist() == [0, 3]
    assert base.backward.edges.tolist() == [3, 0]
