"""Derived files: whatever happens to one, it gives the values that were written or is refused."""

from __future__ import annotations

import datetime as dt
import json
import os
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.storage.derived import key_hashes
from omnigraph.storage.derived.adjacency import Base, Bases, Cover, base_of
from omnigraph.storage.derived.blocks import (
    BLOCK,
    FIRST_READ,
    FIXED,
    Array,
    BlockFile,
    Unusable,
    decoded,
    encoded,
)
from omnigraph.storage.derived.fetched import FetchedFile
from omnigraph.storage.derived.files import DerivedFiles
from omnigraph.storage.derived.key_hashes import (
    ARRAY,
    KIND,
    KeyHashes,
    covers_of,
    entries_of,
    hashable,
    hashes_of,
    row_bits,
)
from omnigraph.storage.location import Location
from tests.support.derived import InMemory, few_hashes

SEED = 0x1234_5678_9ABC_DEF0
COVERS = {"file": "a.lance", "rows": 5}


def arrays_of(seed: int, length: int) -> dict[str, Array]:
    """Return arrays of several widths, one of them empty."""
    rng = np.random.default_rng(seed)
    return {
        "wide": rng.integers(0, 2**63, length, dtype=np.uint64),
        "narrow": rng.integers(-9, 9, length // 3, dtype=np.int32),
        "none": np.zeros(0, np.int64),
        "small": rng.integers(0, 255, 7, dtype=np.uint8),
    }


def content(arrays: dict[str, Array], covers: dict[str, Any] | None = None) -> bytes:
    return b"".join(encoded("test", covers or COVERS, arrays))


def read(path: Path) -> dict[str, Array]:
    """Return all arrays of a file, checked."""
    file = BlockFile.mapped(path)
    return {name: file.whole(name).copy() for name in file.arrays}


def assert_same(found: dict[str, Array], expected: dict[str, Array]) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        assert (found[name] == values).all()
        assert len(found[name]) == len(values)


def damaged_or_same(path: Path, data: bytes, expected: dict[str, Array]) -> bool:
    """Say whether a file with some content is refused; otherwise it must hold what was written."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    try:
        found = read(path)
    except Unusable:
        return True
    assert_same(found, expected)
    return False


# -- the format


@pytest.mark.parametrize("length", [0, 1, 8_191, 8_192, 8_193, 100_000])
def test_a_file_gives_back_what_was_written(tmp_path: Path, length: int) -> None:
    arrays = arrays_of(1, length)
    (tmp_path / "f").write_bytes(content(arrays))

    file = BlockFile.mapped(tmp_path / "f")

    assert (file.header.kind, file.header.covers) == ("test", COVERS)
    assert_same(read(tmp_path / "f"), arrays)
    assert file.nbytes == (tmp_path / "f").stat().st_size


def test_a_header_longer_than_the_first_read_is_read_whole(tmp_path: Path) -> None:
    arrays = arrays_of(2, 50_000)
    covers = {"files": [f"{n:032x}.lance" for n in range(FIRST_READ // 30)]}
    (tmp_path / "f").write_bytes(content(arrays, covers))

    assert_same(read(tmp_path / "f"), arrays)
    assert BlockFile.mapped(tmp_path / "f").header.covers == covers
    fetched = FetchedFile.open(InMemory(content(arrays, covers)), None)
    assert_same({name: fetched.whole(name) for name in fetched.arrays}, arrays)


def test_arrays_begin_where_vectors_can_be_loaded_from() -> None:
    header = decoded(content(arrays_of(3, 1_001)), None)

    assert not isinstance(header, int)
    assert header.body % 64 == 0
    assert {place % 64 for _, _, place in header.arrays.values()} == {0}


def test_a_file_cut_at_any_length_is_refused(tmp_path: Path) -> None:
    whole = content(arrays_of(4, 700))

    for length in range(len(whole)):
        assert damaged_or_same(tmp_path / "f", whole[:length], {})


def test_a_file_that_is_too_long_is_refused(tmp_path: Path) -> None:
    assert damaged_or_same(tmp_path / "f", content(arrays_of(4, 700)) + b"x", {})


def test_any_flipped_bit_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    """Only the padding between checksums and body is not covered, and nobody reads that."""
    arrays = arrays_of(5, 500)
    whole = content(arrays)
    header = decoded(whole, None)
    assert not isinstance(header, int)
    unread = set(range(FIXED + len(json_of(whole)) + 4 * len(header.checksums), header.body))

    for at in range(len(whole)):
        broken = bytearray(whole)
        broken[at] ^= 1 << at % 8
        assert damaged_or_same(tmp_path / "f", bytes(broken), arrays) == (at not in unread)


@pytest.mark.parametrize("seed", range(20))
def test_random_damage_never_gives_other_values(tmp_path: Path, seed: int) -> None:
    rnd, arrays = Random(seed), arrays_of(seed, 30_000)
    whole = content(arrays)

    for _ in range(40):
        broken = bytearray(whole)
        for _ in range(rnd.randint(1, 5)):
            front = rnd.random() < 0.5  # half of it where the header is
            at = rnd.randrange(min(600, len(whole)) if front else len(whole))
            size = rnd.randint(1, rnd.choice([1, 8, 5_000]))
            broken[at : at + size] = rnd.randbytes(min(size, len(whole) - at))
        damaged_or_same(tmp_path / "f", bytes(broken), arrays)


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"3",
        b"{",
        b"\xff",
        b'{"size": 1e999}',
        b'{"size": -70000, "arrays": {}}',
        b"[" * 100_000,
        b'{"size": 64, "arrays": [], "kind": "k", "covers": {}}',
        b'{"size": 1, "arrays": {"a": 3}}',
    ],
)
def test_a_header_that_makes_no_sense_is_refused(tmp_path: Path, header: bytes) -> None:
    front = b"OGDERIV1" + len(header).to_bytes(4, "little") + zlib.crc32(header).to_bytes(4, "little")

    assert damaged_or_same(tmp_path / "f", front + header + bytes(200), {})


def test_a_damaged_block_harms_no_other_block(tmp_path: Path) -> None:
    arrays = {"a": np.arange(5 * BLOCK // 8, dtype=np.uint64)}
    broken = bytearray(content(arrays))
    broken[-1] ^= 1
    (tmp_path / "f").write_bytes(broken)

    file = BlockFile.mapped(tmp_path / "f")
    file.ensure("a", [(0, 4 * BLOCK // 8)])
    file.ensure_at("a", np.array([0, 1_000]))
    for look in (
        lambda: file.whole("a"),
        lambda: file.ensure("a", [(4 * BLOCK // 8, 4 * BLOCK // 8 + 1)]),
        lambda: file.ensure_at("a", np.array([5 * BLOCK // 8 - 1])),
        file.check,
    ):
        with pytest.raises(Unusable):
            look()


def test_a_missing_an_empty_and_a_foreign_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unusable):
        BlockFile.mapped(tmp_path / "none")
    with pytest.raises(Unusable):
        BlockFile.mapped(tmp_path)
    assert damaged_or_same(tmp_path / "f", b"", {})
    assert damaged_or_same(tmp_path / "f", b"PAR1" * 1_000, {})


def json_of(whole: bytes) -> bytes:
    length = int.from_bytes(whole[8:12], "little")
    assert json.loads(whole[FIXED : FIXED + length])
    return whole[FIXED : FIXED + length]


# -- hashes

TEXTS = ["", "a", "b", "ä", "日本", "\x00", "\x00\x00", "a" * 7, "a" * 8, "a" * 9, "a" * 16, "x" * 100]
TEXTS += [("é" * 60)[:n] for n in range(1, 60)] + [f"key {n}" for n in range(500)]
SPREAD = [0, 1, -1, 127, -128]


def columns() -> dict[str, pa.Array]:
    """Return distinct values of every kind that is found by hash."""
    unsigned = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    signed = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
    day, instant = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
    times = [instant + dt.timedelta(seconds=n) for n in range(-50, 50)]
    return {
        "string": pa.array(TEXTS),
        **{str(kind): pa.array([0, 1, 127, 2**kind.bit_width - 1], kind) for kind in unsigned},
        **{str(kind): pa.array([*SPREAD, -(2 ** (kind.bit_width - 1))][:5], kind) for kind in signed},
        "date32": pa.array([day + dt.timedelta(days=n) for n in range(-50, 50)], pa.date32()),
        "date64": pa.array([day + dt.timedelta(days=n) for n in range(-50, 50)], pa.date64()),
        **{
            f"timestamp {unit}": pa.array(times, pa.timestamp(unit, "UTC"))
            for unit in ("s", "ms", "us", "ns")
        },
    }


COLUMNS = columns()


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_value_has_one_hash_wherever_it_stands(kind: str) -> None:
    values = COLUMNS[kind]
    assert hashable(values.type)

    together = hashes_of(values, SEED)

    assert len(np.unique(together)) == len(values), "64 bits: some of these are alike only by a mistake"
    alone = [int(hashes_of(pa.array([value.as_py()], values.type), SEED)[0]) for value in values]
    assert together.tolist() == alone
    for start in range(min(len(values), 20)):
        assert hashes_of(values.slice(start), SEED).tolist() == alone[start:]
        assert hashes_of(values.slice(start, 2), SEED).tolist() == alone[start : start + 2]
    chunked = pa.chunked_array([values.slice(0, 3), values.slice(3, 0), values.slice(3)])
    assert hashes_of(chunked, SEED).tolist() == alone
    assert hashes_of(pa.concat_arrays([values, values]), SEED).tolist() == alone * 2
    assert hashes_of(values, SEED + 1).tolist() != alone


def test_more_values_than_are_hashed_together_have_the_hashes_they_have_alone() -> None:
    texts = pa.array([f"{'x' * (n % 40)}{n}" for n in range(key_hashes.STRETCH + 100)])

    together = hashes_of(texts, SEED)

    for at in (0, 1, key_hashes.STRETCH - 1, key_hashes.STRETCH, len(texts) - 1):
        assert hashes_of(texts.slice(at, 1), SEED) == together[at]


def test_no_values_have_no_hashes() -> None:
    assert len(hashes_of(pa.array([], pa.string()), SEED)) == 0
    assert len(hashes_of(pa.chunked_array([], pa.int64()), SEED)) == 0
    assert len(entries_of(pa.array([None, None], pa.string()))) == 0


@pytest.mark.parametrize("kind", [pa.float64(), pa.bool_(), pa.list_(pa.int64()), pa.binary()])
def test_other_values_are_not_found_by_hash(kind: pa.DataType) -> None:
    assert not hashable(kind)


# -- finding


def opened(entries: Array, rows: int, path: Path) -> KeyHashes:
    """Write entries to a file and open that."""
    covers = covers_of("f.lance", 1, rows)
    path.write_bytes(b"".join(encoded(KIND, covers, {ARRAY: entries})))
    return KeyHashes.open(BlockFile.mapped(path), covers)


def matches(keys: KeyHashes, column: pa.Array, wanted: pa.Array) -> set[tuple[int, int]]:
    """Return (which value, row) of the rows that hold a value, as whoever finds rows compares them."""
    which, found = keys.find(key_hashes.hashes_of(wanted))
    assert (found >= 0).all()
    assert (found < len(column)).all()
    pairs = list(zip(which.tolist(), found.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    same = pc.fill_null(pc.equal(column.take(pa.array(found)), wanted.take(pa.array(which))), False)
    return {pair for pair, is_same in zip(pairs, same.to_pylist(), strict=True) if is_same}


@pytest.mark.parametrize("hashing", ["even", "colliding"])
@pytest.mark.parametrize("rows", [1, 2, 3, 1_000, 20_000])
def test_every_row_that_has_a_value_is_found_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, hashing: str
) -> None:
    rnd = Random(rows)
    if hashing == "colliding":
        rows = min(rows, 1_000)
        monkeypatch.setattr(key_hashes, "hashes_of", few_hashes)
    texts = [rnd.choice([None, f"v{rnd.randrange(rows * 2)}", f"v{rnd.randrange(9)}"]) for _ in range(rows)]
    column = pa.array(texts, pa.string())
    places: dict[str, set[int]] = {}
    for row, text in enumerate(texts):
        if text is not None:
            places.setdefault(text, set()).add(row)

    entries = key_hashes.entries_of(column)

    assert len(entries) == rows - column.null_count
    for keys in (KeyHashes(entries, rows), opened(entries, rows, tmp_path / "f")):
        for count in (0, 1, 3, key_hashes.FEW, key_hashes.FEW + 1, 500):
            names = list({f"v{rnd.randrange(rows * 2)}" for _ in range(count)} | ({"v1"} if count else set()))
            found = matches(keys, column, pa.array(names, pa.string()))
            expected = {(n, row) for n, name in enumerate(names) for row in places.get(name, ())}
            assert found == expected


def test_rows_are_numbered_in_as_few_bits_as_there_are_rows() -> None:
    assert [row_bits(rows) for rows in (0, 1, 2, 3, 4, 5, 2**20, 2**20 + 1)] == [0, 0, 1, 2, 2, 3, 20, 21]


def test_key_hashes_of_another_file_or_column_are_refused(tmp_path: Path) -> None:
    entries = entries_of(pa.array(["a", "b"]))
    opened(entries, 2, tmp_path / "f")
    file = BlockFile.mapped(tmp_path / "f")

    assert KeyHashes.open(file, covers_of("f.lance", 1, 2)).rows == 2
    for covers in (
        covers_of("g.lance", 1, 2),
        covers_of("f.lance", 2, 2),
        covers_of("f.lance", 1, 3),
    ):
        with pytest.raises(Unusable):
            KeyHashes.open(file, covers)


# -- adjacency


def base(edges: int = 50, **changes: Any) -> Base:
    rng = np.random.default_rng(edges)
    sources, targets = (rng.integers(-1, 10, edges).astype(np.int32) for _ in range(2))
    cover = Cover("s", "t", (("e.lance", edges),), (("s.lance", 10),), (("t.lance", 10),))
    with ThreadPoolExecutor(1) as pool:
        return base_of(cover, sources, targets, (10, 10), pool)


def test_adjacency_is_found_by_what_it_covers_whatever_its_name(tmp_path: Path) -> None:
    files = DerivedFiles(Location(str(tmp_path)))
    bases, stored = Bases(files), base()
    bases.write("k", stored)
    folder = tmp_path / "tables" / "k" / "_derived" / "adjacency"
    (file,) = folder.iterdir()
    file.rename(folder / f"{10**11}-of-another-one")

    found = bases.newest("k", stored.cover)

    assert found is not None
    assert found.cover == stored.cover
    assert found.loose.tolist() == stored.loose.tolist()
    for here, there in ((found.forward, stored.forward), (found.backward, stored.backward)):
        assert here.starts().tolist() == there.offsets.tolist()
        assert here.all_others().tolist() == there.others.tolist()
        assert here.all_edges().tolist() == there.edges.tolist()
    others = Cover("s", "t", (("other.lance", 50),), stored.cover.sources, stored.cover.targets)
    assert bases.newest("k", others) is None


def test_the_largest_adjacency_that_fits_and_is_undamaged_is_taken(tmp_path: Path) -> None:
    files = DerivedFiles(Location(str(tmp_path)))
    bases, small = Bases(files), base(30)
    wanted = Cover("s", "t", (*small.cover.edges, ("f.lance", 70)), small.cover.sources, small.cover.targets)
    bases.write("k", small)
    files.write("k", wanted.name, "adjacency", wanted.to_json(), {})  # it has no lists
    (tmp_path / "tables" / "k" / "_derived" / "adjacency" / "zzz").write_bytes(b"nothing")

    found = bases.newest("k", wanted)

    assert found is not None
    assert found.cover == small.cover


# -- writing


def test_a_file_that_cannot_be_written_is_said_to_be_missing_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full takes a part of what is written, then nothing."""
    files = DerivedFiles(Location(str(tmp_path)))
    real = Path.open

    class Full:
        def __init__(self, file: Any) -> None:
            self._file, self._room = file, 1_000

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def write(self, data: memoryview) -> int:
            if not self._room:
                raise OSError(28, "No space left on device")
            taken = min(self._room, len(data))
            self._room -= taken
            return int(self._file.write(data[:taken]))

    monkeypatch.setattr(Path, "open", lambda path, *args, **options: Full(real(path, *args, **options)))
    assert not files.write("t", "_derived/f/keys-1", KIND, COVERS, arrays_of(7, 5_000))

    monkeypatch.undo()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    with pytest.raises(Unusable):
        files.open("t", "_derived/f/keys-1")
    assert files.write("t", "_derived/f/keys-1", KIND, COVERS, arrays_of(7, 5_000))
    assert_same(read(tmp_path / "tables/t/_derived/f/keys-1"), arrays_of(7, 5_000))


def test_a_file_that_is_replaced_stays_as_it_was_for_whoever_has_mapped_it(tmp_path: Path) -> None:
    files = DerivedFiles(Location(str(tmp_path)))
    before, after = arrays_of(8, 50_000), arrays_of(9, 10)
    files.write("t", "_derived/f/keys-1", KIND, COVERS, before)
    held = files.open("t", "_derived/f/keys-1")

    files.write("t", "_derived/f/keys-1", KIND, COVERS, after)

    assert_same({name: held.whole(name) for name in held.arrays}, before)
    now = files.open("t", "_derived/f/keys-1")
    assert_same({name: now.whole(name) for name in now.arrays}, after)


def names(found: Iterable[Path]) -> list[str]:
    return sorted(path.name for path in found)


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = DerivedFiles(Location(str(tmp_path)))
    seen: list[list[str]] = []
    replace = os.replace

    def look(source: Path, target: Path) -> None:
        seen.append(names(path for path in tmp_path.rglob("*") if path.is_file()))
        replace(source, target)

    monkeypatch.setattr("os.replace", look)
    files.write("t", "_derived/f/keys-1", KIND, COVERS, arrays_of(7, 500))

    assert [name for (name,) in seen if not name.startswith(".keys-1.")] == []
    assert names(path for path in tmp_path.rglob("*") if path.is_file()) == ["keys-1"]


def test_a_larger_adjacency_takes_the_place_of_all_but_a_few_smaller_ones(tmp_path: Path) -> None:
    """Loads write one for each fiftieth that the edges grow: all of them would be many times the data."""
    files = DerivedFiles(Location(str(tmp_path)))
    bases, nodes = Bases(files), (("s.lance", 10),)
    covers = [
        Cover("s", "t", tuple((f"e{n}.lance", 10) for n in range(count)), nodes, nodes)
        for count in range(1, 7)
    ]
    other = Cover("s", "t", (("of another branch.lance", 5),), nodes, nodes)
    for cover in (other, *covers):
        with ThreadPoolExecutor(1) as pool:
            nothing = np.zeros(0, np.int32)
            assert bases.write("k", base_of(cover, nothing, nothing, (10, 10), pool))

    stored = files.names("k", "_derived/adjacency")

    assert set(stored) == {cover.name for cover in (other, *covers[-3:])}
