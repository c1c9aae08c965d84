"""Backup: a whole graph with history, branches and tags, copied to another address while writers go on.

A copy is itself a graph. Repeated, it is brought up to date: what is there with its name and size stays.

- Order: choose a cut, list the source, copy the content, and only then the versions of the chains, oldest
  first. While the destination has no version of main it is no graph; main's come last then, and names of
  commits that have not come yet are `history_reclaimed` until they have. Where there is a copy already, each
  branch goes from one exact commit to a later one, and then the names follow in one step. Whoever dies at any
  point is followed up by the next copy.
- Deletions: whoever deletes files of the source announces it on its chains first. If that happened since the
  cut, files may be missing from what was listed, so the copy starts over from a new cut, which says that the
  history is gone. What was copied until then stays useful.
- Check: before the first version is written, every file that a head or a tag needs is traced in the
  destination, and must be there with the size that it has in the source.
- Refused: a destination with another graph, or with versions that the source does not have. Versions are
  never overwritten, so a writer on the destination can lose nothing.

Derived files are copied too: the copy then answers as quickly as the original. Lance's own hints at the
newest version are not: they are about the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import CopyInterrupted, HistoryReclaimed, IntegrityError
from omnigraph.base.frozen import FrozenMap
from omnigraph.storage import diagnose
from omnigraph.storage.checksums import FOLDER as CHECKSUMS
from omnigraph.storage.copy.cut import Cut, choose_cut, is_swept
from omnigraph.storage.copy.plan import (
    CopyPlan,
    chains_in,
    check_apart,
    check_destination,
    metadata_path,
    plan_copy,
    version_of,
)
from omnigraph.storage.copy.transfer import Progress, Tally, Transfer
from omnigraph.storage.location import UNFINISHED, abandoned
from omnigraph.storage.manifest.chain import MANIFEST, chain_path, check_whole
from omnigraph.storage.manifest.records import ManifestState
from omnigraph.storage.manifest.refs import REFS
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.files import TABLES, UNREAD, referenced

ATTEMPTS = 8  # each further one means that somebody deleted history meanwhile


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy has, and what was written to bring it about."""

    commits: FrozenMap[str, str]  # the head of each branch, by name
    tags: int
    files: int
    bytes: int
    copied: int  # files that were written
    copied_bytes: int
    attempts: int  # more than one: history was deleted meanwhile


class _Swept(Exception):
    """History may have been deleted since the cut was chosen."""


class Backup:
    """One copy of one graph, from its start to its end."""

    def __init__(self, source: GraphStore, target: GraphStore, progress: Progress | None = None) -> None:
        self._source = source
        self._target = target
        self._tally = Tally(progress)
        self._transfer = Transfer.between(source, target, self._tally)

    def run(self) -> Copied:
        """Copy everything up to the newest cut."""
        check_apart(self._source.location, self._target.location)
        reason: Exception | None = None
        for attempt in range(1, ATTEMPTS + 1):
            try:
                present = dict(self._target.location.objects.list())
                cut = choose_cut(self._source, also=chains_in(present))
                plan = self._up_to(cut, present)
            except (_Swept, HistoryReclaimed) as error:
                reason = error
                continue
            return Copied(
                commits=FrozenMap({name: state.head for name, state in cut.branches}),
                tags=len(cut.registry.tags),
                files=len(plan.sizes),
                bytes=sum(plan.sizes.values()),
                copied=self._tally.files,
                copied_bytes=self._tally.bytes,
                attempts=attempt,
            )
        raise CopyInterrupted(
            f"history of {self._source.location.uri} was deleted during each of {ATTEMPTS} copies",
            remedy="Copy again when no cleanup or hard drop runs; what was copied is not copied again",
            uri=self._source.location.uri,
        ) from reason

    def _up_to(self, cut: Cut, present: dict[str, int]) -> CopyPlan:
        plan = plan_copy(self._source.location.objects.list(), cut)
        check_destination(self._source, self._target, plan.sizes, present, cut.ended)
        is_graph = any(key.startswith(f"{MANIFEST}/_versions/") for key in present)
        if not is_graph:
            self._target.check_create_if_absent()
        present |= self._copy_content(plan, present)
        if is_swept(self._source, cut):
            raise _Swept
        self._check_needed(cut, plan.sizes, present)
        self._copy_versions(cut, plan, present, is_graph=is_graph)
        self._check_heads(cut)
        place = self._target.location
        left = abandoned(place.objects.entries(UNFINISHED), self._target.clock.now_us())
        diagnose.clear(place, [file.key for file in left])  # of copies that died
        return plan

    # -- content -----------------------------------------------------------------------------------

    def _copy_content(self, plan: CopyPlan, present: Mapping[str, int]) -> dict[str, int]:
        """Copy what versions of chains rest on; versions of tables after the files that they name."""
        written: dict[str, int] = {}
        for group in (plan.content, plan.table_versions):
            missing = {key: plan.sizes[key] for key in group if _is_missing(key, plan.sizes[key], present)}
            written |= self._transfer.copy(missing)
            self._transfer.sync(key for key in group if key in present or key in written)
        return written

    def _check_needed(self, cut: Cut, sizes: Mapping[str, int], present: Mapping[str, int]) -> None:
        """Raise unless the destination has every file that the heads and the tags of a cut need."""
        pins = {(pin.table_id, pin.version) for state in self._promised(cut) for pin in state.pins.values()}
        for table_id, version in sorted(pins):
            for file in sorted(referenced(self._target.opener.table(table_id, version))):
                key = f"{TABLES}/{table_id}/{file}"
                if file.endswith("/") or file.startswith(UNREAD):
                    continue  # a folder may be empty
                if key not in present or present[key] != sizes.get(key):
                    raise IntegrityError(
                        f"{key} is not in the copy as it should be in {self._source.location.uri}",
                        remedy="Run 'omnigraph verify' on the source, then copy again",
                        file=key,
                    )
        for schema in sorted({state.schema for state in self._promised(cut)}):
            self._target.schemas.get(schema)

    def _promised(self, cut: Cut) -> Iterator[ManifestState]:
        """Yield what must be whole in the copy: heads, and tagged states that were not reclaimed."""
        yield from (state for _, state in cut.branches)
        for tag in cut.registry.tags:
            chain = self._source.branches.chain(tag.incarnation)
            try:
                state = chain.at(tag.version)
                check_whole(chain, state)
            except HistoryReclaimed:
                continue
            if state.version >= cut.heads[tag.incarnation].floor:
                yield state

    # -- versions ----------------------------------------------------------------------------------

    def _copy_versions(self, cut: Cut, plan: CopyPlan, present: Mapping[str, int], *, is_graph: bool) -> None:
        """Copy versions of chains and of the registry, in an order that leaves a whole graph at each instant.

        Where there is no graph yet, main comes last; else before the registry, which may have new tags of it.
        Of the registry only the newest version is ever read, and an earlier one may name chains that are not
        in the cut: so it goes first. Tombstones come after it, when it no longer names their chains.

        Nobody reads a chain of which the destination has nothing, before the registry names it: its versions
        go in any order. Those of a chain that is read go one after the other, or a copy that died would have
        a hole in its history.
        """
        missing = {path: [key for key in keys if key not in present] for path, keys in plan.versions.items()}
        self._tally.expect(sum(plan.sizes[key] for keys in missing.values() for key in keys))
        tombstones: list[str] = []
        for incarnation in cut.ended:
            tombstones += missing[chain_path(incarnation)][-1:]
            del missing[chain_path(incarnation)][-1:]
        chains = sorted(missing.keys() - {MANIFEST, REFS})
        read = {metadata_path(key) for key in present if version_of(key) is not None}
        unread = {path for path in chains if path not in read}
        self._create([key for path in chains if path in unread for key in missing[path]], cut, in_order=False)
        for path in chains:
            if path not in unread:
                self._create(missing[path], cut)
        if is_graph:
            self._create(missing[MANIFEST], cut)
        self._create(missing[REFS][::-1], cut)
        self._create(tombstones, cut)
        if not is_graph:
            self._create(missing[MANIFEST], cut)

    def _create(self, keys: Sequence[str], cut: Cut, *, in_order: bool = True) -> None:
        for key, is_there in self._transfer.versions(keys, in_order=in_order):
            if is_there is None:
                path, version = metadata_path(key), version_of(key)
                if path is None or version is None or not cut.has_given_up(path, version):
                    raise _Swept
            elif not is_there:
                # Somebody writes there, or another copy got there first; a second look tells which.
                check_destination(self._source, self._target, [key], [key])

    def _check_heads(self, cut: Cut) -> None:
        """Raise unless every branch in the copy is at its commit, or past it if another copy runs as well."""
        for name, state in cut.branches:
            chain, newest = self._target.branches.head(name)
            at_cut = newest if newest.version == state.version else chain.at(state.version)
            if at_cut.head != state.head:
                raise IntegrityError(
                    f"branch {name!r} of the copy at {self._target.location.uri} is at another commit",
                    remedy="Copy again to an empty destination",
                    branch=name,
                )


def _is_missing(key: str, size: int, present: Mapping[str, int]) -> bool:
    """Say whether a file is to be copied. A log of checksums only grows, so a longer one is newer."""
    there = present.get(key)
    return there != size and not (there is not None and key.startswith(f"{CHECKSUMS}/") and there > size)
