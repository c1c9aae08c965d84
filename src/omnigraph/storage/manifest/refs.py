"""Refs: the registry of the names of branches and tags.

One metadata dataset: key `branch/{name}` -> where the branch's chain is; key `tag/{name}` -> a commit and the
version of the chain that holds it. Names are free text here, so any legal name works on any store; chains
have anonymous ids.

Every change is decided on one version of the registry and published by compare-and-swap; when it loses, it is
decided again on the new version.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from functools import lru_cache

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import BadBranchName, GraphError, IntegrityError, ReservedBranch
from omnigraph.base.ids import new_id
from omnigraph.storage.durability import Step
from omnigraph.storage.location import storage_failure
from omnigraph.storage.manifest.chain import CommitInDoubt, HeadMoved, MetadataDataset
from omnigraph.storage.manifest.formats import Content, check_served, registry_of_today, stamp
from omnigraph.storage.manifest.records import MAIN

REFS = "__refs"
PREFIX = "branch/"
TAG_PREFIX = "tag/"
FENCE = "fence"
NAME_BYTES = 200
REGISTRY_KEPT = 16  # newest versions that a cleanup leaves


@dataclass(frozen=True, slots=True)
class BranchRef:
    """A registered branch. `deleting` is set while a delete is under way: no new forks from it."""

    name: str
    incarnation: str
    parent: str  # incarnation it was forked from
    fork_version: int
    created_us: int
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class TagRef:
    """A name for one commit: the chain that the commit was published on, and the version that it made."""

    name: str
    commit_id: str
    incarnation: str
    version: int
    created_us: int
    actor: str | None = None
    message: str | None = None


Ref = BranchRef | TagRef


@dataclass(frozen=True, slots=True)
class RefsState:
    """The registry at one version."""

    version: int
    branches: tuple[BranchRef, ...]  # by name
    tags: tuple[TagRef, ...] = ()  # by name
    fence: str | None = None  # made anew by each sweep, and by whoever takes a rename back

    def get(self, name: str) -> BranchRef | None:
        """Return the branch of this name."""
        return next((ref for ref in self.branches if ref.name == name), None)

    def tag(self, name: str) -> TagRef | None:
        """Return the tag of this name."""
        return next((ref for ref in self.tags if ref.name == name), None)

    def branch_of(self, incarnation: str) -> BranchRef | None:
        """Return the branch that names a chain; none does for main's."""
        return next((ref for ref in self.branches if ref.incarnation == incarnation), None)


class Refs:
    """The registry and its newest known state."""

    def __init__(self, dataset: MetadataDataset) -> None:
        self._dataset = dataset
        self._state: RefsState | None = None

    def create(self) -> None:
        """Make an empty registry."""
        self._dataset.create({**stamp(), "made_by": new_id()}, Step.REFS_CREATE)

    def empty(self, base: RefsState) -> None:
        """Remove every name from a registry that is still at `base`; else raise HeadMoved.

        It may be of an older format: without names there is nothing else to upgrade.
        """
        keys = [PREFIX + ref.name for ref in base.branches] + [TAG_PREFIX + ref.name for ref in base.tags]
        made_by = new_id()
        emptied = {**stamp(), "made_by": made_by, **dict.fromkeys(keys)}
        try:
            self._dataset.commit(base.version, emptied, Step.REFS_CREATE)
        except CommitInDoubt as error:
            _, content = self._dataset.latest()
            if (content or {}).get("made_by") != made_by:
                raise storage_failure(f"emptying {REFS}", error) from error
        self._state = None

    def latest(self) -> RefsState:
        """Read the registry: one request when unchanged, else two."""
        known = self._state
        version, content = self._dataset.latest(None if known is None else known.version)
        if known is None or content is not None:
            check_served(content or {}, REFS, self._dataset.address)
            known = self._state = decode_refs(version, content or {})
        return known

    def left(self) -> RefsState:
        """Read a registry that no graph has, of this format or an older one."""
        version, content = self._dataset.latest()
        return decode_refs(version, content or {})

    def known(self) -> RefsState:
        """Return the last state read, reading only if there is none: safe to decide on, since the
        compare-and-swap refuses a decision made on an old version."""
        return self._state if self._state is not None else self.latest()

    def change(self, base: RefsState, name: str, ref: BranchRef | None, step: Step) -> RefsState:
        """Set or remove one branch if the registry is still at `base`; else raise HeadMoved."""
        return self.change_many(base, {PREFIX + name: ref}, step)

    def change_many(self, base: RefsState, changes: Mapping[str, Ref | None], step: Step) -> RefsState:
        """Set and remove several keys at once if the registry is still at `base`; else raise HeadMoved."""
        written = {key: None if ref is None else _dump(ref) for key, ref in changes.items()}
        try:
            version = self._dataset.commit(base.version, written, step)
        except CommitInDoubt as error:
            version = self._settled(base.version + 1, written, error)
        content: dict[str, Ref | None] = {PREFIX + ref.name: ref for ref in base.branches}
        content |= {TAG_PREFIX + ref.name: ref for ref in base.tags}
        self._state = _state(version, (content | dict(changes)).values(), base.fence)
        return self._state

    def _settled(self, version: int, written: Mapping[str, str | None], error: CommitInDoubt) -> int:
        """Return the version that a change in doubt was to make, if it did; HeadMoved if another one took it.

        The newest version cannot say: somebody may have undone the change since, and it must not be made
        again. While few versions followed no cleanup can have taken this one; else the doubt stays.
        """
        try:
            newest, _ = self._dataset.latest()
            if not version <= newest < version + REGISTRY_KEPT:
                raise error
            content = self._dataset.at(version)
        except GraphError as unreadable:
            raise error from unreadable
        if any(content.get(key) != value for key, value in written.items()):
            raise HeadMoved(REFS) from error
        return version

    def fence(self, base: RefsState, step: Step) -> RefsState:
        """Move the registry and change no name: whoever decided on an older version must decide again."""
        fence = new_id()
        version = self._dataset.commit(base.version, {FENCE: fence}, step)
        self._state = replace(base, version=version, fence=fence)
        return self._state


@lru_cache(maxsize=1024)  # asked for on every read and write
def check_name(name: str) -> str:
    """Return the name as it is stored, or say what is wrong with it.

    >>> check_name("  review/ünïcode ")
    'review/ünïcode'
    """
    clean = unicodedata.normalize("NFC", name.strip())
    segments = clean.split("/")
    problem = None
    if not clean:
        problem = "it is empty"
    elif any(unicodedata.category(c) in ("Cc", "Cs") for c in clean):
        problem = "it contains control characters"
    elif len(clean.encode()) > NAME_BYTES:
        problem = f"it is longer than {NAME_BYTES} bytes of UTF-8"
    elif clean.startswith("/") or clean.endswith("/"):
        problem = "it starts or ends with '/'"
    elif any(part in ("", "..") for part in segments):
        problem = "it has an empty or '..' segment"
    if problem is not None:
        raise BadBranchName(f"bad branch name {name!r}: {problem}", name=name, reason=problem)
    return clean


def check_free_name(name: str) -> str:
    """Return a name that a user may create or delete."""
    clean = check_name(name)
    if clean == MAIN or clean.startswith("__"):
        raise ReservedBranch(
            f"branch name {clean!r} is reserved",
            remedy="Choose a name other than 'main' that does not start with '__'",
            name=clean,
            reason="reserved",
        )
    return clean


def decode_refs(version: int, content: Content) -> RefsState:
    """Read a registry back, of this format or an older one."""
    content = registry_of_today(content, REFS)
    kinds: dict[str, type[Ref]] = {PREFIX: BranchRef, TAG_PREFIX: TagRef}
    try:
        refs = [
            kind(**json.loads(value))
            for key, value in content.items()
            for prefix, kind in kinds.items()
            if key.startswith(prefix)
        ]
        return _state(version, refs, content.get(FENCE))
    except (TypeError, ValueError, RecursionError) as error:
        raise IntegrityError(
            f"version {version} of {REFS} does not hold names of branches and tags: {error!r}",
            remedy=f"It was damaged: restore {REFS}/ from a copy",
            version=version,
        ) from error


def _state(version: int, refs: Iterable[Ref | None], fence: str | None) -> RefsState:
    by_name = sorted((ref for ref in refs if ref is not None), key=lambda ref: ref.name)
    return RefsState(
        version,
        tuple(ref for ref in by_name if isinstance(ref, BranchRef)),
        tuple(ref for ref in by_name if isinstance(ref, TagRef)),
        fence,
    )


def _dump(ref: Ref) -> str:
    return json.dumps(asdict(ref), ensure_ascii=False)
