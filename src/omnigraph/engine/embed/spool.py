"""Spool: vectors that were paid for and are not in the graph yet, on the disk of this machine.

One SQLite file for each vector property of each graph, provider, model and length. It knows a text by its
digest and never holds the text. A fill that was killed is taken up by the next one, which asks only for what
is not here; a fill that landed deletes its file, and files that nobody touched for a month go with the next
fill. Two fills of one property on one machine would pay twice: the second is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from omnigraph.base.ids import Clock
from omnigraph.execution.search.embedding import EmbeddingUnavailable
from omnigraph.storage.derived.fetched import FOLDER_SETTING

KEPT_S = 30 * 24 * 3600
FOLDER, SUFFIX = "embed", ".sqlite"
CHECKSUM = 4  # bytes behind each vector
ASKED_AT_ONCE = 500  # parameters of one statement; SQLite takes 999 or more


def digest_of(text: str) -> bytes:
    """Return what stands for a text."""
    return hashlib.sha256(text.encode()).digest()


def usual_folder() -> Path | None:
    """Return where spools lie unless somebody says otherwise; None if nothing may be kept."""
    named = os.environ.get(FOLDER_SETTING, "")
    if named == "off":
        return None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(named or Path(home, "omnigraph"), FOLDER)


def spool_name(*identity: str | int | None) -> str:
    """Return the file of one property of one graph, for one model."""
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32] + SUFFIX


def forget_old(folder: Path, clock: Clock) -> None:
    """Delete the spools that nobody touched for a month."""
    oldest = clock.now_us() / 1e6 - KEPT_S
    for file in folder.glob(f"*{SUFFIX}"):
        with suppress(OSError):  # another process may be at it, too
            if file.stat().st_mtime < oldest:
                file.unlink()


class VectorSpool:
    """The finished vectors of one property; for one thread of one process."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self._file = _opened(path)
        except sqlite3.OperationalError as error:
            raise EmbeddingUnavailable(
                f"another process is filling the same vectors, or {path} cannot be written",
                remedy="Wait until it has ended: what it finishes need not be asked for again",
                path=str(path),
            ) from error
        except sqlite3.DatabaseError:  # cut off or damaged: it costs some requests, and nothing else
            path.unlink(missing_ok=True)
            self._file = _opened(path)

    def put(self, digests: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        """Keep finished vectors; they stay when the process is killed after this."""
        rows = [(digest, _sealed(vector.tobytes())) for digest, vector in zip(digests, vectors, strict=True)]
        with self._file:
            self._file.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)

    def known(self, digests: Iterable[bytes]) -> set[bytes]:
        """Return those whose vector is here, whole."""
        return set(self.get(digests))

    def get(self, digests: Iterable[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Return the vectors that are here; a damaged one is not."""
        wanted = list(dict.fromkeys(digests))
        vectors = {}
        for start in range(0, len(wanted), ASKED_AT_ONCE):
            some = wanted[start : start + ASKED_AT_ONCE]
            marks = ",".join("?" * len(some))
            rows = self._file.execute(f"SELECT digest, vector FROM vectors WHERE digest IN ({marks})", some)
            for digest, sealed in rows:
                vector = sealed[:-CHECKSUM]
                if len(vector) == 4 * self._size and _sealed(vector) == sealed:
                    vectors[digest] = np.frombuffer(vector, np.float32)
        return vectors

    def close(self) -> None:
        """Let go of the file, which stays."""
        self._file.close()

    def delete(self) -> None:
        """Remove the file: its vectors are in the graph."""
        self.close()
        self._path.unlink(missing_ok=True)


def _opened(path: Path) -> sqlite3.Connection:
    path.touch(mode=0o600)
    file = sqlite3.connect(path, timeout=0)
    try:
        file.execute("PRAGMA locking_mode=EXCLUSIVE")  # held until it is closed, or the process ends
        with file:
            file.execute("BEGIN EXCLUSIVE")
            file.execute("CREATE TABLE IF NOT EXISTS vectors (digest BLOB PRIMARY KEY, vector BLOB NOT NULL)")
    except BaseException:
        file.close()
        raise
    return file


def _sealed(vector: bytes) -> bytes:
    return vector + zlib.crc32(vector).to_bytes(CHECKSUM, "big")
