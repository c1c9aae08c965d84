"""Clone: one state of a graph as a new graph, made of the same files.

The files that the tables of the state need are copied as they are, and the first commit of the new graph pins
them: so every value, id and index is exactly that of the source, and no row is read. Rows that were deleted
and columns that were dropped before stay in those files, unseen, as they do in the source.

What is derived over several files is not copied; it is worked out again. The new graph has its own registry
and commits, so it is no copy of the source to `backup`.
"""

from __future__ import annotations

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import IntegrityError
from omnigraph.storage.checksums import FOLDER as CHECKSUMS
from omnigraph.storage.copy.plan import check_apart
from omnigraph.storage.copy.transfer import Progress, Tally, Transfer
from omnigraph.storage.derived.files import is_unfinished
from omnigraph.storage.manifest.records import ManifestState, Pin
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.files import HINT, TABLES, UNREAD, VERSIONS, matching, referenced, stored_files
from omnigraph.storage.transaction import PinnedSnapshot


@dataclass(frozen=True, slots=True)
class Cloned:
    """The first state of a new graph, and how much was copied for it."""

    state: ManifestState
    files: int
    bytes: int


class Clone:
    """Makes one graph from a state of another."""

    def __init__(self, source: GraphStore, target: GraphStore, progress: Progress | None = None) -> None:
        self._source = source
        self._target = target
        self._tally = Tally(progress)
        self._transfer = Transfer.between(source, target, self._tally)

    def run(self, snapshot: PinnedSnapshot, *, actor: str | None, force: bool) -> Cloned:
        """Make the new graph; nothing counts until its first commit is there."""
        check_apart(self._source.location, self._target.location)
        state = snapshot.state
        founded = self._target.found(
            self._source.schemas.get(state.schema),
            state.pins,
            lambda: self._copy_tables(snapshot),
            force=force,
            actor=actor,
            message=f"clone of {snapshot.branch} at {state.head}",
        )
        return Cloned(founded, self._tally.files, self._tally.bytes)

    def _copy_tables(self, snapshot: PinnedSnapshot) -> None:
        with self._source.reading(snapshot.state):
            needed: dict[str, int] = {}
            for pin in snapshot.state.pins.values():
                needed |= self._needed(snapshot, pin)
            versions = {key: size for key, size in needed.items() if f"/{VERSIONS}" in key}
            content = {key: size for key, size in needed.items() if key not in versions}
            for files in (content, versions):  # a version comes after the files that it names
                written = self._transfer.copy(files)
                self._transfer.sync(written)
                if lost := sorted(key for key, size in files.items() if not _is_whole(key, size, written)):
                    raise IntegrityError(
                        f"{lost[0]} of {self._source.location.uri} is missing, or has changed",
                        remedy="Run 'omnigraph verify' on the source, then clone again",
                        file=lost[0],
                    )

    def _needed(self, snapshot: PinnedSnapshot, pin: Pin) -> dict[str, int]:
        """Return the files that a table needs, by key; and the logs that have their checksums."""
        needed = referenced(self._source.table(snapshot, pin.table_id))
        stored = stored_files(self._source.location, pin.table_id)
        logs = dict(self._source.location.objects.list(f"{CHECKSUMS}/{pin.table_id}"))
        prefix = f"{TABLES}/{pin.table_id}/"
        named = {
            prefix + file: 0 for file in needed if not file.endswith("/") and not file.startswith(UNREAD)
        }
        files = (file for file in matching(needed, stored) if file != HINT and not is_unfinished(file))
        return named | {prefix + file: stored[file] for file in sorted(files)} | logs


def _is_whole(key: str, size: int, written: dict[str, int]) -> bool:
    """Say whether a file arrived with its size; logs of checksums may have grown, derived files may go."""
    return written.get(key) == size or key.startswith(f"{CHECKSUMS}/") or "/_derived/" in key
