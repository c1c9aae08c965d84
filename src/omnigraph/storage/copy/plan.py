"""Plan: the files of a graph by what a copy does with them; and which destinations a copy may go on with.

Nothing here copies. A file is known by its key alone: content, a version of a table, or a version of a chain
or of the registry; what is past the cut, and what is only passing, is left out.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import DestinationRefused, GraphError, InvalidRequest
from omnigraph.storage.copy.cut import Cut
from omnigraph.storage.derived.files import is_unfinished
from omnigraph.storage.location import UNFINISHED, Location
from omnigraph.storage.manifest.chain import MANIFEST, chain_path
from omnigraph.storage.manifest.refs import REFS
from omnigraph.storage.opener import MAX_VERSION, manifest_file
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.files import HINT, TABLES, VERSIONS

TRANSACTIONS = "_transactions/"
PASSING = (UNFINISHED, "__probe-")  # keys that begin so are nobody's for long


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """What a copy up to some cut has, by key."""

    sizes: Mapping[str, int]
    content: tuple[str, ...]
    table_versions: tuple[str, ...]
    versions: Mapping[str, tuple[str, ...]]  # of each metadata dataset, by its path, oldest first


def plan_copy(listed: Iterable[tuple[str, int]], cut: Cut) -> CopyPlan:
    """Sort out the files of a graph that were listed after a cut was chosen."""
    last = cut.last_versions
    sizes: dict[str, int] = {}
    content: list[str] = []
    table_versions: list[str] = []
    versions: dict[str, list[str]] = {path: [] for path in last}
    for key, size in listed:
        if _is_passing(key):
            continue
        path = metadata_path(key)
        if path is None:
            (table_versions if f"/{VERSIONS}" in key else content).append(key)
        elif path not in last or _is_past(key, last[path]):
            continue
        else:
            (versions[path] if version_of(key) is not None else content).append(key)
        sizes[key] = size
    ordered = {path: tuple(sorted(keys, reverse=True)) for path, keys in versions.items()}
    return CopyPlan(sizes, tuple(sorted(content)), tuple(sorted(table_versions)), ordered)


def metadata_path(key: str) -> str | None:
    """Return the path of the chain or registry that a file belongs to, if it does to one.

    >>> metadata_path("__manifest/tree/01M7/_versions/18446744073709551614.manifest")
    '__manifest/tree/01M7'
    """
    if key.partition("/")[0] not in (MANIFEST, REFS):
        return None
    return key.partition("/_")[0]


def version_of(key: str) -> int | None:
    """Return the number of the version that a file of a chain or of the registry is, if it is one.

    >>> version_of("__refs/_versions/18446744073709551613.manifest")
    2
    """
    folder, _, name = key.rpartition("/")
    number = name.removesuffix(".manifest")
    is_version = folder.endswith("/_versions") and name != number and number.isdigit()
    return MAX_VERSION - int(number) if is_version else None


def version_key(path: str, version: int) -> str:
    """Return where a version of a chain or of the registry is."""
    return f"{path}/{VERSIONS}{manifest_file(version)}"


def chains_in(keys: Iterable[str]) -> set[str]:
    """Return the ids of the chains that have versions among some files; main's aside."""
    paths = {metadata_path(key) or "" for key in keys if version_of(key) is not None}
    trees = f"{MANIFEST}/tree/"
    return {path.removeprefix(trees) for path in paths if path.startswith(trees)}


def _is_passing(key: str) -> bool:
    """Say whether a file is not the graph's, or is not there to stay."""
    ours = key.startswith((f"{TABLES}/", "__")) and not key.startswith(PASSING)
    return not ours or key.endswith((f"/{HINT}", ".part")) or is_unfinished(key)


def _is_past(key: str, last: int) -> bool:
    """Say whether a file of a chain or of the registry belongs to a version after the last one."""
    version = version_of(key)
    if version is not None:
        return version > last
    _, is_transaction, name = key.partition(f"/{TRANSACTIONS}")
    base = name.partition("-")[0]
    return bool(is_transaction) and base.isdigit() and int(base) >= last


# -- destinations ------------------------------------------------------------------------------------


def check_apart(source: Location, target: Location) -> None:
    """Refuse a destination that is the source, or inside it, or around it, by whatever links it is named."""
    one, other = (f"{os.path.realpath(at.uri) if at.is_local else at.uri}/" for at in (source, target))
    if one.startswith(other) or other.startswith(one):
        raise InvalidRequest(
            f"{target.uri} and {source.uri} are one place, or one is inside the other",
            remedy="Choose a destination elsewhere",
        )


def check_destination(
    source: GraphStore,
    target: GraphStore,
    stored: Collection[str],
    present: Iterable[str],
    ended: Iterable[str] = (),
) -> None:
    """Refuse a destination unless all versions that it has are the source's.

    Each version rests on the one before it, so the newest of each chain speaks for all. One that the source
    no longer has can be gone on from where nothing is lost by it: of a chain that has `ended`, and of the
    registry, as long as all branches that it names are the source's.
    """
    newest = _newest(present)
    in_source = _newest(stored)
    over = {chain_path(incarnation) for incarnation in ended}
    if MANIFEST not in newest:
        _check_leftovers(target.location, stored, present)
    for path in sorted(newest.keys() & {*in_source, MANIFEST, REFS}):
        version = newest[path]
        if version > in_source.get(path, 0):
            raise _refused(source, target, path, version)
        key = version_key(path, version)
        content = source.location.objects.read(key)
        if content is None:
            of_names = path == REFS and MANIFEST in newest
            if path in over or (of_names and _names_ours(target, stored)):
                continue
            raise _refused(source, target, path, version, "own_commits" if of_names else "too_old")
        if content != target.location.objects.read(key):
            raise _refused(source, target, path, version)


def _names_ours(target: GraphStore, stored: Iterable[str]) -> bool:
    """Say whether the source has, or had, every branch that a copy names: the last version of each stays."""
    known = chains_in(stored)
    return all(ref.incarnation in known for ref in target.registry().branches)


def _newest(keys: Iterable[str]) -> dict[str, int]:
    """Return the newest version of each metadata dataset, by its path."""
    newest: dict[str, int] = {}
    for key in keys:
        path, version = metadata_path(key), version_of(key)
        if path is not None and version is not None:
            newest[path] = max(newest.get(path, 0), version)
    return newest


def _check_leftovers(target: Location, stored: Iterable[str], present: Iterable[str]) -> None:
    """Refuse parts of a graph that no copy of the source can have left."""
    known = _tables(stored)
    if strange := sorted(_tables(present) - known):
        raise DestinationRefused(
            f"{target.uri} holds parts of another graph, table {strange[0]!r} for one",
            remedy="Choose an empty destination",
            reason="another_graph",
            uri=target.uri,
        )


def _tables(keys: Iterable[str]) -> set[str]:
    return {key.split("/")[1] for key in keys if key.startswith(f"{TABLES}/")}


def _refused(
    source: GraphStore, target: GraphStore, path: str, version: int, reason: str = "own_commits"
) -> DestinationRefused:
    """Return the error for versions that are not the source's, or no longer."""
    here, there = source.location.uri, target.location.uri
    if _born(source) != _born(target):
        reason = "another_graph"
    message, remedy = {
        "another_graph": (
            f"there is another graph at {there}",
            "Choose an empty destination, or one that holds a copy of this graph",
        ),
        "too_old": (
            f"the copy at {there} ends at version {version} of {path}, which {here} has given up",
            "Make a new copy at another address",
        ),
        "own_commits": (
            f"the copy at {there} was written to: its version {version} of {path} is not that of {here}",
            "Choose another destination; to keep what was written there, export it first",
        ),
    }[reason]
    return DestinationRefused(message, remedy=remedy, reason=reason, uri=there, version=version)


def _born(store: GraphStore) -> int | None:
    """Return when a graph was made, which each version of main says; None where there is no graph yet."""
    try:
        return store.snapshot().state.line.created_us
    except GraphError:
        return None
