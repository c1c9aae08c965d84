"""Derived files of a graph on local disk: small tiers so that there are some, and damage of every kind.

Room    tests. A file is only ever replaced by another one, never changed in place: that is all a writer does
        to a file that others may have mapped. Cutting a mapped file short kills whoever reads it (SIGBUS).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from omnigraph.storage.derived.blocks import Ranges
from omnigraph.storage.tables import layout

TINY = (2_500, 5_000)  # a few dozen rows
EVERYTHING = (1, 2)  # any file at all


def small_tiers(
    monkeypatch: pytest.MonkeyPatch, tiers: tuple[int, int] = TINY, *, few: int = 30, cheap: int = 60
) -> None:
    """Count files as settled, and as large, after a few rows; treat few numbers as many."""
    for module in ("omnigraph.storage.tables.layout", "omnigraph.execution.entities"):
        monkeypatch.setattr(f"{module}.TIERS", tiers)
    monkeypatch.setattr(layout, "REWRITE_BELOW", tiers[0] * 3 // 5)
    monkeypatch.setattr("omnigraph.execution.topology.CHEAP", cheap)
    monkeypatch.setattr("omnigraph.execution.moved_nodes.FEW_IDS", few)
    monkeypatch.setattr("omnigraph.execution.moved_nodes.MANY", 5)
    monkeypatch.setattr("omnigraph.execution.adjacency.MANY", 7)


def few_hashes(values: Iterable[Any], seed: int = 0) -> NDArray[np.uint64]:
    """Hash everything to one of a few values, at the ends and in the middle of all there are."""
    some = np.array([0, 1, 2**63, 2**64 - 1, 2**64 - 2**40], dtype=np.uint64)
    return some[np.array([len(str(value)) % 5 for value in values], dtype=np.int64)]


class InMemory:
    """An object, and which ranges of it were asked for."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[tuple[int, int]] = []

    def ranges(self, ranges: Ranges) -> list[bytes]:
        self.asked += ranges
        return [self.data[start:stop] for start, stop in ranges]


def derived_files(graph: str | Path) -> list[Path]:
    """Return the derived files of a graph, in order."""
    return sorted(path for path in Path(graph).glob("tables/*/_derived/*/*") if path.is_file())


def put(path: Path, content: bytes) -> None:
    """Put another file in the place of one."""
    other = path.with_name(f"{path.name}.other")
    other.write_bytes(content)
    other.replace(path)


# -- damage ------------------------------------------------------------------------------------------


def delete(files: list[Path], rnd: Random) -> None:
    """Delete some."""
    for path in rnd.sample(files, rnd.randint(1, len(files))):
        path.unlink()


def delete_all(files: list[Path], rnd: Random) -> None:
    """Delete all."""
    for path in files:
        path.unlink()


def cut(files: list[Path], rnd: Random) -> None:
    """Cut some short."""
    for path in _some(files, rnd):
        content = path.read_bytes()
        put(path, content[: rnd.randrange(len(content))])


def flip(files: list[Path], rnd: Random) -> None:
    """Flip bits in some: anywhere, in the header, in the last block."""
    for path in _some(files, rnd):
        content = bytearray(path.read_bytes())
        for _ in range(rnd.randint(1, 8)):
            at = rnd.randrange(rnd.choice([len(content), min(400, len(content))]))
            at = rnd.choice([at, len(content) - 1 - at])
            content[at] ^= 1 << rnd.randrange(8)
        put(path, bytes(content))


def scramble(files: list[Path], rnd: Random) -> None:
    """Overwrite the second half of some, where the arrays are."""
    for path in _some(files, rnd):
        content = path.read_bytes()
        half = len(content) // 2
        put(path, content[:half] + rnd.randbytes(len(content) - half))


def swap(files: list[Path], rnd: Random) -> None:
    """Let files trade places: each is undamaged, and about something else than its name says."""
    contents = [path.read_bytes() for path in files]
    rnd.shuffle(contents)
    for path, content in zip(files, contents, strict=True):
        put(path, content)


def swap_alike(files: list[Path], rnd: Random) -> None:
    """Let files of one size trade places: of one table and as many rows, as far as there are such."""
    by_size: dict[int, list[Path]] = {}
    for path in files:
        by_size.setdefault(path.stat().st_size, []).append(path)
    for alike in by_size.values():
        contents = [path.read_bytes() for path in alike]
        for path, content in zip(alike, [*contents[1:], contents[0]], strict=True):
            put(path, content)


DAMAGES: dict[str, Callable[[list[Path], Random], None]] = {
    damage.__name__: damage for damage in (delete, delete_all, cut, flip, scramble, swap, swap_alike)
}


def spoil(graph: str | Path, rnd: Random, damages: Iterable[str]) -> None:
    """Do damage to the derived files of a graph."""
    for damage in damages:
        files = derived_files(graph)
        if files:
            DAMAGES[damage](files, rnd)


def _some(files: list[Path], rnd: Random) -> list[Path]:
    return files if rnd.random() < 0.5 else rnd.sample(files, rnd.randint(1, len(files)))
