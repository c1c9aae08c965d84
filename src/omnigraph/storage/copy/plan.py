"""Plan: the files of a graph by what a copy does with them; and which destinations a copy may go on with.

Nothing here copies. A file is known by its key alone: content, a version of a table, or a version of a chain
or of the registry; what is past the cut, and what is only passing, is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import DestinationRefused, InvalidRequest
from omnigraph.storage.copy.cut import Cut
from omnigraph.storage.derived.files import is_unfinished
from omnigraph.storage.location import UNFINISHED, Location
from omnigraph.storage.manifest.chain import MANIFEST
from omnigraph.storage.manifest.refs import REFS
from omnigraph.storage.opener import MAX_VERSION, manifest_file
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
    """Refuse a destination that is the source, or inside it, or around it."""
    one, other = f"{source.uri}/", f"{target.uri}/"
    if one.startswith(other) or other.startswith(one):
        raise InvalidRequest(
            f"{target.uri} and {source.uri} are one place, or one is inside the other",
            remedy="Choose a destination elsewhere",
        )


def check_destination(
    source: Location, target: Location, stored: Iterable[str], present: Iterable[str]
) -> None:
    """Refuse a destination unless all versions that it has are the source's.

    Each version rests on the one before it, so the newest of each chain speaks for all.
    """
    newest = _newest(present)
    in_source = _newest(stored)
    if MANIFEST not in newest:
        _check_leftovers(target, stored, present)
    for path in sorted(newest.keys() & {*in_source, MANIFEST, REFS}):
        version = newest[path]
        if version > in_source.get(path, 0):
            raise _refused(source, target, path, version)
        key = version_key(path, version)
        content = source.objects.read(key)
        if content is None:
            raise DestinationRefused(
                f"the copy at {target.uri} ends at version {version} of {path}, "
                f"which {source.uri} has given up",
                remedy="Make a new copy at another address",
                reason="too_old",
                uri=target.uri,
                version=version,
            )
        if content != target.objects.read(key):
            raise _refused(source, target, path, version)


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


def _refused(source: Location, target: Location, path: str, version: int) -> DestinationRefused:
    """Return the error for versions that are not the source's: of another graph, or written there."""
    first = version_key(REFS, 1)  # has an id that is made with a graph
    first_there, first_here = target.objects.read(first), source.objects.read(first)
    if first_there is not None and first_here is not None and first_there != first_here:
        return DestinationRefused(
            f"there is another graph at {target.uri}",
            remedy="Choose an empty destination, or one that holds a copy of this graph",
            reason="another_graph",
            uri=target.uri,
        )
    return DestinationRefused(
        f"the copy at {target.uri} was written to: its version {version} of {path} "
        f"is not that of {source.uri}",
        remedy="Choose another destination; to keep what was written there, export it first",
        reason="own_commits",
        uri=target.uri,
        version=version,
    )
