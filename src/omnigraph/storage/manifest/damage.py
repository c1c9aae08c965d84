"""Damage: what a metadata dataset that cannot be read looks like, said so that a person can act on it.

Room    storage.manifest. Runs only after Lance failed to open a version; looks at the files themselves.
Why     Lance does not sync. After a power cut the newest manifest may be empty, cut off or full of zeros;
        with our syncing it was then never acknowledged to anybody, so deleting it loses nothing.
"""

from __future__ import annotations

from omnigraph.base.errors import IntegrityError
from omnigraph.storage.location import Location
from omnigraph.storage.opener import MAX_VERSION, manifest_file

MAGIC = b"LANC"  # every complete Lance file ends with it


def versions(location: Location, path: str) -> list[int]:
    """Return the numbered versions stored below a path, oldest first."""
    found = []
    for key, _ in location.objects.list(f"{path}/_versions"):
        name = key.rsplit("/", 1)[-1].removesuffix(".manifest")
        if key.endswith(".manifest") and name.isdigit():
            found.append(MAX_VERSION - int(name))
    return sorted(found)


def find_damage(location: Location, path: str) -> IntegrityError | None:
    """Say what is wrong with the newest version of a dataset, if it is the file itself."""
    stored = versions(location, path)  # a refusal of the store comes out typed here
    if not stored:
        return None
    newest = stored[-1]
    file = f"{path}/_versions/{manifest_file(newest)}"
    content = location.objects.read(file)
    if content is None or content.endswith(MAGIC):
        return None
    what = f"{file} at {location.uri} is cut off ({len(content)} bytes), as after a power cut"
    if len(stored) == 1:
        return IntegrityError(
            f"{what}, and there is no version before it",
            remedy=f"Restore {path}/ from a copy; if the graph was only just made, make it anew with force",
            version=newest,
        )
    return IntegrityError(
        f"{what}: it was never acknowledged to anybody",
        remedy=f"Delete {file} below {location.uri}; "
        f"version {stored[-2]} is intact and becomes the newest again",
        version=newest,
    )
