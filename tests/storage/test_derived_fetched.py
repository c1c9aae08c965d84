"""Derived files on object stores: blocks are fetched once, and kept in a bounded folder or in memory."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from threading import Barrier, Thread

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.storage.derived import fetched
from omnigraph.storage.derived.blocks import BLOCK, MAPPING_COST, Array, BlockFile, Unusable, encoded
from omnigraph.storage.derived.fetched import CacheFolder, FetchedFile
from omnigraph.storage.derived.files import DerivedFiles
from omnigraph.storage.derived.key_hashes import ARRAY, KIND, KeyHashes, covers_of, entries_of, hashes_of
from omnigraph.storage.location import Location
from tests.support.derived import InMemory

GRAPH = "s3://bucket/graph"
PER_BLOCK = BLOCK // 8


def numbers(blocks: int) -> dict[str, Array]:
    return {"a": np.arange(blocks * PER_BLOCK, dtype=np.uint64)}


def content(arrays: dict[str, Array]) -> bytes:
    return b"".join(encoded("test", {}, arrays))


def folder(root: Path, limit: int = 1 << 30) -> CacheFolder:
    return CacheFolder(root, GRAPH, limit)


def files_in(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def taken(root: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in files_in(root))


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "in a folder"])
def test_blocks_are_fetched_once_and_only_those_that_are_needed(tmp_path: Path, kept: bool) -> None:
    arrays = numbers(40)
    source = InMemory(content(arrays))

    file = FetchedFile.open(source, folder(tmp_path / "x") if kept else None)
    file.ensure("a", [(0, 5), (3, 9)])
    assert len(source.asked) == 1, "what came with the header is not asked for again"
    far = 20 * PER_BLOCK
    file.ensure("a", [(far, far + 5), (far + 3, far + 9)])
    file.ensure_at("a", np.array([30 * PER_BLOCK]))
    file.ensure("a", [(far, far + 5)])

    assert sum(stop - start for start, stop in source.asked[1:]) == 2 * BLOCK
    assert (file.whole("a") == arrays["a"]).all()
    source.asked.clear()
    file.whole("a")
    assert not source.asked


def test_what_was_fetched_into_a_folder_is_used_again_if_it_is_undamaged(tmp_path: Path) -> None:
    arrays = numbers(10)
    source = InMemory(content(arrays))
    FetchedFile.open(source, folder(tmp_path), "f").whole("a")

    source.asked.clear()
    assert (FetchedFile.open(source, folder(tmp_path), "f").whole("a") == arrays["a"]).all()
    assert len(source.asked) == 1, "the header alone"

    (kept,) = files_in(tmp_path)
    broken = bytearray(kept.read_bytes())
    broken[-1] ^= 1
    kept.unlink()
    kept.write_bytes(broken)
    source.asked.clear()
    assert (FetchedFile.open(source, folder(tmp_path), "f").whole("a") == arrays["a"]).all()
    assert len(source.asked) == 2, "the header and the block that was damaged"


def test_an_object_that_is_cut_short_or_damaged_is_refused() -> None:
    whole = content(numbers(9))
    broken = bytearray(whole)
    broken[-70] ^= 1

    for data in (whole[:-1], whole[: len(whole) // 2], whole[:20], b"", bytes(broken)):
        with pytest.raises(Unusable):
            FetchedFile.open(InMemory(data), None).check()


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "in a folder"])
def test_a_file_is_fetched_whole_once_requests_for_it_have_cost_as_much(tmp_path: Path, kept: bool) -> None:
    """A writer that looks rows up again and again would ask for a few blocks each time."""
    arrays = numbers(100)  # 6.25 MiB
    source = InMemory(content(arrays))
    file = FetchedFile.open(source, folder(tmp_path) if kept else None)

    for block in range(10, 100, 10):
        file.ensure("a", [(block * PER_BLOCK, block * PER_BLOCK + 1)])

    sizes = [(stop - start) // BLOCK for start, stop in source.asked[1:]]
    assert sizes[:5] == [1] * 5
    assert sum(sizes[5:]) > 80
    assert len(sizes) < 9
    assert (file.whole("a") == arrays["a"]).all()
    assert len(source.asked) == len(sizes) + 1


# -- the folder


def test_files_of_the_user_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_bytes(b"x" * 100_000)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_bytes(b"x" * 100_000)

    for n in range(3):
        FetchedFile.open(InMemory(content(numbers(4))), folder(tmp_path, limit=0), f"f{n}").whole("a")

    names = [path.name for path in files_in(tmp_path)]
    assert {"thesis.tex", "cat.png"} <= set(names)


def test_the_folder_stays_within_its_size_while_blocks_are_fetched(tmp_path: Path) -> None:
    limit = 40 * BLOCK
    cache = folder(tmp_path, limit)
    for n in range(20):
        arrays = numbers(10)
        file = FetchedFile.open(InMemory(content(arrays)), cache, f"f{n}")
        for block in range(10):
            file.ensure("a", [(block * PER_BLOCK, block * PER_BLOCK + 1)])
            assert taken(tmp_path) <= limit + BLOCK
        assert (file.whole("a") == arrays["a"]).all()


def test_the_first_write_of_a_process_makes_room(tmp_path: Path) -> None:
    """Processes that fetch a little each must not fill the disk together."""
    limit = 8 * BLOCK
    for n in range(10):
        FetchedFile.open(InMemory(content(numbers(2))), folder(tmp_path, limit), f"f{n}").whole("a")

    assert taken(tmp_path) <= limit + 2 * BLOCK


def test_files_are_not_listed_for_every_file_that_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, looks = folder(tmp_path), 0
    walk = os.walk

    def look(path: str) -> object:
        nonlocal looks
        looks += 1
        return walk(path)

    monkeypatch.setattr("os.walk", look)
    for n in range(50):
        FetchedFile.open(InMemory(content(numbers(1))), cache, f"f{n}")

    assert looks == 1


def test_a_file_that_another_process_takes_away_does_not_end_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(6):
        FetchedFile.open(InMemory(content(numbers(4))), folder(tmp_path), f"f{n}").whole("a")
    real = os.lstat

    def vanish(path: str) -> os.stat_result:
        if path.endswith("f2"):
            Path(path).unlink(missing_ok=True)
        return real(path)

    monkeypatch.setattr("os.lstat", vanish)
    FetchedFile.open(InMemory(content(numbers(1))), folder(tmp_path, limit=0), "new")

    assert files_in(tmp_path) == []


def test_a_file_that_was_taken_away_to_make_room_goes_on_in_memory(tmp_path: Path) -> None:
    arrays = numbers(20)
    file = FetchedFile.open(InMemory(content(arrays)), folder(tmp_path), "f")
    file.ensure("a", [(0, 8 * PER_BLOCK)])
    (kept,) = files_in(tmp_path)
    kept.unlink()
    kept.write_bytes(bytes(file.nbytes))  # of another process, under the same name

    assert (file.whole("a") == arrays["a"]).all()
    assert kept.read_bytes() == bytes(file.nbytes)


# -- a disk that is full


def refuse_writes(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Let a disk have room for a few writes more."""
    real, left = os.pwrite, after

    def write(descriptor: int, data: bytes, offset: int) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[: len(data) // 2 + 1], offset)

    monkeypatch.setattr("os.pwrite", write)


@pytest.mark.parametrize("after", [0, 1, 3, 9])
def test_on_a_full_disk_blocks_are_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    arrays = numbers(30)
    source = InMemory(content(arrays))
    refuse_writes(monkeypatch, after)

    file = FetchedFile.open(source, folder(tmp_path), "f")
    for block in range(0, 30, 3):
        file.ensure("a", [(block * PER_BLOCK, (block + 1) * PER_BLOCK)])
        part = slice(block * PER_BLOCK, (block + 1) * PER_BLOCK)
        assert (file.arrays["a"][part] == arrays["a"][part]).all()

    assert (file.whole("a") == arrays["a"]).all()
    assert file.held_bytes == file.nbytes


def test_key_hashes_go_on_when_the_disk_gets_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = pa.array([f"id {n}" for n in range(100_000)])
    covers = covers_of("f.lance", 1, len(ids))
    data = b"".join(encoded(KIND, covers, {ARRAY: entries_of(ids)}))
    keys = KeyHashes.open(FetchedFile.open(InMemory(data), folder(tmp_path), "f"), covers)
    computed = KeyHashes(entries_of(ids), len(ids))

    for n in range(0, 100_000, 9_973):
        if n > 30_000:
            refuse_writes(monkeypatch, 0)
        wanted = hashes_of(ids[n : n + 1])
        assert [side.tolist() for side in keys.find(wanted)] == [
            side.tolist() for side in computed.find(wanted)
        ]


def test_threads_see_whole_blocks_while_a_file_is_moved_to_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = numbers(60)
    file = FetchedFile.open(InMemory(content(arrays)), folder(tmp_path), "f")
    refuse_writes(monkeypatch, 25)
    start, wrong = Barrier(4), []

    def read(first: int) -> None:
        start.wait()
        for block in range(first, 60, 2):
            part = slice(block * PER_BLOCK, (block + 1) * PER_BLOCK)
            file.ensure("a", [(part.start, part.stop)])
            if not (file.arrays["a"][part] == arrays["a"][part]).all():
                wrong.append(block)

    threads = [Thread(target=read, args=(n,)) for n in (0, 1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


# -- what keeping a file costs


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_mapped_file_holds_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(content(numbers(40)))
    before = open_descriptors()

    held = [BlockFile.mapped(tmp_path / "f") for _ in range(20)]

    assert open_descriptors() == before
    assert (held[0].whole("a") == numbers(40)["a"]).all()


def test_memory_is_counted_where_there_is_no_file_to_map(tmp_path: Path) -> None:
    data = content(numbers(40))
    (tmp_path / "f").write_bytes(data)
    covers = covers_of("f.lance", 1, 10)
    hashes = b"".join(encoded(KIND, covers, {ARRAY: np.arange(100_000, dtype=np.uint64)}))

    assert BlockFile.mapped(tmp_path / "f").held_bytes == MAPPING_COST
    assert FetchedFile.open(InMemory(data), folder(tmp_path)).held_bytes == fetched.DESCRIPTOR_COST
    assert FetchedFile.open(InMemory(data), None).held_bytes == len(data)
    assert KeyHashes.open(FetchedFile.open(InMemory(hashes), None), covers).nbytes == len(hashes)


# -- checking what is stored


def test_a_damaged_object_is_reported_although_an_undamaged_copy_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_CACHE", str(tmp_path))
    files = DerivedFiles(Location(GRAPH))
    data = bytearray(content(numbers(20)))
    objects = {"tables/t/_derived/f/keys-1": data}
    monkeypatch.setattr(
        "omnigraph.storage.location.RemoteObjects.ranges",
        lambda self, key, ranges: [bytes(objects[key][start:stop]) for start, stop in ranges],
    )
    files.open("t", "_derived/f/keys-1").check()

    data[-5] ^= 1

    assert not files.is_whole("t", "_derived/f/keys-1")
