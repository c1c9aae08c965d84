"""Deletion files as Lance writes them are known as such, and damaged ones are not."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, cast

import lance
import pyarrow as pa
import pytest

from omnigraph.storage.tables.deletions import is_deletions
from tests.support.processes import run_processes

ROWS = 200_000
SHAPES = {
    "a few": "i < 5",
    "every third": "i % 3 = 0",
    "every fiftieth": "i % 50 = 0",
    "a long run": "i < 150000",
    "runs": "i % 5000 < 4000",
    "one": "i = 199999",
    "some of the end": "i > 190000 and i % 7 = 0",
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of numbers."""
    place = tmp_path_factory.mktemp("deletions") / "t.lance"
    lance.write_dataset(pa.table({"i": range(ROWS)}), str(place))
    return place


def written(base: Path, shape: str) -> tuple[Path, Any]:
    """Delete rows; return the file that says so and what the fragment says of it."""
    dataset: Any = lance.dataset(str(base), version=1)
    dataset.restore()
    dataset.delete(SHAPES[shape])
    (fragment,) = lance.dataset(str(base)).get_fragments()
    deletion = fragment.metadata.deletion_file
    assert deletion is not None
    return base / str(deletion.path(fragment.fragment_id)), deletion


@pytest.mark.parametrize("shape", SHAPES)
def test_what_lance_writes_is_known_and_what_is_cut_or_counted_otherwise_is_not(
    base: Path, shape: str
) -> None:
    file, deletion = written(base, shape)
    content, suffix = file.read_bytes(), file.suffix[1:]
    deleted = deletion.num_deleted_rows

    assert is_deletions(content, suffix, deleted, ROWS)
    assert not is_deletions(content, suffix, deleted + 1, ROWS)
    assert not is_deletions(content, suffix, deleted, deleted - 1)
    for cut in range(0, len(content), max(1, len(content) // 50)):
        assert not is_deletions(content[:cut], suffix, deleted, ROWS)


@pytest.mark.slow
def test_what_is_taken_for_whole_does_not_end_the_process_that_reads_it(base: Path) -> None:
    """A bit that makes another row a deleted one is not seen here; Lance reads it, or says that it cannot."""
    (outcome,) = run_processes(read_damaged, [(str(base), 60)], timeout_s=300)

    assert outcome.ok, outcome
    taken, refused = outcome.value or (0, 0)
    assert min(taken, refused) > 20


def read_damaged(place: str, times: int) -> tuple[int, int]:
    """Damage each file in many ways; have Lance read what is taken for whole. Return how many were."""
    base, random, native = Path(place), Random(1), cast(Any, lance)
    taken = refused = 0
    for shape in SHAPES:
        file, deletion = written(base, shape)
        content = file.read_bytes()
        for _ in range(times):
            damaged = bytearray(content)
            damaged[random.randrange(min(len(content), 700))] ^= 1 << random.randrange(8)
            if not is_deletions(bytes(damaged), file.suffix[1:], deletion.num_deleted_rows, ROWS):
                refused += 1
                continue
            taken += 1
            file.write_bytes(damaged)
            with suppress(BaseException):  # a panic is one of these
                lance.dataset(str(base), session=native.Session()).to_table()
        file.write_bytes(content)
    return taken, refused
